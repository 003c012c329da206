// A replayed thread: its operations, in order, on the malloc of this process.
//
// A slot holds a block. When a slot changes threads, the new thread waits until the number of
// operations on the slot, its turn, is the one in the trace; the thread that had it last does not
// wait. The rest of a slot belongs to the thread whose turn it is.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "ops.h"
#include "pace.h"

namespace replay {

struct Slot {
  void* p;
  std::atomic<uint32_t> turn;
  uint32_t touched;  // pages
};

enum class Touch : uint8_t { kNone, kEdges, kAll };

struct Counts {
  std::atomic<uint64_t> makes, frees, reallocs;
  std::atomic<uint64_t> bytes;      // requested, in total
  std::atomic<uint64_t> handed;     // operations on a slot that another thread used last
  std::atomic<uint64_t> waits;      // of these, those that had to wait
  std::atomic<uint64_t> unplanned;  // bytes of buffers beyond the planned ones
};

// Shared by all threads. Set before the first one runs.
struct Shared {
  Slot* slots;
  Header header;
  Touch touch = Touch::kAll;
  bool dry = false;  // go through the operations without calls
  Pace pace;
  Counts counts;
  std::atomic<uint32_t> live_threads;
  std::atomic<uint64_t> spawned;  // threads, so far
};
extern Shared shared;

inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoMemory = 3;

// Prints one line on stderr and ends the process.
[[noreturn]] void give_up(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same for a file that `larder replay` has not written.
[[noreturn]] void give_up_damaged();

// Zeroed pages that are resident from the start.
void* map_resident(size_t bytes);

// Makes buffers for this many concurrent threads, resident from now on.
void plan_buffers(uint64_t threads);

// Carries out the thread's operations.
void run_thread(uint32_t number);

}  // namespace replay
