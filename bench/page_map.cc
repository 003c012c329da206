// bench_page_map STRUCTURE THREADS: the cost of a look-up from an address to its descriptor.
//
// STRUCTURE is radix1, radix2, radix3 (the allocator's own page map with so many levels), or
// hash_mutex, hash_shared (a std::unordered_map behind a lock). A published pool found the map
// behind a lock to be its bottleneck. Each thread looks up the same random addresses of a heap of
// 2 GiB, all of whose pages have entries. `latency`: each look-up waits for the one before, as in
// a chain of frees; `throughput`: they may overlap.
//
// The maps are the library's code, compiled in; no allocator is measured here.

#include "core/page_map.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "workload.h"

namespace {

using larder::kPageBytes;
using larder::kPageShift;
using larder::Slab;

constexpr std::size_t kPages = 2048 * bench::kMiB / kPageBytes;
constexpr std::size_t kAddresses = 1 << 15;
// Within 36 bits, so that a map of one level has a feasible size.
constexpr std::uintptr_t kHeap = std::uintptr_t{1} << 33;

template <typename Map>
class Radix {
 public:
  // By mmap: zero pages are a valid map, except for the null slab, which is never read here.
  Radix() {
    void* memory = mmap(nullptr, sizeof(Map), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("page map");
      std::exit(1);
    }
    map_ = static_cast<Map*>(memory);
    if (!map_->make_tables(reinterpret_cast<void*>(kHeap), kPages)) std::exit(1);
  }
  void set(const void* address, Slab* slab) { map_->set(address, 1, slab); }
  [[gnu::always_inline]] Slab* find(const void* address) { return map_->find(address); }

 private:
  Map* map_;
};

class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

template <typename Guard, typename Lock>
class Hash {
 public:
  Hash() { map_.reserve(kPages); }
  void set(const void* address, Slab* slab) { map_[key(address)] = slab; }
  Slab* find(const void* address) {
    Guard guard(lock_);
    const auto found = map_.find(key(address));
    return found == map_.end() ? nullptr : found->second;
  }

 private:
  static std::uintptr_t key(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) >> kPageShift;
  }
  Lock lock_;
  std::unordered_map<std::uintptr_t, Slab*> map_;
};

double now() {
  std::timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <bool kChained, typename Map>
void look_up(Map& map, const std::vector<std::uintptr_t>& addresses, std::size_t look_ups) {
  std::uintptr_t carry = 0;
  for (std::size_t i = 0; i < look_ups; ++i) {
    // `carry` is always 0, which the compiler does not know: the address depends on the last
    // result.
    const std::uintptr_t address = addresses[i % kAddresses] + (kChained ? carry : 0);
    const Slab* slab = map.find(reinterpret_cast<const void*>(address));
    if (slab == nullptr) std::abort();
    carry = bench::opaque(reinterpret_cast<std::uintptr_t>(slab)) & 1;
  }
}

// Nanoseconds a look-up, in each of the threads at the same time.
template <bool kChained, typename Map>
double measure(Map& map, std::size_t threads, const std::vector<std::uintptr_t>& addresses,
               std::size_t look_ups) {
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> running;
  std::vector<double> seconds(threads);
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      look_up<kChained>(map, addresses, kAddresses);
      ++ready;
      while (ready.load() < threads) {
      }
      const double start = now();
      look_up<kChained>(map, addresses, look_ups);
      seconds[t] = now() - start;
    });
  }
  for (auto& thread : running) thread.join();
  double sum = 0;
  for (const double value : seconds) sum += value;
  return sum / static_cast<double>(threads) * 1e9 / static_cast<double>(look_ups);
}

template <typename Map>
void run(std::size_t threads, std::size_t usual) {
  Map map;
  std::vector<Slab> slabs(kPages / 4);
  for (std::size_t page = 0; page < kPages; ++page)
    map.set(reinterpret_cast<void*>(kHeap + page * kPageBytes), &slabs[page / 4]);
  bench::Random random(1);
  std::vector<std::uintptr_t> addresses(kAddresses);
  for (auto& address : addresses) address = kHeap + random.below(kPages * kPageBytes / 16) * 16;
  const std::size_t look_ups = bench::work(usual);
  const double latency = measure<true>(map, threads, addresses, look_ups);
  const double throughput = measure<false>(map, threads, addresses, look_ups);
  std::printf("{\"operations\": %zu, \"latency_ns\": %.3f, \"throughput_ns\": %.3f}\n", look_ups,
              latency, throughput);
}

}  // namespace

int main(int argc, char** argv) {
  const char* structure = argc > 1 ? argv[1] : "";
  const std::size_t threads = bench::number(argc, argv, 2, "THREADS");
  const auto is = [&](const char* name) { return std::strcmp(structure, name) == 0; };
  if (is("radix1")) {
    run<Radix<larder::PageMap<36, 1>>>(threads, 20'000'000);
  } else if (is("radix2")) {
    run<Radix<larder::PageMap<48, 2>>>(threads, 20'000'000);
  } else if (is("radix3")) {
    run<Radix<larder::PageMap<57, 3>>>(threads, 20'000'000);
  } else if (is("hash_mutex")) {
    run<Hash<std::lock_guard<Mutex>, Mutex>>(threads, 2'000'000);
  } else if (is("hash_shared")) {
    run<Hash<std::shared_lock<std::shared_mutex>, std::shared_mutex>>(threads, 2'000'000);
  } else {
    std::fprintf(stderr,
                 "argument 1 must be radix1, radix2, radix3, hash_mutex or hash_shared: %s\n",
                 structure);
    return 2;
  }
  return 0;
}
