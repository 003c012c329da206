// A run: its settings, its counters, where each thread currently is, and how a fault ends it.
//
// The settings are written before the first thread starts. Only its thread writes a Where; the
// monitor and the crash handler read it.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "block.h"
#include "memory.h"

namespace torture {

// The kinds of faults.
enum class Fault {
  kOverlap,
  kDoubleHandOut,
  kMisaligned,
  kLostContent,
  kDamaged,
  kUsableMoves,
  kUsableTooSmall,
  kDirtyCalloc,
  kChangedErrno,
  kNoMemory,
  kWrongResult,
  kGrowth,
  kHang,
  kCrash,
  kAborted,
  kCount
};

struct Settings {
  unsigned threads = 4;
  double seconds = 10;
  uint64_t seed = 0;
  uint64_t first_round = 1;
  uint64_t rounds = 0;  // 0: until the time is up
  size_t live_mib = 128;
  unsigned hang_seconds = 60;
  bool forks = true, signals = true;
  bool progress = false;
  bool ignored[size_t(Fault::kCount)] = {};
  const char* expect = nullptr;  // the kind of fault that must be found
  bool aborts = false;           // at a fault, for the fuzzer
  int process = 0;               // the first one's id
};

extern Settings settings;

// The call that a thread is in, or was in last.
struct Where {
  unsigned stream;
  std::atomic<uint64_t> round, generation, operation;
  std::atomic<uint64_t> calls;  // rises with every call: the sign of life
  std::atomic<const char*> call;
  std::atomic<uintptr_t> address;
  std::atomic<size_t> size, align;
  std::atomic<int> thread;  // its kernel id, 0 when no thread works on the stream
  int64_t uncounted;        // bytes that are not in totals.live_bytes yet
};

// The calling thread's; null in threads that do not call the allocator under test.
extern __thread Where* where;

struct Totals {
  std::atomic<uint64_t> operations, rounds, threads, forks, signals;
  std::atomic<int64_t> live_bytes, live_peak;
};

extern Totals totals;

// Set when the time is up: streams end after their current operation.
extern std::atomic<bool> stop;

// Accepts kinds after which a run can continue.
inline bool is_ignored(Fault kind) { return settings.ignored[size_t(kind)]; }
// False if no kind has this name, or if a run cannot continue after it.
bool ignore(const char* name);

// Reports the first fault of the run in a line on stdout and ends the process; a second fault waits
// for that. `culprit` is the block that the call works on, `other` a second one; both may be null.
// Never allocates. Async-signal-safe.
[[noreturn, gnu::format(printf, 5, 6)]] void fault(Fault kind, const Where* at,
                                                   const Block* culprit, const Block* other,
                                                   const char* format, ...);
// Describes damage, as part of a sentence, in `text`.
void describe_damage(const Damage& damage, char* text, size_t size);

// For the parent of a child that has reported a fault or given up, with this exit code (1–3).
[[noreturn]] void end_like_child(int code);

// For errors that are no fault of the allocator: one line on stderr, exit code 2.
[[noreturn, gnu::format(printf, 1, 2)]] void give_up(const char* format, ...);

// stdout has one JSON object a line: {"start": …}, {"progress": …} with --progress, then {"clean":
// …} or {"fault": …}.
void print_start();
void print_progress(double seconds);
void print_clean(double seconds);

// Starts a thread on the stack at *stack. Null is libc's, or, under ThreadSanitizer, one that stays
// mapped: TSan does not see libc unmap the stacks of ended threads, and would take the next mapping
// there for the same memory. Returns 0 or an error.
int start_thread_on(void** stack, pthread_t* thread, void* (*function)(void*), void* argument);

// From /proc/self/statm and /proc/self/status, bytes; 0 if they cannot be read.
size_t resident_bytes();
size_t address_space_bytes();
size_t peak_resident_bytes();

}  // namespace torture
