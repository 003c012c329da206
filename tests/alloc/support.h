// Shared by the black-box allocator tests: assertions that never allocate, the check that the
// allocator under test is the one in the process, memory figures from /proc, patterns, watchdog.
//
// Thread safety: every function may be called from any thread; begin() once, first, from main.
// Invariant: no function here calls malloc, so that a broken allocator's failure is reported.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace alloctest {

inline constexpr size_t kKiB = size_t{1} << 10;
inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGiB = size_t{1} << 30;

inline const char* test_name = "?";

// Hides a value from the optimiser, so that no allocation is folded away or warned about.
template <typename T>
[[gnu::always_inline]] inline T opaque(T value) {
  asm volatile("" : "+r"(value) : : "memory");
  return value;
}

inline void write_fully(int fd, const char* text, size_t length) {
  while (length > 0) {
    const ssize_t n = write(fd, text, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text += n;
    length -= static_cast<size_t>(n);
  }
}

// printf to stdout through a stack buffer: usable in forked children and handlers.
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) {
  char line[1024];
  int n = snprintf(line, sizeof line, "%s: ", test_name);
  va_list arguments;
  va_start(arguments, format);
  n += vsnprintf(line + n, sizeof line - static_cast<size_t>(n) - 1, format, arguments);
  va_end(arguments);
  if (n > static_cast<int>(sizeof line) - 2) n = static_cast<int>(sizeof line) - 2;
  line[n++] = '\n';
  write_fully(STDOUT_FILENO, line, static_cast<size_t>(n));
}

[[noreturn, gnu::format(printf, 3, 4)]] inline void fail(const char* file, int line_number,
                                                         const char* format, ...) {
  const int saved_errno = errno;
  char line[1024];
  int n = snprintf(line, sizeof line, "FAILED %s (pid %d): %s:%d: ", test_name, getpid(), file,
                   line_number);
  va_list arguments;
  va_start(arguments, format);
  n += vsnprintf(line + n, sizeof line - static_cast<size_t>(n), format, arguments);
  va_end(arguments);
  if (n > static_cast<int>(sizeof line) - 32) n = static_cast<int>(sizeof line) - 32;
  n += snprintf(line + n, sizeof line - static_cast<size_t>(n), " [errno %d]\n", saved_errno);
  write_fully(STDERR_FILENO, line, static_cast<size_t>(n));
  // With a debugger about to be attached, stay; otherwise leave without running destructors.
  if (getenv("ALLOC_TEST_HOLD") != nullptr) pause();
  _exit(1);
}

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) ::alloctest::fail(__FILE__, __LINE__, "%s does not hold", #condition); \
  } while (0)

