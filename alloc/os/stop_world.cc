#include "os/stop_world.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include <atomic>

#include "base/text.h"
#include "os/raw_call.h"

// <sys/ptrace.h> and <linux/ptrace.h> conflict.
#ifndef __WALL
#define __WALL 0x40000000
#endif

namespace larder {

namespace {

long call(long nr, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  return syscall6(nr, a, b, c, d, e, 0);
}

long ptrace(long request, int id, long address, const void* data) {
  return call(SYS_ptrace, request, id, address, reinterpret_cast<long>(data));
}

void wait_while(std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) == value)
    call(SYS_futex, reinterpret_cast<long>(&word), FUTEX_WAIT, long(value));
}

void set(std::atomic<uint32_t>& word, uint32_t value) {
  word.store(value, std::memory_order_release);
  call(SYS_futex, reinterpret_cast<long>(&word), FUTEX_WAKE, 1);
}

// The kernel's layout of getdents64's result.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
  char name[1];
};

// A path with a number in it: "/proc/" number "/task"...
struct TaskPath {
  char text[64];
  TaskPath(int process, int thread, const char* rest) {
    TextBuffer path(text, sizeof text);
    path.put("/proc/").put_number(unsigned(process)).put("/task");
    if (thread != 0) path.put("/").put_number(unsigned(thread));
    path.put(rest);
  }
};

// Calls visit(id) for each thread of the process. False: the list cannot be read.
template <typename Visit>
bool for_each_task(int process, Visit visit) {
  TaskPath path(process, 0, "");
  auto directory = int(call(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path.text),
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory < 0) return false;
  alignas(8) char buffer[2048] = {};
  for (long n; (n = call(SYS_getdents64, directory, reinterpret_cast<long>(buffer),
                         long(sizeof buffer))) > 0;) {
    for (long at = 0; at < n;) {
      auto* entry = reinterpret_cast<DirectoryEntry*>(buffer + at);
      at += entry->size;
      int id = 0;
      for (const char* c = entry->name; *c >= '0' && *c <= '9'; ++c) id = id * 10 + (*c - '0');
      if (id != 0) visit(id);
    }
  }
  os::close(directory);
  return true;
}

// Whether the thread has ended, and waits for the others to end.
bool has_ended(int process, int id) {
  TaskPath path(process, id, "/stat");
  int file = os::open(path.text);
  if (file < 0) return true;
  char text[512];
  long n = os::read(file, text, sizeof text);
  os::close(file);
  // After the name, which may contain anything.
  for (long i = n - 3; i > 0; --i)
    if (text[i] == ')') return text[i + 2] == 'Z' || text[i + 2] == 'X';
  return false;
}

// Whether only ancestors and named processes may trace (Yama).
bool may_trace_if_named() {
  int file = os::open("/proc/sys/kernel/yama/ptrace_scope");
  char scope = '0';
  if (file < 0) return false;
  bool known = os::read(file, &scope, 1) == 1;
  os::close(file);
  return known && scope == '1';
}

}  // namespace

struct StoppedWorld::Tracer {
  int process, caller;
  size_t room, count;
  bool refused, some_left;
  std::atomic<uint32_t> may_begin, begun, may_end;
  // `room` entries and the tracer's stack follow.

  struct Entry {
    StoppedThread thread;
    long signal;  // to deliver on resumption
    bool stopped;
  };
  static_assert(sizeof(Entry) <= kStoppedThreadBytes, "a thread's registers fit");

  Entry* entry(size_t i) {
    return reinterpret_cast<Entry*>(reinterpret_cast<char*>(this) + kStoppedThreadBytes * (i + 1));
  }
  bool known(int id) {
    for (size_t i = 0; i < count; ++i)
      if (entry(i)->thread.id == id) return true;
    return false;
  }

  // Seizes and interrupts another thread.
  void seize(int id) {
    if (count == room) {
      some_left = true;
      return;
    }
    Entry* e = entry(count++);
    e->thread.id = id;
    e->stopped = false;
    long error = ptrace(PTRACE_SEIZE, id, 0, nullptr);
    if (is_error(error)) {
      if (error == -ESRCH || has_ended(process, id)) return;
      (error == -EPERM || error == -ENOSYS || error == -EACCES ? refused : some_left) = true;
      return;
    }
    ptrace(PTRACE_INTERRUPT, id, 0, nullptr);
    await_stop(e);
  }

  void await_stop(Entry* e) {
    int status = 0;
    for (int i = 0; i < kStopTries; ++i) {
      long id = call(SYS_wait4, e->thread.id, reinterpret_cast<long>(&status), __WALL | WNOHANG, 0);
      if (id == e->thread.id) {
        if (!WIFSTOPPED(status)) return;  // it has ended
        // Stopped on the way to a signal, or by our interrupt, which delivers nothing.
        e->signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
        e->stopped = true;
        read_registers(&e->thread);
        begin_call_anew(&e->thread);
        return;
      }
      if (is_error(id) && id != -EINTR) return;
      timespec pause = {0, i < kShortStopTries ? kShortStopPauseNs : kStopPauseNs};
      call(SYS_nanosleep, reinterpret_cast<long>(&pause), 0);
    }
    some_left = true;
  }

