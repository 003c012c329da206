// A futex lock that knows its holder.
//
// Unlike pthread_mutex it works before libc is ready, can be reset in fork's child, and lets a
// signal handler see that the thread it interrupted holds the lock. A waiter spins briefly, then
// sleeps. A holder never calls out, allocates or blocks. Clang checks what a lock guards
// (base/guarded.h), except where all locks are held at once, for fork or a heap walk.
#pragma once

#include <atomic>

#include "base/guarded.h"
#include "base/single_threaded.h"
#include "os/os.h"

namespace larder {

// Identifies a thread: 31 bits, never 0, the same in fork's child as in the forking thread.
uint32_t thread_id();

// Unchecked within: clang checks the callers. What is for fork holds the lock from one call to the
// next.
class LARDER_CAPABILITY Lock {
 public:
  void acquire() LARDER_ACQUIRE() LARDER_UNCHECKED {
    uint32_t expected = kFree;
    if (single_threaded() && word_.load(std::memory_order_relaxed) == kFree)
      return word_.store(thread_id(), std::memory_order_relaxed);
    if (!word_.compare_exchange_strong(expected, thread_id(), std::memory_order_acquire))
      acquire_slow();
  }
  void release() LARDER_RELEASE() LARDER_UNCHECKED {
    if (unlikely(recursion_ != 0)) {
      --recursion_;
      return;
    }
    if (single_threaded()) return word_.store(kFree, std::memory_order_relaxed);
    if ((word_.exchange(kFree, std::memory_order_release) & kContended) != 0) wake();
  }
  bool held_by_me() const {
    return (word_.load(std::memory_order_relaxed) & ~kContended) == thread_id();
  }

  // fork holds the lock, so that what it guards is whole in the child. A lock that the forking
  // thread already held (fork in a signal handler) stays with the interrupted code. Until
  // after_fork the thread may lock again: other fork handlers allocate. tries == 0: waits.
  // Otherwise gives up after so many tries, because the handler may have interrupted a slow path
  // that the holder waits for: false.
  bool before_fork(unsigned tries) LARDER_UNCHECKED {
    if (held_by_me()) return true;
    if (tries == 0)
      acquire();
    else if (!try_acquire(tries))
      return false;
    for_fork_ = true;
    return true;
  }
  void after_fork_in_parent() LARDER_UNCHECKED {
    if (!held_for_fork()) return;
    for_fork_ = false;
    release();
  }
  void after_fork_in_child() {
    if (held_by_me() && !for_fork_) return;
    for_fork_ = false;
    recursion_ = 0;
    word_.store(kFree, std::memory_order_release);
  }
  bool held_for_fork() const { return held_by_me() && for_fork_; }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kContended = uint32_t{1} << 31;
  LARDER_SLOW void acquire_slow();
  LARDER_SLOW bool try_acquire(unsigned tries);
  LARDER_SLOW void wake();

  // The holder's id; 0: free. One word, so that a signal handler that forks never sees one without
  // the other. kContended: a thread may sleep. Relaxed where only the thread itself has written the
  // value that counts, where there is one thread, and where a compare-and-swap decides.
  std::atomic<uint32_t> word_{kFree};
  uint32_t recursion_ = 0;  // written by the holder
  bool for_fork_ = false;
};

class LARDER_SCOPED LockGuard {
 public:
  explicit LockGuard(Lock& lock) LARDER_ACQUIRE(lock) : lock_(lock) { lock_.acquire(); }
  ~LockGuard() LARDER_RELEASE() { lock_.release(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace larder
