// bench_counts PATTERN THREADS OPERATIONS [none]: about OPERATIONS pairs of malloc and free, spread
// over THREADS threads; for counting what the allocator does under them.
//
//   pairs    malloc, free at once, of 64 bytes
//   local    random ones of 64 blocks of 16 to 512 bytes are replaced by the thread that allocated
//            them
//   remote   half of the threads allocate, the other half free their blocks
//   larson   like local, but a thread passes its blocks to the next one every 64 replacements
//   births   each thread makes 100 replacements and ends; THREADS of them run at the same time
//
// `none`: the same without allocations, so that the cost of threads alone can be subtracted.
// Threads wait for each other by raw system calls, which are counted and printed, so that they can
// be subtracted from the process's total. With one thread main does the work and, except for
// births, starts none.

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kBlocks = 64;
constexpr std::size_t kBirthReplacements = 100;

bool allocating = true;

void* allocate(std::size_t size) {
  static char nothing[512];
  return allocating ? bench::checked(std::malloc(size)) : nothing;
}

void release(void* block) {
  if (allocating) std::free(block);
}

// A number that only grows, and that other threads wait for.
class Counter {
 public:
  std::uint32_t get() const { return value_.load(); }
  void set(std::uint32_t value) {
    value_.store(value);
    if (waiters_.load() > 0) futex(FUTEX_WAKE_PRIVATE, INT_MAX);
  }
  void wait_until_at_least(std::uint32_t bound) {
    for (int spins = 0; spins < 200; ++spins) {
      if (value_.load() >= bound) return;
      __builtin_ia32_pause();
    }
    ++waiters_;
    for (std::uint32_t seen = value_.load(); seen < bound; seen = value_.load())
      futex(FUTEX_WAIT_PRIVATE, seen);
    --waiters_;
  }
  // System calls of all counters.
  static std::size_t futex_calls() { return calls.load(); }

 private:
  void futex(int operation, std::uint32_t argument) {
    calls.fetch_add(1, std::memory_order_relaxed);
    syscall(SYS_futex, &value_, operation, argument, nullptr);
  }
  static inline std::atomic<std::size_t> calls{0};
  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> waiters_{0};
};

// A barrier: no thread passes before all have arrived.
class Gate {
 public:
  Gate() {
    if (pipe2(ends_, O_CLOEXEC) != 0) {
      std::perror("pipe");
      std::exit(1);
    }
  }
  ~Gate() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // No thread waits now.
  void close_for(std::size_t comers) { missing_.store(comers); }
  void pass() {
    char byte = 0;
    if (missing_.fetch_sub(1) > 1) {
      while (syscall(SYS_read, ends_[0], &byte, 1) != 1) {
      }
    }
    // Each wakes the next one; `drain` reads the last byte.
    while (syscall(SYS_write, ends_[1], &byte, 1) != 1) {
    }
  }
  // All threads have passed.
  void drain() {
    char byte = 0;
    while (syscall(SYS_read, ends_[0], &byte, 1) != 1) {
    }
  }

 private:
  int ends_[2];
  std::atomic<std::size_t> missing_{0};
};

std::size_t pick_size(bench::Random& random) { return 16 + random.below(497); }

struct Blocks {
  void* at[kBlocks] = {};
  void replace(bench::Random& random) {
    void*& block = at[random.below(kBlocks)];
    if (block != nullptr) release(block);
    const std::size_t size = pick_size(random);
    block = allocate(size);
    bench::touch_ends(block, size);
  }
  void clear() {
    for (void*& block : at) {
      if (block != nullptr) release(block);
      block = nullptr;
    }
  }
};

template <typename Body>
void on_threads(std::size_t threads, Body&& body) {
  if (threads == 1) return body(std::size_t{0});
  std::vector<std::thread> running;
  running.reserve(threads);
  for (std::size_t t = 0; t < threads; ++t) running.emplace_back([&body, t] { body(t); });
  for (auto& thread : running) thread.join();
}

// The share of `total` for thread `t` of `threads`.
std::size_t share(std::size_t total, std::size_t threads, std::size_t t) {
  return total / threads + (t < total % threads ? 1 : 0);
}

std::size_t pairs(std::size_t threads, std::size_t operations) {
  on_threads(threads, [=](std::size_t t) {
    for (std::size_t i = share(operations, threads, t); i > 0; --i)
      release(bench::opaque(allocate(64)));
  });
  return operations;
}

