// A stream of operations and the blocks it works on. One thread after another carries it out: each
// does some operations and leaves its blocks to the next.
//
// Only (seed, stream, round, thread of the stream) decide what a stream does to its own blocks.
// When other streams' blocks arrive depends on timing; random numbers of their own decide what is
// done to them.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "block.h"
#include "memory.h"
#include "run.h"
#include "sizes.h"
#include "small.h"

namespace torture {

inline constexpr unsigned kBlocks = 1024;     // places for a stream's own blocks
inline constexpr unsigned kGuests = 64;       // places for other streams' blocks
inline constexpr unsigned kBrood = 3;         // short-lived threads that a thread may start
inline constexpr unsigned kBroodBlocks = 96;  // places that these have
inline constexpr unsigned kMostCrowd = 512;   // threads that run at the same time
inline constexpr unsigned kMaxThreads = 512;
inline constexpr size_t kSignalStack = 64 * kKiB;

// Blocks in transit to a stream. Any thread.
struct Mailbox {
  static constexpr unsigned kRoom = 64;
  Lock lock;
  unsigned count;
  Block blocks[kRoom];

  bool put(const Block& block);
  bool take(Block* block);
};

// What a thread mostly does: all operations, send blocks to others, or free others' blocks.
enum class Habit { kBalanced, kGiver, kTaker };

struct Worker {
  Where where;
  unsigned stream;
  unsigned places;  // of `blocks` in use: kBlocks or kBroodBlocks
  Worker* brood;    // kBrood of them; null for those
  Random random, guest_random;
  Mood mood;
  Habit habit;
  size_t only_size;            // that the thread requests; 0: any
  size_t bytes, most_bytes;    // requested by the live blocks in `blocks`
  uint64_t made;               // blocks so far
  uint64_t operations_left;    // of this round
  uint64_t lifetime;           // operations of the current thread
  std::atomic<bool> finished;  // the thread has done its operations
  std::atomic<bool>* gate;     // until it opens, the thread does only one operation
  pthread_t thread;
  unsigned leaving;  // rounds of key destructors of the current thread
  bool running;      // there is a thread to join
  unsigned char* signal_stack;
  void* stack;  // see start_thread_on
  Mailbox mailbox;
  Block guests[kGuests];
  Block blocks[kBlocks];
  Small small;
};

// Set in a child of fork, which has one thread, and no stream to send blocks to.
extern bool in_child;

// Makes settings.threads streams; broods and crowd are numbered behind them. False without memory.
bool make_workers();
// The streams, their broods, the crowd, the main thread.
unsigned worker_count();
Worker& worker(unsigned stream);
// The worker of the first thread, which is no stream.
Worker& main_worker();
// The next in all Wheres, or null behind the last: for the monitor.
Where* where_of(unsigned index);

// Starts a new round of the stream.
void begin_round(Worker& worker, uint64_t round, uint64_t operations);
// Starts the stream's next thread; REQUIRES: not running, operations_left > 0.
void start_thread(Worker& worker);
void join_thread(Worker& worker);
// Starts many threads that run at the same time, more than an allocator may have heaps for, joins
// them and frees their blocks. REQUIRES: called by the main thread.
void raise_crowd();
// Makes the calling thread act for the worker, with its Where and its signal stack.
void become(Worker& worker);
// Carries out one operation, and mostly a burst of small ones.
void step(Worker& worker);
// Checks and frees all blocks of the worker and of its mailbox. Any thread, after the worker's own
// has ended.
void release_all(Worker& worker);

}  // namespace torture
