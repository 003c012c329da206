// Bursts of blocks that change threads at once: one thread allocates them, another frees or resizes
// them and allocates others from the same memory, and the first frees those without an allocation
// in between. What an allocator has cached about the first thread's last blocks is then stale.
#pragma once

namespace torture {

struct Worker;

// Offers a burst to the thread that takes it first. With one stream, in a child of fork, and if no
// thread takes it in time, the calling thread plays both parts.
void exchange(Worker& worker);
// Plays the other part for a thread that waits, if there is one.
void serve_exchange();

}  // namespace torture
