#include "core/fork.h"

#include <pthread.h>

#include "base/stats.h"
#include "core/central.h"
#include "core/large.h"
#include "core/meta.h"
#include "core/page_heap.h"
#include "core/pressure.h"
#include "core/registry.h"
#include "core/remote_word.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "os/backing.h"

// glibc's list of open files has a lock that fork takes, and that threads hold while they wait for
// a FILE whose holder may be in malloc. It must come before ours; glibc's own malloc does it so
// too.
extern "C" {
[[gnu::weak]] void _IO_list_lock();
[[gnu::weak]] void _IO_list_unlock();
[[gnu::weak]] void _IO_list_resetlock();
}

namespace larder {

namespace {

// In the order in which one thread may hold several of them.
void for_each_lock(void (*visit)(Lock&)) {
  registry_for_each_lock(visit);
  central_for_each_lock(visit);
  visit(sample_lock());
  visit(page_heap.lock());
  visit(large_lock());
  visit(meta_lock());
  visit(backing::lock());
}

// Of the thread that holds the locks for fork, and written by it alone.
constinit unsigned nested = 0;  // forks in signal handlers that came in the midst of a fork
constinit bool all_taken = true;

// A signal handler that allocates while locks change hands must not wait for its own thread.
class Busy {
 public:
  Busy() : outer_(thread_state.busy) { thread_state.busy = true; }
  ~Busy() { thread_state.busy = outer_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  bool interrupted() const { return outer_; }

 private:
  bool outer_;
};

void before_fork() {
  if (page_heap.lock().held_for_fork()) {
    ++nested;
    return;
  }
  stats::add(stats::kForks, 1);
  if (&_IO_list_lock != nullptr) _IO_list_lock();
  Busy busy;
  all_taken = true;
  if (!busy.interrupted())
    for_each_lock([](Lock& lock) { lock.before_fork(0); });
  else
    for_each_lock([](Lock& lock) {
      // Once one is refused the child is lost to the heap anyway: the others get a single try.
      if (!lock.before_fork(all_taken ? 50 : 1)) all_taken = false;
    });
  backing::before_fork();
}

void after_fork_in_parent() {
  if (nested != 0) {
    --nested;
    return;
  }
  backing::after_fork_in_parent();
  {
    Busy busy;
    for_each_lock([](Lock& lock) { lock.after_fork_in_parent(); });
  }
  if (&_IO_list_unlock != nullptr) _IO_list_unlock();
}

void after_fork_in_child() {
  // Some lock's holder is not here: what it guards was caught in mid-change.
  if (!all_taken) torn_by_fork = true;
  nested = 0;
  {
    Busy busy;
    backing::after_fork_in_child();
    // Another thread may have been in the midst of writing one down. A child does not report leaks.
    os::forget_own_mappings();
    remote_new_generation();
    registry_abandon_others();
    forget_callback_threads();
    for_each_lock([](Lock& lock) { lock.after_fork_in_child(); });
  }
  if (&_IO_list_resetlock != nullptr) _IO_list_resetlock();
}

}  // namespace

void fork_init() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

}  // namespace larder
