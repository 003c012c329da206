#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "base/layout.h"
#include "base/policy.h"
#include "base/stats.h"
#include "base/text.h"
#include "os/os.h"
#include "os/raw_call.h"

// glibc 2.35 and later publish the offset of the thread's rseq area.
extern "C" {
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
}

namespace larder {

namespace {

long call(long nr, const void* a, size_t b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  return syscall6(nr, reinterpret_cast<long>(a), long(b), c, d, e, f);
}

void count_mapped(size_t more_bytes) {
  stats::add(stats::kMappedBytes, int64_t(more_bytes));
  stats::add(stats::kMappedTotalBytes, int64_t(more_bytes));
}

constinit thread_local bool holds_own = false;

// Mappings made here, by address, neighbours merged. Recorded until forget_own_mappings(), in a
// table that most processes never touch.
struct OwnMappings {
  // Not a Lock, which is above this file: a waiter gives up, because the holder may be the code
  // that this signal handler interrupted. In fork's child the table is not used.
  std::atomic<bool> busy{false};
  bool wanted = true, complete = true;
  size_t count = 0, room = sizeof first / sizeof first[0];
  os::Range* ranges = first;
  os::Range first[kFirstOwnMappings] = {};

  bool enter() {
    if (holds_own) return true;
    for (int i = 0; busy.exchange(true, std::memory_order_acquire); ++i) {
      if (i == kOwnTries) return complete = false;
      i < kOwnYields ? os::yield() : os::sleep_ms(1);
    }
    return true;
  }
  void leave() {
    if (!holds_own) busy.store(false, std::memory_order_release);
  }

