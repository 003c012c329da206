#include "core/fork.h"

#include <pthread.h>

#include "base/policy.h"
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

// fork takes glibc's lock of open files. Threads hold it while they wait for a FILE whose holder
// may be in malloc. So it comes before Larder's locks, like in glibc's own malloc.
extern "C" {
[[gnu::weak]] void _IO_list_lock();
[[gnu::weak]] void _IO_list_unlock();
[[gnu::weak]] void _IO_list_resetlock();
}

namespace larder {

namespace {

// In locking order.
void for_each_lock(void (*visit)(Lock&)) {
  visit(callback_lock());
  registry_for_each_lock(visit);
  central_for_each_lock(visit);
  visit(sample_lock());
  visit(page_heap.lock());
  visit(large_lock());
  visit(meta_lock());
  visit(backing::lock());
}

// Written by the thread that holds the locks for fork.
constinit unsigned nested = 0;  // forks in signal handlers that interrupted a fork
constinit bool all_taken = true;

void before_fork() {
  if (page_heap.lock().held_for_fork()) {
    ++nested;
    return;
  }
  stats::add(stats::kForks, 1);
  if (&_IO_list_lock != nullptr) _IO_list_lock();
  // A signal handler that allocates while locks change hands must not wait for its own thread.
  SlowPath path;
  all_taken = true;
  if (path.entered())
    for_each_lock([](Lock& lock) { lock.before_fork(0); });
  else
    for_each_lock([](Lock& lock) {
      // Once a lock is refused the child cannot use the heap: the others get a single try.
      if (!lock.before_fork(all_taken ? kForkTries : 1)) all_taken = false;
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
    SlowPath path;
    for_each_lock([](Lock& lock) { lock.after_fork_in_parent(); });
  }
  if (&_IO_list_unlock != nullptr) _IO_list_unlock();
}

void after_fork_in_child() {
  // A lock's holder does not exist in the child: what it guards was caught half changed.
  if (!all_taken) torn_by_fork = true;
  nested = 0;
  {
    SlowPath path;
    backing::after_fork_in_child();
    // Another thread may have been recording one. A child does not report leaks.
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
