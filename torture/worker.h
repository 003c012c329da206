// A stream of operations and the blocks it works on. The threads that carry it out follow one
// another: each lives for some operations and leaves its blocks to the next.
//
// What a stream does to its own blocks is decided by (seed, stream, round, thread of the stream)
// alone. When blocks of others arrive, and what is done to them then, depends on the timing, and is
// decided by random numbers of its own.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "block.h"
#include "memory.h"
#include "run.h"
#include "sizes.h"

namespace torture {

inline constexpr unsigned kBlocks = 1024;     // places for a stream's own blocks
inline constexpr unsigned kGuests = 64;       // for blocks that others have made
inline constexpr unsigned kBrood = 3;         // short-lived threads that a thread may start
inline constexpr unsigned kBroodBlocks = 96;  // places that these have
inline constexpr unsigned kMostCrowd = 512;   // threads that are there all at once
inline constexpr unsigned kMaxThreads = 512;
inline constexpr size_t kSignalStack = 64 * kKiB;

// Blocks on their way to a stream. Any thread.
struct Mailbox {
  static constexpr unsigned kRoom = 64;
  Lock lock;
  unsigned count;
  Block blocks[kRoom];

  bool put(const Block& block);
  bool take(Block* block);
};

// What a thread mostly does: its share of all, give blocks to others, or take theirs and free.
enum class Habit { kBalanced, kGiver, kTaker };

struct Worker {
  Where where;
  unsigned stream;
  unsigned places;  // of `blocks` in use: kBlocks or kBroodBlocks
  Worker* brood;    // kBrood of them; null for those
  Random random, guest_random;
  Mood mood;
  Habit habit;
  size_t only_size;            // that the thread asks for; 0: any
  size_t bytes, most_bytes;    // asked for by the live blocks in `blocks`
  uint64_t made;               // blocks so far
  uint64_t operations_left;    // of this round
  uint64_t lifetime;           // operations of the present thread
  std::atomic<bool> finished;  // the thread has done its operations
  std::atomic<bool>* gate;     // before it is open, the thread goes no further than one operation
  pthread_t thread;
  unsigned leaving;  // rounds of key destructors that the present thread goes through
  bool running;      // there is a thread to join
  unsigned char* signal_stack;
  void* stack;  // see start_thread_on
  Mailbox mailbox;
  Block guests[kGuests];
  Block blocks[kBlocks];
};

// Set in a child of fork, which has one thread, and nobody to send blocks to.
extern bool in_child;

// Of settings.threads streams; broods and crowd are numbered behind them. False without memory.
bool make_workers();
Worker& worker(unsigned stream);
// The one of the first thread, which is no stream.
Worker& main_worker();
// The next in all Wheres, or null behind the last: for the monitor.
Where* where_of(unsigned index);

// A new round of the stream.
void begin_round(Worker& worker, uint64_t round, uint64_t operations);
// Starts the stream's next thread; REQUIRES: not running, operations_left > 0.
void start_thread(Worker& worker);
void join_thread(Worker& worker);
// Threads by the dozen, more than an allocator may have heaps for, all there at the same time; then
// they are gone, and all that they made. By the main thread.
void raise_crowd();
// Makes the calling thread the one that acts for the worker: its Where, its signal stack.
void become(Worker& worker);
// One operation.
void step(Worker& worker);
// Checks and frees all blocks that the worker has, and those in its mailbox. By any thread, when
// the worker's own is gone.
void release_all(Worker& worker);

}  // namespace torture
