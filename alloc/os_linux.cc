#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "os.h"
#include "stats.h"

// glibc 2.35 and later publish where the thread's registered rseq area lies.
extern "C" {
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
}

namespace larder {

namespace {

// Raw, because errno must stay as it is and because libc's wrappers may be interposed.
long syscall6(long nr, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long ret;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(ret)
                   : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return ret;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = nr;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
#else
#error "Larder supports x86-64 and aarch64"
#endif
}

long call(long nr, const void* a, size_t b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  return syscall6(nr, reinterpret_cast<long>(a), long(b), c, d, e, f);
}

bool is_error(long ret) { return ret < 0 && ret > -4096; }

void count_mapped(size_t more_bytes) {
  stats::add(stats::kMappedBytes, int64_t(more_bytes));
  stats::add(stats::kMappedTotalBytes, int64_t(more_bytes));
}

struct Breaking {
  std::atomic<bool> busy{false};
  bool when_refused = false;                         // written once, before there are threads
  std::atomic<uintptr_t> low{UINTPTR_MAX}, high{0};  // what it gave lies between
};
constinit Breaking breaking;

// The kernel orders an unmap before a map at the same address. ThreadSanitizer does not see these
// calls, and would take what was written there before for a race.
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

void fail(const char* what, const char* file, int line) {
  char text[256];
  size_t n = 0;
  auto put = [&](const char* s) {
    while (*s != 0 && n < sizeof text - 16) text[n++] = *s++;
  };
  put("larder: internal check failed: ");
  put(what);
  put(" at ");
  put(file);
  put(":");
  char digits[12];
  int d = 0;
  do digits[d++] = char('0' + line % 10);
  while ((line /= 10) != 0);
  while (d > 0) text[n++] = digits[--d];
  text[n++] = '\n';
  os::write_stderr(text, n);
  abort();
}

namespace os {

size_t page_size() {
  static std::atomic<size_t> cached{0};
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
  if (is_error(call(SYS_munmap, addr, size_bytes))) return false;
  stats::add(stats::kMappedBytes, -int64_t(size_bytes));
  return true;
}

Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes) {
  stats::add(stats::kMremapCalls, 1);
  long ret = call(SYS_mremap, addr, old_bytes, long(new_bytes), 0);
  after_map();
  if (is_error(ret)) return ret == -ENOMEM ? Resized::kNoRoom : Resized::kRefused;
  stats::add(stats::kMappedBytes, int64_t(new_bytes) - int64_t(old_bytes));
  if (new_bytes > old_bytes) stats::add(stats::kMappedTotalBytes, int64_t(new_bytes - old_bytes));
  return Resized::kDone;
}

bool move_pages(void* addr, size_t old_bytes, void* target, size_t new_bytes) {
  stats::add(stats::kMremapCalls, 1);
  before_unmap();
  long ret = call(SYS_mremap, addr, old_bytes, long(new_bytes), MREMAP_MAYMOVE | MREMAP_FIXED,
                  reinterpret_cast<long>(target));
  if (is_error(ret)) return false;
  // `target` had been counted when it was mapped; `addr` is gone.
  stats::add(stats::kMappedBytes, -int64_t(old_bytes));
  return true;
}

bool discard(void* addr, size_t size_bytes) {
  stats::add(stats::kMadviseCalls, 1);
  if (is_error(call(SYS_madvise, addr, size_bytes, MADV_DONTNEED))) return false;
  stats::add(stats::kPurgedBytes, int64_t(size_bytes));
  return true;
}

Populated populate(void* addr, size_t size_bytes, bool to_write) {
  constexpr long kPopulateRead = 22, kPopulateWrite = 23;  // of Linux 5.14
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
  // libc keeps the break, and would not know of one that is moved behind its back; nor does it
  // take a lock for it.
  constexpr int kTries = 10'000;
  for (int i = 0; breaking.busy.exchange(true, std::memory_order_acquire); ++i) {
    if (i == kTries) return nullptr;
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

unsigned cpu() {
  int n = -1;
  if (&__rseq_size != nullptr && __rseq_size != 0) {
    // struct rseq: cpu_id_start, then cpu_id; negative while unregistered.
    const char* area = static_cast<const char*>(__builtin_thread_pointer()) + __rseq_offset;
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
  static std::atomic<unsigned> cached{0};
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

void write_stderr(const char* text, size_t size_bytes) {
  syscall6(SYS_write, 2, reinterpret_cast<long>(text), long(size_bytes), 0, 0, 0);
}

}  // namespace os
}  // namespace larder
