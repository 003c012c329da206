// Bursts of calls for blocks of up to 4 KiB: nearly all operations of a run, because they cost
// little. Every check is made; only the index's treaps do not have these blocks, its bits do.
//
// Invariants:
//   a thread that changes unlisted blocks holds the lock of the worker that it acts for, and
//   between two changes each is filled, and in one place: in the table of a worker or on its way to
//   a stream
// So a thread that holds all these locks (a fork) sees only blocks that no other thread works on.
#pragma once

#include "block.h"
#include "memory.h"

namespace torture {

struct Worker;

inline constexpr unsigned kSmallBlocks = 512;  // places in a stream's table
inline constexpr unsigned kSmallBatch = 64;    // for blocks that one burst allocates and frees

// Small blocks that other threads have sent to a stream.
struct SmallMail {
  static constexpr unsigned kRoom = 128;
  Lock lock;
  unsigned count;
  Block blocks[kRoom];
};

struct Small {
  Lock lock;
  unsigned places;  // of the first kSmallBlocks
  Block blocks[kSmallBlocks + kSmallBatch];
  SmallMail mail;
};

// About 128 operations, which it counts. Only the worker's random numbers decide which.
void small_burst(Worker& worker);
// Frees what has arrived, some of it after a realloc.
void receive_small(Worker& worker);
// Checks and frees all small blocks of the worker, and what has been sent to it. Any thread, after
// the worker's own has ended.
void release_small(Worker& worker);

// For a fork; the thread that waits shows that it lives.
void lock_small();
void unlock_small();
// In a child of fork: checks the small blocks of the other workers, and frees a third of them.
void check_inherited_small(Worker& worker);

// Sets the index's way to find an unlisted block.
void init_small();

}  // namespace torture
