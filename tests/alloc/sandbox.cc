// Usage: sandbox [STEPS]    of each thread
//
// Inside a seccomp sandbox that allows read, write, exit, exit_group, futex, mmap, munmap,
// madvise(MADV_DONTNEED) and rt_sigreturn only, the allocator goes on.
//
// Two sandboxes: one returns EPERM for all other calls, and everything must work; one kills the
// process, and malloc, calloc, free and small realloc must need no other call. Both cover the main
// thread and threads that were created before, including their first allocations.

#include <pthread.h>
#include <semaphore.h>

#include <initializer_list>

#include "seccomp_filter.h"

using namespace alloctest;

namespace {

constexpr size_t kThreads = 3;

sem_t started, sandboxed;
bool may_realloc_large = false;
size_t steps = 0;

size_t pick_size(Random& random) {
  const size_t kind = random.below(2000);
  if (kind == 0) return random.below(16 * kMiB);
  if (kind < 20) return random.below(4 * kMiB);
  if (kind < 200) return random.below(200 * kKiB);
  return random.below(2000);
}

void use_allocator(uint64_t seed) {
  Random random(seed);
  static constexpr size_t kBlocks = 300;
  struct {
    void* block;
    size_t size;
  } table[kBlocks] = {};
  for (size_t i = 0; i < steps; ++i) {
    auto& entry = table[random.below(kBlocks)];
    if (entry.block != nullptr) {
      check_pattern(entry.block, entry.size, entry.size, entry.size);
      const size_t size = pick_size(random) + 1;
      const bool large = size > 30 * kKiB || entry.size > 30 * kKiB;
      if (random.below(4) == 0 && (may_realloc_large || !large)) {
        entry.block = realloc(entry.block, size);
        CHECK(entry.block != nullptr);
        check_pattern(entry.block, entry.size, size, entry.size);
      }
      free(entry.block);
    }
    entry.size = pick_size(random);
    if (random.below(3) == 0) {
      entry.block = calloc(1, entry.size);
      CHECK(entry.block != nullptr);
      check_zero(entry.block, entry.size);
    } else {
      entry.block = malloc(entry.size);
      CHECK(entry.block != nullptr);
    }
    fill_pattern(entry.block, entry.size, entry.size);
  }
  for (auto& entry : table) free(entry.block);
}

// Leaves pages within slabs that malloc_trim can purge.
void trim_between_objects() {
  static constexpr size_t kObjects = 4096, kSize = 2000;
  static void* objects[kObjects];
  for (void*& p : objects) CHECK((p = malloc(kSize)) != nullptr);
  for (size_t i = 0; i < kObjects; ++i)
    if (i % 8 != 0) free(objects[i]);
  malloc_trim(0);
  for (size_t i = 0; i < kObjects; i += 8) free(objects[i]);
}

void* run_thread(void* argument) {
  sem_post(&started);
  while (sem_wait(&sandboxed) != 0) {
  }
  use_allocator(reinterpret_cast<uintptr_t>(argument) + 10);
  return nullptr;
}

void enter(uint32_t otherwise) {
  SeccompFilter filter;
  for (long number : {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_futex, SYS_mmap,
                      SYS_munmap, SYS_rt_sigreturn}) {
    filter.rule(number, SECCOMP_RET_ALLOW);
  }
  const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
  filter.rule_with_argument(SYS_madvise, 2, MADV_DONTNEED, SECCOMP_RET_ALLOW, refuse);
  // glibc's own needs: a thread that ends masks its signals and drops its stack's pages.
  filter.rule(SYS_rt_sigprocmask, SECCOMP_RET_ALLOW);
  filter.rule(SYS_sched_yield, SECCOMP_RET_ALLOW);
  // libc's sbrk takes an error number for the new break: no sandbox can refuse brk that way.
  if (otherwise != SECCOMP_RET_KILL_PROCESS) filter.rule(SYS_brk, SECCOMP_RET_ALLOW);
  filter.install(otherwise, true);
}

void run_sandboxed(const char* name, uint32_t otherwise, bool warm) {
  in_child(name, [=] {
    CHECK(sem_init(&started, 0, 0) == 0 && sem_init(&sandboxed, 0, 0) == 0);
    pthread_t threads[kThreads];
    for (size_t i = 0; i < kThreads; ++i) {
      CHECK(pthread_create(&threads[i], nullptr, run_thread, reinterpret_cast<void*>(i)) == 0);
    }
    // A thread's first steps are libc's, and take more calls than the sandbox allows.
    for (size_t i = 0; i < kThreads; ++i) {
      while (sem_wait(&started) != 0) {
      }
    }
    if (warm) use_allocator(1);
    enter(otherwise);
    for (size_t i = 0; i < kThreads; ++i) sem_post(&sandboxed);
    for (uint64_t seed = 2; seed < 5; ++seed) use_allocator(seed);
    trim_between_objects();
    for (auto thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
    say("%s: all requests served", name);
  });
}

}  // namespace

int main(int argc, char** argv) {
  begin("sandbox");
  steps = argument(argc, argv, 1, 20000);
  may_realloc_large = true;
  run_sandboxed("all else EPERM", SECCOMP_RET_ERRNO | EPERM, false);
  run_sandboxed("all else ENOSYS", SECCOMP_RET_ERRNO | ENOSYS, true);
  may_realloc_large = false;
  run_sandboxed("all else kills", SECCOMP_RET_KILL_PROCESS, false);
  run_sandboxed("all else kills, warm", SECCOMP_RET_KILL_PROCESS, true);
  return 0;
}
