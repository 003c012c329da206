#include "monitor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

#include "worker.h"

namespace torture {

namespace {

// Does not allocate, but interrupts any code, takes some time, and lets other threads run
// meanwhile.
void interrupt(int) {
  int saved = errno;
  uint64_t count = totals.signals.fetch_add(1, std::memory_order_relaxed);
  unsigned char burnt[512];
  memset(burnt, int(count), sizeof burnt);
  asm volatile("" : : "r"(burnt) : "memory");
  if (count % 4 == 0) sched_yield();
  errno = saved;
}

[[maybe_unused]] void crash(int number, siginfo_t* info, void*) {
  const Where* at = where;
  if (number == SIGABRT)
    fault(Fault::kAborted, at, nullptr, nullptr, "the allocator ends the process (SIGABRT)");
  fault(Fault::kCrash, at, nullptr, nullptr, "SIG%s at address %p", sigabbrev_np(number),
        info->si_addr);
}

struct Life {
  uint64_t calls;
  uint64_t since_ms;
  int thread;
};

constexpr unsigned kMostWheres = kMaxThreads * (1 + kBrood) + kMostCrowd + 1;
Life lives[kMostWheres];

void look_for_hangs(uint64_t now) {
  for (unsigned i = 0; const Where* at = where_of(i); ++i) {
    Life& life = lives[i];
    uint64_t calls = at->calls.load(std::memory_order_relaxed);
    int thread = at->thread.load(std::memory_order_relaxed);
    if (thread == 0 || calls != life.calls || thread != life.thread) {
      life = {calls, now, thread};
    } else if (now - life.since_ms > settings.hang_seconds * 1000) {
      fault(Fault::kHang, at, nullptr, nullptr, "no progress for %u s in %s", settings.hang_seconds,
            at->call.load());
    }
  }
}

void* monitor_thread(void*) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  Random random(settings.seed);
  uint64_t start = now_ms();
  uint64_t shown = start;
  unsigned count = 0;
  while (where_of(count) != nullptr) ++count;
  for (;;) {
    sleep_us(500);
    if (settings.signals) {
      const Where* at = where_of(unsigned(random.below(count)));
      int thread = at->thread.load(std::memory_order_relaxed);
      // The thread may have ended: then this fails, or signals another thread of ours.
      if (thread != 0) syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
    }
    uint64_t now = now_ms();
    if (now - shown < 500) continue;
    shown = now;
    if (settings.progress) print_progress(double(now - start) / 1000);
    look_for_hangs(now);
  }
  return nullptr;
}

}  // namespace

void install_handlers() {
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = interrupt;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  action.sa_sigaction = crash;
  action.sa_flags = int(SA_ONSTACK | SA_SIGINFO | SA_RESETHAND);
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(number, &action, nullptr);
#endif
}

void start_monitor() {
  pthread_t thread;
  int error = pthread_create(&thread, nullptr, monitor_thread, nullptr);
  if (error != 0) give_up("cannot start the monitor's thread (errno %d)", error);
  pthread_detach(thread);
}

}  // namespace torture
