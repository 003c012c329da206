// All other threads of the process, stopped, with what their registers hold.
//
// A short-lived process that shares this one's memory stops them by ptrace, since a thread cannot
// trace those of its own process. It makes no other sound: no signal is delivered, none is lost, a
// system call that was interrupted goes on. Whoever wants the threads to run again says so; if the
// caller dies, the tracer does, and the kernel lets them run.
//
// Thread safety: one at a time; the caller holds what must not change hands meanwhile. Nothing here
// allocates by malloc or takes a lock. Bounds: 4 KiB a thread; waits 5 seconds for one that does
// not stop.
#pragma once

#include "os/os.h"

namespace larder {

struct StoppedThread {
  // Registers as the kernel has them: general ones, then vectors.
  static constexpr size_t kWords = 500;
  int id;
  uint32_t words;
  uintptr_t stack_pointer;
  uintptr_t thread_pointer;
  uint64_t word[kWords];
};

class StoppedWorld {
 public:
  StoppedWorld();
  ~StoppedWorld();
  StoppedWorld(const StoppedWorld&) = delete;
  StoppedWorld& operator=(const StoppedWorld&) = delete;

  enum class Outcome {
    kStopped,
    kRefused,  // ptrace is not allowed here: the others run on
    kSome,     // one or more did not stop
    kNoMemory,
  };
  Outcome outcome() const { return outcome_; }
  // Other than the caller's.
  size_t size() const;
  const StoppedThread& operator[](size_t i) const;

 private:
  struct Tracer;
  static int trace(void* argument);
  Tracer* tracer_ = nullptr;
  size_t mapped_bytes_ = 0;
  int tracer_id_ = 0;
  uint64_t signals_ = 0;  // the caller's mask
  Outcome outcome_ = Outcome::kStopped;
};

}  // namespace larder