std::size_t local(std::size_t threads, std::size_t operations) {
  on_threads(threads, [=](std::size_t t) {
    bench::Random random(t + 1);
    Blocks blocks;
    for (std::size_t i = share(operations, threads, t); i > 0; --i) blocks.replace(random);
    blocks.clear();
  });
  return operations;
}

// One producer, one consumer. Messages are batches, written and read in turn.
struct alignas(64) Ring {
  static constexpr std::size_t kSlots = 16;
  void* slots[kSlots][kBlocks];
  alignas(64) Counter written;
  alignas(64) Counter read;
};

void produce(Ring& ring, std::size_t messages, std::uint64_t seed) {
  bench::Random random(seed);
  for (std::uint32_t i = 0; i < messages; ++i) {
    if (i >= Ring::kSlots) ring.read.wait_until_at_least(i + 1 - Ring::kSlots);
    for (void*& block : ring.slots[i % Ring::kSlots]) {
      const std::size_t size = pick_size(random);
      block = allocate(size);
      bench::touch_ends(block, size);
    }
    ring.written.set(i + 1);
  }
}

void consume(Ring& ring, std::size_t messages) {
  for (std::uint32_t i = 0; i < messages; ++i) {
    ring.written.wait_until_at_least(i + 1);
    for (void* block : ring.slots[i % Ring::kSlots]) release(block);
    ring.read.set(i + 1);
  }
}

std::size_t remote(std::size_t threads, std::size_t operations) {
  const std::size_t rings = threads / 2;
  std::vector<Ring> all(rings);
  on_threads(rings * 2, [&](std::size_t t) {
    const std::size_t messages = share(operations / kBlocks, rings, t / 2);
    if (t % 2 == 0) {
      produce(all[t / 2], messages, t + 1);
    } else {
      consume(all[t / 2], messages);
    }
  });
  return operations / kBlocks * kBlocks;
}

struct alignas(64) Handed {
  Blocks blocks;
  Counter turn;
};

std::size_t larson(std::size_t threads, std::size_t operations) {
  std::vector<Handed> all(threads);
  const std::size_t turns = operations / threads / kBlocks;
  on_threads(threads, [&](std::size_t t) {
    bench::Random random(t + 1);
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      Handed& handed = all[(t + turn) % threads];
      handed.turn.wait_until_at_least(turn);
      for (std::size_t i = 0; i < kBlocks; ++i) handed.blocks.replace(random);
      handed.turn.set(turn + 1);
    }
  });
  for (Handed& handed : all) handed.blocks.clear();
  return turns * threads * kBlocks;
}

// Waves of threads; in a wave each thread waits until all have started before it ends.
std::size_t births(std::size_t threads, std::size_t operations) {
  const std::size_t total = operations / kBirthReplacements;
  std::vector<std::thread> running;
  running.reserve(threads);
  Gate gate;
  for (std::size_t born = 0; born < total;) {
    const std::size_t wave = std::min(threads, total - born);
    gate.close_for(wave);
    for (std::size_t t = 0; t < wave; ++t) {
      running.emplace_back([&gate, seed = born + t + 1] {
        bench::Random random(seed);
        Blocks blocks;
        for (std::size_t i = 0; i < kBirthReplacements; ++i) blocks.replace(random);
        gate.pass();
        blocks.clear();
      });
    }
    for (auto& thread : running) thread.join();
    running.clear();
    gate.drain();
    born += wave;
  }
  return total * kBirthReplacements;
}

struct Pattern {
  const char* name;
  // Returns the number of operations.
  std::size_t (*run)(std::size_t threads, std::size_t operations);
};

constexpr Pattern kPatterns[] = {
    {"pairs", pairs}, {"local", local}, {"remote", remote}, {"larson", larson}, {"births", births}};

}  // namespace

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  const std::size_t threads = bench::number(argc, argv, 2, "THREADS");
  const std::size_t operations = bench::number(argc, argv, 3, "OPERATIONS");
  allocating = !(argc > 4 && std::strcmp(argv[4], "none") == 0);
  for (const Pattern& pattern : kPatterns) {
    if (std::strcmp(pattern.name, name) != 0) continue;
    if (pattern.run == remote && threads < 2) {
      std::fprintf(stderr, "remote needs two threads at least\n");
      return 2;
    }
    const std::size_t done = pattern.run(threads, operations);
    std::printf("{\"operations\": %zu, \"own_futex_calls\": %zu}\n", done, Counter::futex_calls());
    return 0;
  }
  std::fprintf(stderr, "argument 1 must be pairs, local, remote, larson or births: %s\n", name);
  return 2;
}
