// bench_false_sharing active|passive THREADS: small objects of different threads, written to often.
//
// Behaves like cache-thrash and cache-scratch of the Hoard paper (Berger et al., 2000). active:
// each thread allocates an object of 8 bytes, writes it, frees it; an allocator that serves two
// threads from one cache line makes them pay for each write. passive: the objects come from one
// thread and lie side by side; each thread frees its one, and an allocator that reuses the same
// line keeps the threads in it permanently.

#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kSize = 8;
constexpr std::size_t kWrites = 4000;

void write_often(void* object) {
  volatile auto* counter = static_cast<volatile std::uint64_t*>(object);
  for (std::size_t i = 0; i < kWrites; ++i) *counter = *counter + 1;
}

void run(void* given, std::size_t turns) {
  if (given != nullptr) {
    write_often(given);
    std::free(given);
  }
  for (std::size_t i = 0; i < turns; ++i) {
    void* object = bench::checked(std::malloc(kSize));
    *static_cast<std::uint64_t*>(object) = i;
    write_often(object);
    std::free(object);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool passive = argc > 1 && std::strcmp(argv[1], "passive") == 0;
  if (!passive && (argc < 2 || std::strcmp(argv[1], "active") != 0)) {
    std::fprintf(stderr, "usage: bench_false_sharing active|passive THREADS\n");
    return 2;
  }
  const std::size_t threads = bench::number(argc, argv, 2, "THREADS");
  const std::size_t turns = bench::work(150'000);
  std::vector<void*> given(threads, nullptr);
  if (passive) {
    for (auto& object : given) {
      object = bench::checked(std::malloc(kSize));
      *static_cast<std::uint64_t*>(object) = 0;
    }
  }
  const bench::Stopwatch watch;
  std::vector<std::thread> lines;
  for (std::size_t i = 0; i < threads; ++i) lines.emplace_back(run, given[i], turns);
  for (auto& line : lines) line.join();
  watch.report(threads * turns);
  return 0;
}