  // REQUIRES: entered. The first range that ends after `at`.
  size_t find(uintptr_t at) const {
    size_t low = 0, high = count;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (ranges[middle].end < at)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  void move(size_t from, size_t to) {
    memmove(&ranges[to], &ranges[from], (count - from) * sizeof(os::Range));
    count = count + to - from;
  }
  bool make_room() {
    if (count < room) return true;
    long more = syscall6(SYS_mmap, 0, long(room * 2 * sizeof(os::Range)), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is_error(more)) return complete = false;
    os::Range* before = ranges;
    ranges = reinterpret_cast<os::Range*>(more);
    memcpy(ranges, before, count * sizeof(os::Range));
    if (before != first)
      syscall6(SYS_munmap, long(before), long(room * sizeof(os::Range)), 0, 0, 0, 0);
    room *= 2;
    return true;
  }
  void add(uintptr_t begin, uintptr_t end) {
    if (!wanted || !enter()) return;
    size_t i = find(begin), last = i;
    while (last < count && ranges[last].begin <= end) ++last;
    if (last > i) {
      if (ranges[i].begin < begin) begin = ranges[i].begin;
      if (ranges[last - 1].end > end) end = ranges[last - 1].end;
      move(last, i + 1);
      ranges[i] = {begin, end};
    } else if (make_room()) {
      move(i, i + 1);
      ranges[i] = {begin, end};
    }
    leave();
  }
  void remove(uintptr_t begin, uintptr_t end) {
    if (!wanted || !enter()) return;
    for (size_t i = find(begin + 1); i < count && ranges[i].begin < end;) {
      os::Range range = ranges[i];
      if (range.begin < begin && range.end > end) {
        if (make_room()) {
          move(i, i + 1);
          ranges[i].end = begin;
          ranges[i + 1].begin = end;
        }
        break;
      }
      if (range.begin < begin)
        ranges[i++].end = begin;
      else if (range.end > end)
        ranges[i++].begin = end;
      else
        move(i + 1, i);
    }
    leave();
  }
};
constinit OwnMappings own;

void add_own(const void* addr, size_t bytes) { own.add(uintptr_t(addr), uintptr_t(addr) + bytes); }
void remove_own(const void* addr, size_t bytes) {
  own.remove(uintptr_t(addr), uintptr_t(addr) + bytes);
}

struct Breaking {
  std::atomic<bool> busy{false};  // no Lock either: a waiter gives up
  bool when_refused = false;      // written once, before there are threads
  // Bounds of what it returned. Relaxed: such an address is passed on after they were set.
  std::atomic<uintptr_t> low{UINTPTR_MAX}, high{0};
};
constinit Breaking breaking;

// The kernel orders an unmap before a map at the same address. ThreadSanitizer does not see these
// calls, and would report a race.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
char address_space;
void before_unmap() { __tsan_release(&address_space); }
void after_map() { __tsan_acquire(&address_space); }
#else
void before_unmap() {}
void after_map() {}
#endif

}  // namespace

constinit const OwnLayout own_layout = {.table = &own,
                                        .table_bytes = sizeof own,
                                        .ranges = offsetof(OwnMappings, ranges),
                                        .room = offsetof(OwnMappings, room)};

void fail(const char* what, const char* file, int line) {
  char text[256];
  TextBuffer out(text, sizeof text);
  out.put("larder: internal check failed: ").put(what).put(" at ").put(file).put(":");
  out.put_number(unsigned(line)).put("\n");
  os::write_stderr(text, out.length());
  abort();
}

namespace os {

size_t page_size() {
  static std::atomic<size_t> cached{0};  // relaxed: every thread computes the same
  size_t size = cached.load(std::memory_order_relaxed);
  if (unlikely(size == 0)) {
    size = getauxval(AT_PAGESZ);
    if (!is_pow2(size)) size = 4096;
    cached.store(size, std::memory_order_relaxed);
  }
  return size;
}

void* map(size_t size_bytes) {
  stats::add(stats::kMmapCalls, 1);
  long ret = call(SYS_mmap, nullptr, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (is_error(ret)) return breaking.when_refused ? grow_break(size_bytes, page_size()) : nullptr;
  after_map();
  count_mapped(size_bytes);
  add_own(reinterpret_cast<void*>(ret), size_bytes);
  return reinterpret_cast<void*>(ret);
}

void* map_aligned(size_t size_bytes, size_t align) {
  void* first = map(size_bytes);
  if (first == nullptr || (uintptr_t(first) & (align - 1)) == 0) return first;
  unmap(first, size_bytes);
  size_t extra = align - page_size();
  if (size_bytes > kMaxSize - extra) return nullptr;
  char* wide = static_cast<char*>(map(size_bytes + extra));
  if (wide == nullptr) return nullptr;
  char* base = reinterpret_cast<char*>(round_up(uintptr_t(wide), align));
  size_t before = size_t(base - wide);
  if (before != 0) unmap(wide, before);
  if (extra != before) unmap(base + size_bytes, extra - before);
  return base;
}

bool unmap(void* addr, size_t size_bytes) {
  stats::add(stats::kMunmapCalls, 1);
  before_unmap();
  // First: another thread may map the range as soon as it is unmapped.
  remove_own(addr, size_bytes);
  if (is_error(call(SYS_munmap, addr, size_bytes))) {
    add_own(addr, size_bytes);
    return false;
  }
  stats::add(stats::kMappedBytes, -int64_t(size_bytes));
  return true;
}

Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes) {
  stats::add(stats::kMremapCalls, 1);
  char* kept_end = static_cast<char*>(addr) + new_bytes;
  if (new_bytes < old_bytes) remove_own(kept_end, old_bytes - new_bytes);
  long ret = call(SYS_mremap, addr, old_bytes, long(new_bytes), 0);
  after_map();
  if (is_error(ret) && new_bytes < old_bytes) add_own(kept_end, old_bytes - new_bytes);
  if (is_error(ret)) return ret == -ENOMEM ? Resized::kNoRoom : Resized::kRefused;
  stats::add(stats::kMappedBytes, int64_t(new_bytes) - int64_t(old_bytes));
  if (new_bytes > old_bytes) add_own(addr, new_bytes);
  if (new_bytes > old_bytes) stats::add(stats::kMappedTotalBytes, int64_t(new_bytes - old_bytes));
  return Resized::kDone;
}

bool move_pages(void* addr, size_t old_bytes, void* target, size_t new_bytes) {
  stats::add(stats::kMremapCalls, 1);
  before_unmap();
  remove_own(addr, old_bytes);
  long ret = call(SYS_mremap, addr, old_bytes, long(new_bytes), MREMAP_MAYMOVE | MREMAP_FIXED,
                  reinterpret_cast<long>(target));
  if (is_error(ret)) {
    add_own(addr, old_bytes);
    return false;
  }
  // `target` was counted when it was mapped; `addr` is unmapped.
  stats::add(stats::kMappedBytes, -int64_t(old_bytes));
  return true;
}

bool discard(void* addr, size_t size_bytes) {
  stats::add(stats::kMadviseCalls, 1);
  if (is_error(call(SYS_madvise, addr, size_bytes, MADV_DONTNEED))) return false;
  stats::add(stats::kPurgedBytes, int64_t(size_bytes));
  return true;
}

bool ask_for_huge_pages(void* addr, size_t size_bytes) {
  stats::add(stats::kMadviseCalls, 1);
  return !is_error(call(SYS_madvise, addr, size_bytes, MADV_HUGEPAGE));
}

bool forbid_huge_pages(void* addr, size_t size_bytes) {
  stats::add(stats::kMadviseCalls, 1);
  return !is_error(call(SYS_madvise, addr, size_bytes, MADV_NOHUGEPAGE));
}

void* reserve(size_t size_bytes) {
  stats::add(stats::kMmapCalls, 1);
  long ret = call(SYS_mmap, nullptr, size_bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (is_error(ret)) return nullptr;
  after_map();
  return reinterpret_cast<void*>(ret);
}

// By mmap, which a sandbox allows, and not by mprotect.
bool commit(void* addr, size_t size_bytes) {
  stats::add(stats::kMmapCalls, 1);
  if (is_error(call(SYS_mmap, addr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)))
    return false;
  count_mapped(size_bytes);
  return true;
}

bool decommit(void* addr, size_t size_bytes) {
  stats::add(stats::kMmapCalls, 1);
  if (is_error(call(SYS_mmap, addr, size_bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)))
    return false;
  stats::add(stats::kMappedBytes, -int64_t(size_bytes));
  return true;
}

bool resident(const void* addr, size_t size_bytes, unsigned char* pages) {
  return !is_error(
      call(SYS_mincore, const_cast<void*>(addr), size_bytes, reinterpret_cast<long>(pages)));
}

Populated populate(void* addr, size_t size_bytes, bool to_write) {
  constexpr long kPopulateRead = 22, kPopulateWrite = 23;  // Linux 5.14
  long ret;
  do ret = call(SYS_madvise, addr, size_bytes, to_write ? kPopulateWrite : kPopulateRead);
  while (ret == -EINTR || ret == -EAGAIN);
  if (ret == -EINVAL) return Populated::kUnknown;
  return is_error(ret) ? Populated::kNo : Populated::kYes;
}

bool punch(void* addr, size_t size_bytes) {
  stats::add(stats::kMadviseCalls, 1);
  if (is_error(call(SYS_madvise, addr, size_bytes, MADV_REMOVE))) return false;
  stats::add(stats::kPurgedBytes, int64_t(size_bytes));
  return true;
}

void* grow_break(size_t size_bytes, size_t align) {
  // libc caches the break, so it must be moved by libc's sbrk, which takes no lock.
  for (int i = 0; breaking.busy.exchange(true, std::memory_order_acquire); ++i) {
    if (i == kBreakTries) return nullptr;
    yield();
  }
  int saved = errno;
  auto now = uintptr_t(sbrk(0));
  size_t bytes = round_up(now, align) - now + size_bytes;
  void* got = bytes <= kMaxSize ? sbrk(intptr_t(bytes)) : reinterpret_cast<void*>(-1);
  errno = saved;
  uintptr_t base = round_up(uintptr_t(got), align);
  bool fits = got != reinterpret_cast<void*>(-1) && base + size_bytes <= uintptr_t(got) + bytes;
  if (fits) {
    if (base < breaking.low) breaking.low = base;
    if (base + size_bytes > breaking.high) breaking.high = base + size_bytes;
    count_mapped(size_bytes);
    add_own(reinterpret_cast<void*>(base), size_bytes);
  }
  breaking.busy.store(false, std::memory_order_release);
  return fits ? reinterpret_cast<void*>(base) : nullptr;
}

bool from_break(const void* addr) {
  auto p = uintptr_t(addr);
  return p >= breaking.low.load(std::memory_order_relaxed) &&
         p < breaking.high.load(std::memory_order_relaxed);
}

void use_break_when_refused() { breaking.when_refused = true; }

void forget_own_mappings() { own.wanted = false; }

void lock_own_mappings() {
  own.enter();
  holds_own = true;
}
void unlock_own_mappings() {
  holds_own = false;
  own.leave();
}

bool is_own(uintptr_t address, uintptr_t* until) {
  size_t i = own.find(address + 1);
  bool inside = i < own.count && own.ranges[i].begin <= address;
  *until = i == own.count ? UINTPTR_MAX : inside ? own.ranges[i].end : own.ranges[i].begin;
  return inside;
}

void count_as_own(void* addr, size_t size_bytes) {
  uintptr_t until;
  if (!is_own(uintptr_t(addr), &until)) add_own(addr, size_bytes);
}

bool own_mappings_are_known() { return own.complete; }

void own_tables(Range (&tables)[2]) {
  tables[0] = {uintptr_t(&own), uintptr_t(&own + 1)};
  tables[1] = {uintptr_t(own.ranges), uintptr_t(own.ranges + own.room)};
}

uint64_t now_us() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return uint64_t(ts.tv_sec) * 1000000 + uint64_t(ts.tv_nsec) / 1000;
}

uint64_t now_ms() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  return uint64_t(ts.tv_sec) * 1000 + uint64_t(ts.tv_nsec) / 1000000;
}

ptrdiff_t rseq_offset() { return &__rseq_size != nullptr && __rseq_size != 0 ? __rseq_offset : 0; }

unsigned cpu() {
  int n = -1;
  if (ptrdiff_t offset = rseq_offset()) {
    // struct rseq: cpu_id_start, cpu_id; negative while unregistered. Relaxed: a hint.
    const char* area = static_cast<const char*>(__builtin_thread_pointer()) + offset;
    n = __atomic_load_n(reinterpret_cast<const int*>(area + 4), __ATOMIC_RELAXED);
  }
  if (n < 0) {
    int saved = errno;
    n = sched_getcpu();
    errno = saved;
  }
  return n < 0 ? 0 : unsigned(n) % cpu_count();
}

unsigned cpu_count() {
  static std::atomic<unsigned> cached{0};  // relaxed: every thread computes the same
  unsigned count = cached.load(std::memory_order_relaxed);
  if (unlikely(count == 0)) {
    unsigned long mask[1024 / sizeof(long)] = {};
    long bytes = call(SYS_sched_getaffinity, nullptr, sizeof mask, reinterpret_cast<long>(mask));
    for (long i = 0; i < bytes / long(sizeof mask[0]); ++i)
      count += unsigned(__builtin_popcountl(mask[i]));
    if (count == 0) count = 1;
    cached.store(count, std::memory_order_relaxed);
  }
  return count;
}

void wait(uint32_t* word, uint32_t expected) {
  call(SYS_futex, word, FUTEX_WAIT_PRIVATE, long(expected), 0);
}

void wake_one(uint32_t* word) { call(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1); }

void yield() { call(SYS_sched_yield, nullptr); }

void sleep_ms(unsigned ms) {
  timespec time = {time_t(ms / 1000), long(ms % 1000) * 1000000};
  call(SYS_nanosleep, &time);
}

int create(const char* path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  return int(syscall6(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), kFlags, 0600, 0, 0));
}

int open(const char* path) {
  return int(
      syscall6(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC, 0, 0, 0));
}

long read(int file, void* to, size_t size_bytes) {
  long n;
  do n = syscall6(SYS_read, file, reinterpret_cast<long>(to), long(size_bytes), 0, 0, 0);
  while (n == -EINTR);
  return n;
}

long read_at(int file, void* to, size_t size_bytes, uint64_t offset) {
  long n;
  do
    n = syscall6(SYS_pread64, file, reinterpret_cast<long>(to), long(size_bytes), long(offset), 0,
                 0);
  while (n == -EINTR);
  return n;
}

int write(int file, const void* from, size_t size_bytes) {
  auto* at = static_cast<const char*>(from);
  while (size_bytes > 0) {
    long n = syscall6(SYS_write, file, reinterpret_cast<long>(at), long(size_bytes), 0, 0, 0);
    if (n == -EINTR) continue;
    if (n <= 0) return n == 0 ? -EIO : int(n);
    at += n;
    size_bytes -= size_t(n);
  }
  return 0;
}

void close(int file) { syscall6(SYS_close, file, 0, 0, 0, 0, 0); }

int process_id() { return int(syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0)); }

