// Allocation while and after a thread is torn down, and threads by the thousand.
// Usage: thread_exit [THREADS]
//
// pthread key destructors run for several rounds, after C++ thread_local destructors and in any
// order with the allocator's own; their allocations and frees must work, must not make a new heap
// that is never torn down, and must not make the process grow.

#include <pthread.h>

#include <memory>
#include <string>
#include <vector>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kBatch = 16;
constexpr size_t kSurvivors = 4096;

pthread_key_t keys[4];
std::atomic<void*> survivors[kSurvivors];
std::atomic<size_t> late_rounds{0};

struct Late {
  int rounds_left;
  void* blocks[20];
  std::unique_ptr<std::string> text;
};

void leave_survivor(size_t size, uint64_t seed) {
  auto* block = static_cast<size_t*>(malloc(size + sizeof(size_t)));
  CHECK(block != nullptr);
  *block = size;
  fill_pattern(block + 1, size, size);
  void* old = survivors[seed % kSurvivors].exchange(block);
  if (old == nullptr) return;
  const size_t old_size = *static_cast<size_t*>(old);
  check_pattern(static_cast<size_t*>(old) + 1, old_size, old_size, old_size);
  free(old);
}

// glibc calls key destructors in up to PTHREAD_DESTRUCTOR_ITERATIONS (4) rounds.
template <int kKey>
void destroy(void* argument) {
  auto* late = static_cast<Late*>(argument);
  late_rounds.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < 20; ++i) {
    free(late->blocks[i]);
    late->blocks[i] = calloc(1, i * 300 + 1);
    CHECK(late->blocks[i] != nullptr);
    check_zero(late->blocks[i], i * 300 + 1);
    memset(late->blocks[i], 0x5A, i * 300 + 1);
  }
  late->blocks[0] = realloc(late->blocks[0], 40 * kKiB);
  late->text = std::make_unique<std::string>(500, 'l');
  leave_survivor(64 + static_cast<size_t>(late->rounds_left) * 100,
                 reinterpret_cast<uintptr_t>(late) >> 6);
  if (--late->rounds_left > 0) {
    pthread_setspecific(keys[kKey], late);
    return;
  }
  for (auto& block : late->blocks) free(block);
  delete late;
}

struct ThreadLocal {
  std::vector<std::string> words;
  ~ThreadLocal() {
    words.push_back(std::string(300, 'd'));
    free(malloc(12345));
  }
};

thread_local ThreadLocal thread_local_words;

void* run_thread(void* argument) {
  const auto self = reinterpret_cast<uintptr_t>(argument);
  Random random(self + 1);
  thread_local_words.words.emplace_back(200, 't');
  for (auto key : keys) {
    auto* late = new Late{3, {}, nullptr};
    CHECK(pthread_setspecific(key, late) == 0);
  }
  void* blocks[100];
  for (auto& block : blocks) block = malloc(random.log_uniform(20000));
  for (auto& block : blocks) free(block);
  for (int i = 0; i < 10; ++i) leave_survivor(random.below(3000), random.next());
  return nullptr;
}

void run_batch(size_t first) {
  pthread_t handles[kBatch];
  for (size_t i = 0; i < kBatch; ++i) {
    CHECK(pthread_create(&handles[i], nullptr, run_thread, reinterpret_cast<void*>(first + i)) ==
          0);
  }
  for (auto handle : handles) CHECK(pthread_join(handle, nullptr) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  begin("thread_exit");
  const size_t threads = argument(argc, argv, 1, 20000);
  CHECK(pthread_key_create(&keys[0], destroy<0>) == 0);
  CHECK(pthread_key_create(&keys[1], destroy<1>) == 0);
  CHECK(pthread_key_create(&keys[2], destroy<2>) == 0);
  CHECK(pthread_key_create(&keys[3], destroy<3>) == 0);
  const size_t warm_up = threads / 4;
  size_t started = 0;
  for (; started < warm_up; started += kBatch) run_batch(started);
  const size_t warm = rss_bytes();
  const size_t warm_space = statm_bytes(0);
  for (; started < threads; started += kBatch) run_batch(started);
  const size_t end = rss_bytes();
  const size_t end_space = statm_bytes(0);
  say("%zu threads, %zu late destructor rounds: resident %.1f MiB after %zu, %.1f at the end; "
      "address space %.1f, %.1f",
      started, late_rounds.load(), mib(warm), warm_up, mib(end), mib(warm_space), mib(end_space));
  CHECK(late_rounds.load() >= started * 4 * 3);
  // 1 KiB a thread of leak would be 15 MiB in the full form.
  // How many heaps there are at a time is chance: on a busy machine up to 6 MiB more.
  const size_t allowed = 8 * kMiB + (threads - warm_up) * 256;
  CHECK_MSG(end <= warm + allowed, "resident memory grows with the threads that have ended");
  CHECK_MSG(end_space <= warm_space + 64 * kMiB + allowed, "address space grows with the threads");
  for (auto& slot : survivors) {
    void* block = slot.exchange(nullptr);
    if (block == nullptr) continue;
    const size_t size = *static_cast<size_t*>(block);
    check_pattern(static_cast<size_t*>(block) + 1, size, size, size);
    free(block);
  }
  return 0;
}
