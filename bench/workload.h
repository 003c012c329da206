// What every workload shares: how much work to do, random numbers, touching memory, the report.
//
// A workload does a fixed amount of work, BENCH_SCALE times its usual one, so that processes can
// be compared by their time and memory. It allocates through the public family only.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace bench {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline double scale() {
  const char* text = std::getenv("BENCH_SCALE");
  const double value = text == nullptr ? 1.0 : std::strtod(text, nullptr);
  if (!(value > 0 && value <= 1000)) {
    std::fprintf(stderr, "BENCH_SCALE=%s is not a factor above 0 and up to 1000\n", text);
    std::exit(2);
  }
  return value;
}

// `usual` operations times the scale, at least one.
inline std::size_t work(std::size_t usual) {
  const double scaled = static_cast<double>(usual) * scale();
  return scaled < 1 ? 1 : static_cast<std::size_t>(scaled);
}

// Keeps a value, and what it points to, from the optimiser.
template <typename T>
[[gnu::always_inline]] inline T opaque(T value) {
  asm volatile("" : "+r"(value) : : "memory");
  return value;
}

// Writes the first and the last word, like a program that fills in a header and a tail.
[[gnu::always_inline]] inline void touch_ends(void* block, std::size_t size) {
  auto* bytes = static_cast<unsigned char*>(block);
  bytes[0] = 1;
  bytes[size - 1] = 2;
}

// Writes one byte of each page.
inline void touch_pages(void* block, std::size_t size) {
  auto* bytes = static_cast<unsigned char*>(block);
  for (std::size_t i = 0; i < size; i += 4096) bytes[i] = 1;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567u) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  // Multiply-shift: no division in a loop that measures something else.
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(((next() >> 32) * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

// Ends the process if memory is null: the figures would be those of a failure.
inline void* checked(void* block) {
  if (block == nullptr) {
    std::fprintf(stderr, "out of memory\n");
    std::exit(1);
  }
  return block;
}

// The process's figures from /proc. Does not allocate: a block that is allocated to measure the
// heap would change it.

// Calls `line(text, length)` for each line; characters beyond 255 are left out.
template <typename Line>
bool for_each_line(const char* path, Line&& line) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char buffer[4096];
  char text[256];
  std::size_t length = 0;
  ssize_t got;
  while ((got = read(file, buffer, sizeof(buffer))) > 0) {
    for (ssize_t i = 0; i < got; i++) {
      if (buffer[i] == '\n') {
        text[length] = '\0';
        line(static_cast<const char*>(text), length);
        length = 0;
      } else if (length + 1 < sizeof(text)) {
        text[length++] = buffer[i];
      }
    }
  }
  close(file);
  return got == 0;
}

// The figure, in KiB, behind a line's name; it is not 0.
template <std::size_t n>
std::size_t kib_in(const char* path, const char (&name)[n]) {
  std::size_t kib = 0;
  const bool read = for_each_line(path, [&](const char* text, std::size_t) {
    if (std::strncmp(text, name, n - 1) == 0) kib = std::strtoul(text + n - 1, nullptr, 10);
  });
  if (!read || kib == 0) {
    std::fprintf(stderr, "%s does not say %s\n", path, name);
    std::exit(1);
  }
  return kib;
}

// Resident memory, by walking the page tables: the counters of /proc/self/statm lag behind.
inline std::size_t resident_kib() { return kib_in("/proc/self/smaps_rollup", "Rss:"); }

// Peak resident memory. The kernel sums its counters for this figure; for ru_maxrss it does not,
// and each processor may withhold 31 pages.
inline std::size_t peak_kib() { return kib_in("/proc/self/status", "VmHWM:"); }

inline std::size_t mappings() {
  std::size_t count = 0;
  for_each_line("/proc/self/maps", [&count](const char*, std::size_t) { count++; });
  return count;
}

// BENCH_IDLE: seconds to sit idle, at the end, before the resident memory is read once more.
inline double idle_seconds() {
  const char* text = std::getenv("BENCH_IDLE");
  const double value = text == nullptr ? 0 : std::strtod(text, nullptr);
  if (!(value >= 0 && value <= 60)) {
    std::fprintf(stderr, "BENCH_IDLE=%s is not a number of seconds up to 60\n", text);
    std::exit(2);
  }
  return value;
}

// Measures from construction to report(): one line of JSON on stdout. Processor time is that of
// all threads. What a workload still holds when it reports is part of rss_kib and idle_rss_kib.
class Stopwatch {
 public:
  Stopwatch() : start_(seconds()), cpu_start_(now(CLOCK_PROCESS_CPUTIME_ID)) {}

  static double seconds() { return now(CLOCK_MONOTONIC); }

  // `extra`: further members of the JSON object, each ending in ", "; or nothing.
  void report(std::size_t operations, const char* extra = "") const {
    const double wall_seconds = seconds() - start_;
    const double cpu_seconds = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start_;
    const auto count = static_cast<double>(operations);
    const std::size_t peak = peak_kib();
    const std::size_t resident = resident_kib();
    char text[1024];
    int length = std::snprintf(
        text, sizeof(text),
        "{\"operations\": %zu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, "
        "\"ns_per_operation\": %.2f, \"operations_per_second\": %.0f, "
        "\"operations_per_cpu_second\": %.0f, %s\"peak_rss_kib\": %zu, \"rss_kib\": %zu, "
        "\"mappings\": %zu",
        operations, wall_seconds, cpu_seconds, wall_seconds * 1e9 / count, count / wall_seconds,
        count / cpu_seconds, extra, peak, resident, mappings());
    if (const double idle = idle_seconds(); idle > 0) {
      sleep_for(idle);
      length += std::snprintf(text + length, sizeof(text) - static_cast<std::size_t>(length),
                              ", \"idle_rss_kib\": %zu", resident_kib());
    }
    length += std::snprintf(text + length, sizeof(text) - static_cast<std::size_t>(length), "}\n");
    // Without stdio, which allocates its buffer.
    if (write(STDOUT_FILENO, text, static_cast<std::size_t>(length)) != length) std::exit(1);
  }

 private:
  static double now(clockid_t clock) {
    std::timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  static void sleep_for(double seconds) {
    const auto whole = static_cast<std::time_t>(seconds);
    std::timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    while (nanosleep(&time, &time) != 0) {
    }
  }
  double start_;
  double cpu_start_;
};

inline std::size_t number(int argc, char** argv, int index, const char* name) {
  char* end = nullptr;
  const std::size_t value = argc > index ? std::strtoul(argv[index], &end, 10) : 0;
  if (argc <= index || *end != '\0' || value == 0) {
    std::fprintf(stderr, "argument %d must be a positive number: %s\n", index, name);
    std::exit(2);
  }
  return value;
}

}  // namespace bench