  // Some calls (epoll_wait, semop, sigtimedwait) fail with EINTR after any stop. The kernel
  // restarts other calls if no handler runs, and this function does so for these, also when a
  // signal is pending, which may be one that is ignored. Not close: its file number may be another
  // file's by now.
  static void begin_call_anew(StoppedThread* t) {
#if defined(__x86_64__)
    constexpr long kRestartNoHandler = 514;  // ERESTARTNOHAND
    auto* general = reinterpret_cast<user_regs_struct*>(t->word);
    auto number = long(general->orig_rax);
    if (number < 0 || number == SYS_close || long(general->rax) != -EINTR) return;
    general->rax = uint64_t(-kRestartNoHandler);
    iovec vector = {general, sizeof *general};
    ptrace(PTRACE_SETREGSET, t->id, NT_PRSTATUS, &vector);
#else
    (void)t;
#endif
  }

  static size_t read_set(int id, long which, uint64_t* to, size_t words) {
    iovec vector = {to, words * sizeof *to};
    if (is_error(ptrace(PTRACE_GETREGSET, id, which, &vector))) return 0;
    return vector.iov_len / sizeof *to;
  }

  static void read_registers(StoppedThread* t) {
    size_t words = read_set(t->id, NT_PRSTATUS, t->word, kRegisterWords);
#if defined(__x86_64__)
    auto* general = reinterpret_cast<user_regs_struct*>(t->word);
    t->stack_pointer = general->rsp;
    t->thread_pointer = general->fs_base;
    long vectors = NT_X86_XSTATE;
#else
    auto* general = reinterpret_cast<user_regs_struct*>(t->word);
    t->stack_pointer = general->sp;
    uint64_t tls = 0;
    read_set(t->id, NT_ARM_TLS, &tls, 1);
    t->thread_pointer = tls;
    long vectors = NT_PRFPREG;
#endif
    words += read_set(t->id, vectors, t->word + words, kRegisterWords - words);
    t->words = uint32_t(words);
  }

  void resume_all() {
    for (size_t i = 0; i < count; ++i)
      if (entry(i)->stopped)
        call(SYS_ptrace, PTRACE_DETACH, entry(i)->thread.id, 0, entry(i)->signal);
  }
};

// In the tracer, which shares the caller's memory and thread pointer: system calls only.
int StoppedWorld::trace(void* argument) {
  auto* t = static_cast<Tracer*>(argument);
  call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  wait_while(t->may_begin, 0);
  // Repeats until a pass finds no new thread: a stopped thread starts none.
  for (bool more = true; more && !t->refused;) {
    more = false;
    bool listed = for_each_task(t->process, [&](int id) {
      if (id == t->caller || t->refused || t->known(id)) return;
      more = t->count < t->room;
      t->seize(id);
    });
    if (!listed) t->refused = true;
  }
  set(t->begun, 1);
  wait_while(t->may_end, 0);
  t->resume_all();
  return 0;
}

StoppedWorld::StoppedWorld() {
  int process = os::process_id();
  size_t others = 0;
  auto caller = int(call(SYS_gettid));
  if (!for_each_task(process, [&](int id) { others += id != caller ? 1 : 0; })) {
    outcome_ = Outcome::kRefused;
    return;
  }
  // No other thread can start one.
  if (others == 0) return;
  size_t room = others + kSpareThreads;
  mapped_bytes_ = (room + 1) * kStoppedThreadBytes + kTracerStackBytes;
  mapped_bytes_ = round_up(mapped_bytes_, os::page_size());
  tracer_ = static_cast<Tracer*>(os::map(mapped_bytes_));
  if (tracer_ == nullptr) {
    outcome_ = Outcome::kNoMemory;
    return;
  }
  tracer_->process = process;
  tracer_->caller = caller;
  tracer_->room = room;
  uint64_t all = ~uint64_t{0};
  call(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&all),
       reinterpret_cast<long>(&signals_), sizeof all);
  int saved = errno;
  tracer_id_ = clone(trace, reinterpret_cast<char*>(tracer_) + mapped_bytes_,
                     CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, tracer_);
  errno = saved;
  if (tracer_id_ < 0) {
    outcome_ = Outcome::kRefused;
    return;
  }
  // Only then: the program's own PR_SET_PTRACER cannot be read, and is lost.
  if (may_trace_if_named()) call(SYS_prctl, PR_SET_PTRACER, tracer_id_);
  set(tracer_->may_begin, 1);
  // The tracer may be killed meanwhile.
  for (timespec pause = {0, kTracerLookNs}; tracer_->begun.load(std::memory_order_acquire) == 0;) {
    call(SYS_futex, reinterpret_cast<long>(&tracer_->begun), FUTEX_WAIT, 0,
         reinterpret_cast<long>(&pause));
    if (tracer_->begun.load(std::memory_order_acquire) == 0 &&
        call(SYS_wait4, tracer_id_, 0, __WALL | WNOHANG) == tracer_id_) {
      tracer_id_ = -1;
      outcome_ = Outcome::kRefused;
      return;
    }
  }
  if (tracer_->refused)
    outcome_ = Outcome::kRefused;
  else if (tracer_->some_left)
    outcome_ = Outcome::kSome;
}

StoppedWorld::~StoppedWorld() {
  if (tracer_ == nullptr) return;
  if (tracer_id_ > 0) {
    set(tracer_->may_end, 1);
    while (call(SYS_wait4, tracer_id_, 0, __WALL) == -EINTR) {
    }
    if (may_trace_if_named()) call(SYS_prctl, PR_SET_PTRACER, 0);
  }
  call(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<long>(&signals_), 0, sizeof signals_);
  os::unmap(tracer_, mapped_bytes_);
}

size_t StoppedWorld::size() const {
  return tracer_ == nullptr || outcome_ == Outcome::kRefused ? 0 : tracer_->count;
}

const StoppedThread& StoppedWorld::operator[](size_t i) const { return tracer_->entry(i)->thread; }

}  // namespace larder
