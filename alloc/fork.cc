#include "fork.h"

#include <pthread.h>

#include "central.h"
#include "large.h"
#include "meta.h"
#include "page_heap.h"
#include "registry.h"
#include "remote_word.h"
#include "stats.h"

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
  visit(page_heap.lock());
  visit(large_lock());
  visit(meta_lock());
}

void before_fork() {
  stats::add(stats::kForks, 1);
  if (&_IO_list_lock != nullptr) _IO_list_lock();
  for_each_lock([](Lock& lock) { lock.before_fork(); });
}

void after_fork_in_parent() {
  for_each_lock([](Lock& lock) { lock.after_fork_in_parent(); });
  if (&_IO_list_unlock != nullptr) _IO_list_unlock();
}

void after_fork_in_child() {
  remote_new_generation();
  registry_bury_others();
  for_each_lock([](Lock& lock) { lock.after_fork_in_child(); });
  if (&_IO_list_resetlock != nullptr) _IO_list_resetlock();
}

}  // namespace

void fork_init() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

}  // namespace larder