bool is_first_thread() { return syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0) == process_id(); }

// Offset in glibc's thread descriptor, 16 bytes before the list of robust mutexes; 0: unknown.
static constinit size_t id_in_descriptor = 0;

void learn_system_thread_ids() {
  uintptr_t list = 0;
  size_t bytes = 0;
  if (is_error(syscall6(SYS_get_robust_list, 0, reinterpret_cast<long>(&list),
                        reinterpret_cast<long>(&bytes), 0, 0, 0)))
    return;
  size_t at = list - 16 - uintptr_t(pthread_self());
  if (at == 0 || at >= 4096 || at % alignof(int) != 0) return;
  id_in_descriptor = at;
  if (system_thread_id() != syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0)) id_in_descriptor = 0;
}

int system_thread_id() {
  if (id_in_descriptor == 0) return 0;
  return *reinterpret_cast<const volatile int*>(uintptr_t(pthread_self()) + id_in_descriptor);
}

// By futex, which every sandbox allows: before it waits, the kernel compares the word with the
// value, which no pointer to an object has.
bool is_readable(const void* word) {
  constexpr timespec kNoTime = {};
  return syscall6(SYS_futex, reinterpret_cast<long>(word), FUTEX_WAIT_PRIVATE, UINT32_MAX,
                  reinterpret_cast<long>(&kNoTime), 0, 0) != -EFAULT;
}

// By futex, which every sandbox allows: the kernel looks up the lock's holder.
bool is_thread(int id) {
  auto held = uint32_t(id);
  return syscall6(SYS_futex, reinterpret_cast<long>(&held), FUTEX_TRYLOCK_PI_PRIVATE, 0, 0, 0, 0) !=
         -ESRCH;
}

void end_process(int code) { _exit(code); }

void write_stderr(const char* text, size_t size_bytes) {
  syscall6(SYS_write, 2, reinterpret_cast<long>(text), long(size_bytes), 0, 0, 0);
}

}  // namespace os
}  // namespace larder
