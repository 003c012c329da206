// fork inside a signal handler that interrupted the allocator, grandchildren, and threads in a
// forked child.
// Usage: fork_signal [FORKS]
//
// A high-resolution timer interrupts loops of malloc and free at arbitrary instructions. Every
// 50th signal, later every second one, forks in the handler; the child allocates and leaves with
// _exit. glibc's own malloc can hang here.

#include <pthread.h>
#include <sys/syscall.h>

#include "support.h"

using namespace alloctest;

namespace {

volatile sig_atomic_t forks_done = 0;
volatile sig_atomic_t signals_seen = 0;
volatile sig_atomic_t signals_per_fork = 50;
size_t forks_wanted = 300;

void use_allocator(uint64_t seed, int rounds) {
  Random random(seed);
  void* blocks[128] = {};
  size_t sizes[128] = {};
  for (int i = 0; i < rounds; ++i) {
    const size_t slot = random.below(128);
    if (blocks[slot] != nullptr) {
      check_pattern(blocks[slot], sizes[slot], sizes[slot], sizes[slot]);
      free(blocks[slot]);
    }
    sizes[slot] = random.below(50) == 0 ? random.below(2 * kMiB) : random.below(3000);
    blocks[slot] = malloc(sizes[slot]);
    CHECK(blocks[slot] != nullptr);
    fill_pattern(blocks[slot], sizes[slot], sizes[slot]);
  }
  for (auto& block : blocks) free(block);
}

void on_timer(int) {
  const int saved_errno = errno;
  signals_seen = signals_seen + 1;
  if (signals_seen % signals_per_fork == 0) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      watchdog();
      use_allocator(static_cast<uint64_t>(signals_seen), 300);
      _exit(0);
    }
    CHECK_MSG(child > 0, "fork in the handler failed");
    int status = 0;
    while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "child of a handler ended with status %#x", status);
    forks_done = forks_done + 1;
  }
  errno = saved_errno;
}

timer_t start_timer() {
  return signal_every(97'000, static_cast<pid_t>(syscall(SYS_gettid)), on_timer);
}

// Only blocks beyond the size classes: nearly every call takes the page heap's lock, so that the
// timer often interrupts taking or releasing it.
void use_locks() {
  void* blocks[8];
  for (int i = 0; i < 50; ++i) {
    for (auto& block : blocks) block = malloc(40 * kKiB);
    for (auto& block : blocks) free(block);
  }
}

void fork_among_locks() {
  signals_per_fork = 2;
  forks_done = 0;
  const timer_t timer = start_timer();
  while (forks_done < static_cast<sig_atomic_t>(forks_wanted * 10)) use_locks();
  timer_delete(timer);
  say("%d forks inside a handler that interrupts lock after lock", static_cast<int>(forks_done));
}

void fork_in_handler(bool with_threads) {
  static std::atomic<bool> stop;
  stop = false;
  pthread_t helpers[4];
  sigset_t timer_signal;
  sigemptyset(&timer_signal);
  sigaddset(&timer_signal, SIGUSR1);
  if (with_threads) {
    for (auto& helper : helpers) {
      CHECK(pthread_create(
                &helper, nullptr,
                [](void*) -> void* {
                  for (uint64_t i = 1; !stop; ++i) use_allocator(i, 500);
                  return nullptr;
                },
                nullptr) == 0);
    }
  }
  forks_done = 0;
  const timer_t timer = start_timer();
  uint64_t rounds = 0;
  while (forks_done < static_cast<sig_atomic_t>(forks_wanted)) use_allocator(++rounds, 400);
  timer_delete(timer);
  stop = true;
  if (with_threads) {
    for (auto& helper : helpers) CHECK(pthread_join(helper, nullptr) == 0);
  }
  say("%d forks inside a handler%s, %d signals", static_cast<int>(forks_done),
      with_threads ? " with 4 more threads" : "", static_cast<int>(signals_seen));
}

// Each generation allocates, forks the next, waits for it, and frees what it inherited.
void generations(int depth) {
  void* inherited[64];
  for (size_t i = 0; i < 64; ++i) {
    inherited[i] = malloc(i * 997);
    fill_pattern(inherited[i], i * 997, i);
  }
  if (depth > 0) in_child("grandchild", [&] { generations(depth - 1); });
  if (depth > 0) {
    in_child("grandchild that frees", [&] {
      for (size_t i = 0; i < 64; ++i) {
        check_pattern(inherited[i], i * 997, i * 997, i);
        free(inherited[i]);
      }
      use_allocator(99, 500);
    });
  }
  for (size_t i = 0; i < 64; ++i) {
    check_pattern(inherited[i], i * 997, i * 997, i);
    free(inherited[i]);
  }
}

void threads_in_child() {
  static std::atomic<bool> stop;
  stop = false;
  pthread_t helpers[6];
  for (auto& helper : helpers) {
    CHECK(pthread_create(
              &helper, nullptr,
              [](void*) -> void* {
                for (uint64_t i = 1; !stop; ++i) use_allocator(i, 500);
                return nullptr;
              },
              nullptr) == 0);
  }
  for (size_t round = 0; round < 1 + forks_wanted / 15; ++round) {
    in_child("threads in a child", [] {
      for (int generation = 0; generation < 3; ++generation) {
        pthread_t threads[12];
        for (auto& thread : threads) {
          CHECK(pthread_create(
                    &thread, nullptr,
                    [](void*) -> void* {
                      use_allocator(3, 1000);
                      return nullptr;
                    },
                    nullptr) == 0);
        }
        use_allocator(5, 500);
        for (auto& thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
      }
    });
  }
  stop = true;
  for (auto& helper : helpers) CHECK(pthread_join(helper, nullptr) == 0);
  say("threads in forked children: fine");
}

}  // namespace

int main(int argc, char** argv) {
  begin("fork_signal");
  forks_wanted = argument(argc, argv, 1, 300);
  generations(6);
  threads_in_child();
  fork_in_handler(false);
  fork_in_handler(true);
  fork_among_locks();
  return 0;
}
