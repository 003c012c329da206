// bench_producer_consumer PAIRS: threads that only allocate, feeding threads that only free.
//
// Behaves like pipelines and message queues (the xmalloc benchmark of Lever and Boreham has the
// same flow). Every free is of another thread's object: it shows what returning memory costs.

#include <atomic>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kRing = 256;
constexpr std::size_t kMessage = 64;

// One producer, one consumer; a message is a batch of objects.
struct alignas(64) Ring {
  struct Message {
    void* objects[kMessage];
  };
  Message messages[kRing];
  alignas(64) std::atomic<std::size_t> written{0};
  alignas(64) std::atomic<std::size_t> read{0};
};

void produce(Ring& ring, std::size_t messages, std::uint64_t seed) {
  bench::Random random(seed);
  for (std::size_t i = 0; i < messages; ++i) {
    while (i - ring.read.load(std::memory_order_acquire) >= kRing) std::this_thread::yield();
    for (auto& object : ring.messages[i % kRing].objects) {
      const std::size_t size = 16 + random.below(497);
      object = bench::checked(std::malloc(size));
      bench::touch_ends(object, size);
    }
    ring.written.store(i + 1, std::memory_order_release);
  }
}

void consume(Ring& ring, std::size_t messages) {
  for (std::size_t i = 0; i < messages; ++i) {
    while (ring.written.load(std::memory_order_acquire) <= i) std::this_thread::yield();
    for (void* object : ring.messages[i % kRing].objects) std::free(object);
    ring.read.store(i + 1, std::memory_order_release);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t pairs = bench::number(argc, argv, 1, "PAIRS of threads");
  const std::size_t messages = bench::work(120'000);
  std::vector<Ring> rings(pairs);
  std::vector<std::thread> threads;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < pairs; ++i) {
    threads.emplace_back(produce, std::ref(rings[i]), messages, i + 1);
    threads.emplace_back(consume, std::ref(rings[i]), messages);
  }
  for (auto& thread : threads) thread.join();
  watch.report(pairs * messages * kMessage);
  return 0;
}
