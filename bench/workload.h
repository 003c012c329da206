// What every workload shares: how much work to do, random numbers, touching memory, the report.
//
// A workload does a fixed amount of work, BENCH_SCALE times its usual one, so that processes can
// be compared by their time and memory. It allocates through the public family only.
#pragma once

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
    std::fprintf(stderr, "BENCH_SCALE=%s is not a factor above 0 and at most 1000\n", text);
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

// Writes the first and the last word, as a program that fills in a header and a tail does.
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

// A null where memory was asked for would make the figures those of a failure.
inline void* checked(void* block) {
  if (block == nullptr) {
    std::fprintf(stderr, "out of memory\n");
    std::exit(1);
  }
  return block;
}

// Measures from construction to report(): one line of JSON on stdout.
class Stopwatch {
 public:
  Stopwatch() : start_(now()) {}
  void report(std::size_t operations) const {
    const double seconds = now() - start_;
    std::printf("{\"operations\": %zu, \"seconds\": %.6f, \"ns_per_operation\": %.2f}\n",
                operations, seconds, seconds * 1e9 / static_cast<double>(operations));
  }

 private:
  static double now() {
    std::timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  double start_;
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
