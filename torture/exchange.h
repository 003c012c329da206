// Bursts of blocks that change hands at once: one thread makes them, another frees or resizes them
// and makes others of the same memory, and the first frees those without having allocated anything
// since. Whatever an allocator remembers of the first thread's last blocks is about other blocks
// by then.
#pragma once

namespace torture {

struct Worker;

// Offers a burst to whichever thread takes it first. With one stream, in a child of fork, and when
// none takes it in time, the thread plays both parts.
void exchange(Worker& worker);
// Plays the other part for a thread that waits, if there is one.
void serve_exchange();

}  // namespace torture