#define CHECK_MSG(condition, ...)                                         \
  do {                                                                    \
    if (!(condition)) ::alloctest::fail(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)

// ---- /proc ------------------------------------------------------------------------------------

// Calls visit(line) for each line of a /proc file; a line longer than the buffer is truncated.
template <typename Visit>
inline void each_line(const char* path, Visit visit) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK_MSG(fd >= 0, "cannot open %s", path);
  char buffer[8192];
  size_t filled = 0;
  for (;;) {
    const ssize_t n = read(fd, buffer + filled, sizeof buffer - 1 - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    filled += static_cast<size_t>(n);
    buffer[filled] = '\0';
    char* start = buffer;
    while (char* end = strchr(start, '\n')) {
      *end = '\0';
      visit(static_cast<const char*>(start));
      start = end + 1;
    }
    filled -= static_cast<size_t>(start - buffer);
    memmove(buffer, start, filled);
    if (filled == sizeof buffer - 1) filled = 0;
  }
  close(fd);
}

inline bool is_mapped(const char* name_part) {
  bool found = false;
  each_line("/proc/self/maps", [&](const char* line) {
    const char* base = strrchr(line, '/');
    if (base != nullptr && strstr(base, name_part) != nullptr) found = true;
  });
  return found;
}

inline size_t mapping_count() {
  size_t count = 0;
  each_line("/proc/self/maps", [&](const char*) { ++count; });
  return count;
}

// A figure of /proc/self/status in bytes, for instance "VmHWM:".
inline size_t status_bytes(const char* key) {
  size_t kib = SIZE_MAX;
  each_line("/proc/self/status", [&](const char* line) {
    if (strncmp(line, key, strlen(key)) == 0) kib = strtoul(line + strlen(key), nullptr, 10);
  });
  CHECK_MSG(kib != SIZE_MAX, "/proc/self/status has no %s", key);
  return kib * kKiB;
}

// Field 0 of statm is the address space, field 1 the resident set.
inline size_t statm_bytes(int field) {
  size_t pages = 0;
  each_line("/proc/self/statm", [&](const char* line) {
    char* cursor = nullptr;
    pages = strtoul(line, &cursor, 10);
    for (int i = 0; i < field; ++i) pages = strtoul(cursor, &cursor, 10);
  });
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

inline size_t rss_bytes() { return statm_bytes(1); }
inline double mib(size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

// ---- start, watchdog ----------------------------------------------------------------------------

inline bool expects_larder() {
  const char* expected = getenv("ALLOC_TEST_EXPECT");
  return expected != nullptr && strstr(expected, "liblarder") != nullptr;
}

// ALLOC_TEST_EXPECT names the library that must be mapped and must have `malloc`; if unset, the
// system's malloc is expected. So a preload that silently failed is found.
inline void require_allocator() {
  const char* expected = getenv("ALLOC_TEST_EXPECT");
  Dl_info owner = {};
  void* entry = dlsym(RTLD_DEFAULT, "malloc");
  CHECK(entry != nullptr && dladdr(entry, &owner) != 0 && owner.dli_fname != nullptr);
  if (expected == nullptr || expected[0] == '\0') {
    CHECK_MSG(!is_mapped("liblarder"), "liblarder is mapped but ALLOC_TEST_EXPECT is not set");
    return;
  }
  CHECK_MSG(is_mapped(expected), "%s is not mapped: the preload did not happen", expected);
  CHECK_MSG(strstr(owner.dli_fname, expected) != nullptr, "malloc belongs to %s, not to %s",
            owner.dli_fname, expected);
}

inline void watchdog_fired(int) {
  char text[160];
  const int n = snprintf(text, sizeof text, "FAILED %s (pid %d): hangs, the watchdog fired\n",
                         test_name, getpid());
  write_fully(STDERR_FILENO, text, static_cast<size_t>(n));
  if (getenv("ALLOC_TEST_HOLD") != nullptr) pause();
  _exit(124);
}

// A test that takes this long hangs. Below the limit of ctest (LARDER_TEST_LIMIT_S), so that the
// test reports it itself.
inline constexpr unsigned kHangSeconds = 900;

// Also to be called in a forked child: alarms are not inherited.
inline void watchdog() {
  struct sigaction action = {};
  action.sa_handler = watchdog_fired;
  sigaction(SIGALRM, &action, nullptr);
  alarm(kHangSeconds);
}

inline void begin(const char* name) {
  test_name = name;
  require_allocator();
  watchdog();
}

inline size_t argument(int argc, char** argv, int index, size_t fallback) {
  if (argc <= index) return fallback;
  char* end = nullptr;
  const size_t value = strtoul(argv[index], &end, 10);
  CHECK_MSG(end != argv[index] && *end == '\0', "argument %d, '%s', is not a number", index,
            argv[index]);
  return value;
}

// Runs body in a child that must exit with 0 (body returns); parent checks.
template <typename Body>
inline void in_child(const char* what, Body body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  CHECK_MSG(child >= 0, "fork failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    watchdog();
    body();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK_MSG(!WIFSIGNALED(status), "%s: child %d died by signal %d", what, child, WTERMSIG(status));
  CHECK_MSG(WEXITSTATUS(status) == 0, "%s: child %d exited with %d", what, child,
            WEXITSTATUS(status));
}

inline double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline void sleep_ms(long milliseconds) {
  timespec left = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// Sends SIGUSR1 to the thread repeatedly.
inline timer_t signal_every(long nanoseconds, pid_t thread, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
  event.sigev_notify_thread_id = thread;
  timer_t timer;
  const itimerspec every = {{0, nanoseconds}, {0, nanoseconds}};
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  CHECK(timer_settime(timer, 0, &every, nullptr) == 0);
  return timer;
}

// ---- random numbers and patterns ----------------------------------------------------------------

// xorshift64*: small, seeded, the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567u) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  size_t below(size_t bound) { return static_cast<size_t>((next() >> 11) % bound); }
  // Sizes spread evenly over the powers of two up to `limit`, as program sizes roughly are.
  size_t log_uniform(size_t limit) {
    const unsigned bits = static_cast<unsigned>(63 - __builtin_clzl(limit | 1));
    const size_t value = static_cast<size_t>(next()) & ((size_t{2} << below(bits + 1)) - 1);
    return value > limit ? limit : value;
  }

 private:
  uint64_t state_;
};

inline uint64_t pattern_key(const void* block, size_t size) {
  uint64_t key = reinterpret_cast<uintptr_t>(block) * 0x9E3779B97F4A7C15u + size;
  key ^= key >> 29;
  return key * 0xBF58476D1CE4E5B9u;
}

// Of eight bytes at an offset that eight divides.
inline uint64_t pattern_word(uint64_t key, size_t offset) {
  const uint64_t word = key + offset * 0x94D049BB133111EBu;
  return word ^ word >> 32;
}

inline unsigned char pattern_byte(uint64_t key, size_t offset) {
  return static_cast<unsigned char>(pattern_word(key, offset & ~size_t{7}) >> offset % 8 * 8);
}

inline constexpr size_t kDenseBytes = 2048;
inline constexpr size_t kStrideBytes = 509;
inline constexpr size_t kSparsePlaces = 1024;

// Offsets of a pattern: all of the first 2 KiB, the last 64 bytes, and some between, about a
// thousand of a large block: most of the time of a test is here, and in the kernel for its pages.
template <typename VisitWord, typename Visit>
inline void pattern_offsets(size_t size, VisitWord visit_word, Visit visit) {
  const size_t dense = size < kDenseBytes ? size : kDenseBytes;
  size_t i = 0;
  for (; i + 8 <= dense; i += 8) visit_word(i);
  for (; i < dense; ++i) visit(i);
  const size_t stride =
      size / kSparsePlaces > kStrideBytes ? (size / kSparsePlaces | 1) : kStrideBytes;
  for (; i < size; i += stride) visit(i);
  for (i = size > dense + 64 ? size - 64 : dense; i < size; ++i) visit(i);
}

// memcpy by its other name, as a function is called by this one (-fno-builtin).
inline void fill_pattern(void* block, size_t size, uint64_t key) {
  auto* bytes = static_cast<unsigned char*>(block);
  pattern_offsets(
      size,
      [&](size_t i) {
        const uint64_t word = pattern_word(key, i);
        __builtin_memcpy(bytes + i, &word, 8);
      },
      [&](size_t i) { bytes[i] = pattern_byte(key, i); });
}

// Checks the part of the pattern of `filled` bytes that is within the first `size` bytes.
inline void check_pattern(const void* block, size_t filled, size_t size, uint64_t key) {
  auto* bytes = static_cast<const unsigned char*>(block);
  auto check_byte = [&](size_t i) {
    if (i < size) {
      CHECK_MSG(bytes[i] == pattern_byte(key, i),
                "block %p of %zu bytes: byte %zu is %#x, should be %#x", block, filled, i, bytes[i],
                pattern_byte(key, i));
    }
  };
  auto check_word = [&](size_t i) {
    uint64_t found;
    if (i + 8 <= size) {
      __builtin_memcpy(&found, bytes + i, 8);
      if (found == pattern_word(key, i)) return;
    }
    for (size_t byte = i; byte < i + 8; ++byte) check_byte(byte);
  };
  pattern_offsets(filled, check_word, check_byte);
}

inline void check_zero(const void* block, size_t size) {
  auto* bytes = static_cast<const unsigned char*>(block);
  size_t i = 0;
  for (; i < size && (reinterpret_cast<uintptr_t>(bytes + i) & 7) != 0; ++i) {
    CHECK_MSG(bytes[i] == 0, "block %p of %zu bytes: byte %zu is %#x, not 0", block, size, i,
              bytes[i]);
  }
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    __builtin_memcpy(&word, bytes + i, 8);
    CHECK_MSG(word == 0, "block %p of %zu bytes: word at %zu is not 0", block, size, i);
  }
  for (; i < size; ++i) {
    CHECK_MSG(bytes[i] == 0, "block %p of %zu bytes: byte %zu is %#x, not 0", block, size, i,
              bytes[i]);
  }
}

// The alignment that C requires for this size: max_align_t if one fits, and the largest power of
// two up to the size below that.
inline size_t required_alignment(size_t size) { return size >= 16 ? 16 : 8; }

inline bool is_aligned(const void* block, size_t alignment) {
  return (reinterpret_cast<uintptr_t>(block) & (alignment - 1)) == 0;
}

}  // namespace alloctest
