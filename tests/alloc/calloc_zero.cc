// calloc returns zeros for recycled memory of every size and history: freed small objects, spans,
// large and huge objects, tails freed by realloc, memory freed by other threads, purged memory that
// is reused, and sizes whose objects overlap those of another class.

#include <pthread.h>

#include "../clock.h"
#include "support.h"

using namespace alloctest;

namespace {

constexpr unsigned char kDirt = 0xA5;

void* dirty(size_t size) {
  void* block = malloc(size);
  CHECK(block != nullptr);
  // All the program may write to, slack included.
  memset(block, kDirt, malloc_usable_size(block));
  return block;
}

void expect_zeroed(size_t size) {
  void* block = calloc(1, size);
  CHECK_MSG(block != nullptr, "calloc(%zu) failed", size);
  check_zero(block, size);
  memset(block, kDirt, malloc_usable_size(block));
  free(block);
}

void same_size_again() {
  for (size_t size = 0; size <= 5000; ++size) {
    void* blocks[6];
    for (auto& block : blocks) block = dirty(size);
    for (auto& block : blocks) free(block);
    for (int i = 0; i < 6; ++i) expect_zeroed(size);
  }
  for (size_t size = 5000; size < 40 * kMiB; size += size / 3) {
    for (int i = 0; i < 3; ++i) {
      free(dirty(size));
      expect_zeroed(size);
      expect_zeroed(size - size / 10);
    }
  }
}

// Fills memory with blocks of one size, frees it, and requests zeros in another.
void other_size_on_the_same_memory() {
  const size_t sizes[] = {8,         48,        100,      1000,     3000,     9000,    20 * kKiB,
                          33 * kKiB, 70 * kKiB, kMiB / 2, kMiB + 1, 3 * kMiB, 9 * kMiB};
  static void* blocks[1 << 20];
  for (size_t first : sizes) {
    for (size_t second : sizes) {
      const size_t total = first < 100 ? 2 * kMiB : 8 * kMiB;
      const size_t count = total / first + 1;
      for (size_t i = 0; i < count; ++i) blocks[i] = dirty(first);
      for (size_t i = 0; i < count; ++i) free(blocks[i]);
      if (first > second) malloc_trim(0);
      const size_t again = total / second + 1;
      for (size_t i = 0; i < again; ++i) {
        blocks[i] = calloc(1, second);
        CHECK(blocks[i] != nullptr);
        check_zero(blocks[i], second);
        memset(blocks[i], kDirt, second);
      }
      for (size_t i = 0; i < again; ++i) free(blocks[i]);
    }
  }
}

void tails_of_shrunk_blocks() {
  for (size_t size = 64 * kKiB; size <= 40 * kMiB; size *= 3) {
    for (int i = 0; i < 10; ++i) {
      void* block = realloc(dirty(size), size / 5);
      CHECK(block != nullptr);
      void* fresh = calloc(1, size / 2);
      CHECK(fresh != nullptr);
      check_zero(fresh, size / 2);
      // Grown again: the added part may have any contents, but a later calloc must not.
      block = realloc(block, size);
      memset(block, kDirt, size);
      free(block);
      memset(fresh, kDirt, size / 2);
      free(fresh);
      expect_zeroed(size);
    }
  }
}

void* free_all(void* argument) {
  auto** blocks = static_cast<void**>(argument);
  for (int i = 0; i < 3000; ++i) free(blocks[i]);
  return nullptr;
}

void freed_by_another_thread() {
  static void* blocks[3000];
  for (int round = 0; round < 20; ++round) {
    Random random(static_cast<uint64_t>(round) + 41);
    for (auto& block : blocks) block = dirty(random.log_uniform(30000));
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, free_all, blocks) == 0);
    CHECK(pthread_join(thread, nullptr) == 0);
    for (int i = 0; i < 3000; ++i) expect_zeroed(random.log_uniform(60000));
  }
}

void after_the_decay() {
  static void* blocks[64];
  for (auto& block : blocks) block = dirty(kMiB + 12345);
  for (auto& block : blocks) free(block);
  for (int i = 0; i < 12; ++i) {
    test_clock::pass_ms(100);
    expect_zeroed(700 * kKiB);
    expect_zeroed(3 * kMiB);
  }
  for (auto& block : blocks) {
    block = calloc(kMiB, 1);
    check_zero(block, kMiB);
  }
  for (auto& block : blocks) free(block);
}

}  // namespace

int main() {
  begin("calloc_zero");
  same_size_again();
  other_size_on_the_same_memory();
  tails_of_shrunk_blocks();
  freed_by_another_thread();
  after_the_decay();
  say("recycled memory is zero");
  return 0;
}
