// A recorded thread, carried out: its operations, in order, on the malloc of this process.
//
// A slot is a place for a block. Slots change hands between threads: who takes one over waits for
// the turn, the number of operations on the slot so far, that the trace says it has then; who had
// it last needs not wait. All else of a slot belongs to the thread whose turn it is.
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
  std::atomic<uint64_t> bytes;      // asked for, in all
  std::atomic<uint64_t> handed;     // operations on a slot that another thread had last
  std::atomic<uint64_t> waits;      // of these, the block was not there yet
  std::atomic<uint64_t> unplanned;  // bytes of buffers beyond those planned for
};

// What all threads share. Set before the first one runs.
struct Shared {
  Slot* slots;
  Header header;
  Touch touch = Touch::kAll;
  bool dry = false;  // go through the operations, and call nothing
  Pace pace;
  Counts counts;
  std::atomic<uint32_t> live_threads;
  std::atomic<uint64_t> spawned;  // threads, so far
};
extern Shared shared;

inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoMemory = 3;

// Says it on stderr in one line and ends the process.
[[noreturn]] void give_up(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same for a file that no compiler of traces has written.
[[noreturn]] void give_up_damaged();

// Zeroed pages that are resident from the start.
void* map_resident(size_t bytes);

// Buffers for so many threads at a time, resident from now on.
void plan_buffers(uint64_t threads);

// Carries out the thread's operations.
void run_thread(uint32_t number);

}  // namespace replay
