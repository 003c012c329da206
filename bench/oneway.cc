// bench_oneway PRODUCERS CONSUMERS: threads that never free, and threads that never allocate.
//
// Behaves like xmalloc-test (Lever and Boreham, 2000): batches of 120 objects go through one queue
// that all threads share, so that a consumer's frees are spread over the heaps of all producers,
// and a slab's objects are freed by several threads at once. Memory in a thread's cache that the
// thread will never allocate again shows in the peak.

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

constexpr std::size_t kBatch = 120;
constexpr std::size_t kQueued = 128;

struct Batch {
  Batch* next;
  void* objects[kBatch];
};

// First in, first out; up to kQueued batches, so that scheduling does not make a run larger.
class Queue {
 public:
  void push(Batch* batch) {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [this] { return length_ < kQueued; });
    batch->next = nullptr;
    *tail_ = batch;
    tail_ = &batch->next;
    ++length_;
    not_empty_.notify_one();
  }
  Batch* pop() {
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [this] { return length_ > 0; });
    Batch* batch = head_;
    head_ = batch->next;
    if (head_ == nullptr) tail_ = &head_;
    --length_;
    not_full_.notify_one();
    return batch;
  }

 private:
  std::mutex mutex_;
  std::condition_variable not_full_;
  std::condition_variable not_empty_;
  std::size_t length_ = 0;
  Batch* head_ = nullptr;
  Batch** tail_ = &head_;
};

// The batch itself is an object of the producer, too.
void produce(Queue& queue, std::size_t batches, std::uint64_t seed) {
  constexpr std::size_t kSizes[] = {16, 24, 32, 48, 64, 64, 96, 128, 192, 256, 512, 1024};
  bench::Random random(seed);
  for (std::size_t i = 0; i < batches; ++i) {
    auto* batch = static_cast<Batch*>(bench::checked(std::malloc(sizeof(Batch))));
    for (auto& object : batch->objects) {
      const std::size_t size = kSizes[random.below(std::size(kSizes))];
      object = bench::checked(std::malloc(size));
      bench::touch_ends(object, size);
    }
    queue.push(batch);
  }
}

void consume(Queue& queue, std::size_t batches) {
  for (std::size_t i = 0; i < batches; ++i) {
    Batch* batch = queue.pop();
    for (void* object : batch->objects) std::free(object);
    std::free(batch);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t producers = bench::number(argc, argv, 1, "PRODUCERS");
  const std::size_t consumers = bench::number(argc, argv, 2, "CONSUMERS");
  // Divisible by both, so that each thread knows its share.
  const std::size_t share = bench::work(50'000) / (producers * consumers) + 1;
  Queue queue;
  std::vector<std::thread> threads;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < producers; ++i) {
    threads.emplace_back(produce, std::ref(queue), share * consumers, i + 1);
  }
  for (std::size_t i = 0; i < consumers; ++i) {
    threads.emplace_back(consume, std::ref(queue), share * producers);
  }
  for (auto& thread : threads) thread.join();
  watch.report(producers * consumers * share * kBatch);
  return 0;
}
