// Stops all other threads of the process, and reads their registers.
//
// A short-lived process that shares this one's memory stops them by ptrace, because a thread cannot
// trace its own process. No signal is delivered or lost, and an interrupted system call continues.
// The threads run on when the StoppedWorld ends. If the caller dies, so does the tracer, and the
// kernel lets the threads run.
//
// Thread safety: one at a time. The caller holds the locks of what must not change. Allocates no
// memory by malloc and takes no lock. Bounds: 4 KiB a thread; waits 5 seconds for a thread to stop.
#pragma once

#include "base/policy.h"
#include "os/os.h"

namespace larder {

struct StoppedThread {
  // In the kernel's layout: general registers, then vectors.
  int id;
  uint32_t words;
  uintptr_t stack_pointer;
  uintptr_t thread_pointer;
  uint64_t word[kRegisterWords];
};

class StoppedWorld {
 public:
  StoppedWorld();
  ~StoppedWorld();
  StoppedWorld(const StoppedWorld&) = delete;
  StoppedWorld& operator=(const StoppedWorld&) = delete;

  enum class Outcome {
    kStopped,
    kRefused,  // ptrace is not allowed: the others run on
    kSome,     // at least one did not stop
    kNoMemory,
  };
  Outcome outcome() const { return outcome_; }
  // Without the caller.
  size_t size() const;
  const StoppedThread& operator[](size_t i) const;

 private:
  struct Tracer;
  static int trace(void* argument);
  Tracer* tracer_ = nullptr;
  size_t mapped_bytes_ = 0;
  int tracer_id_ = 0;
  uint64_t signals_ = 0;  // the caller's signal mask
  Outcome outcome_ = Outcome::kStopped;
};

}  // namespace larder
