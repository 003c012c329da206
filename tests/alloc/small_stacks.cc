// Threads with the smallest stack that libc allows, and a signal handler on an alternate one, run
// every slow path: the allocator must not need much stack. Usage: small_stacks

#include <pthread.h>

#include "support.h"

using namespace alloctest;

namespace {

void use_everything(uint64_t seed) {
  Random random(seed);
  void* blocks[64] = {};
  for (int i = 0; i < 4000; ++i) {
    void*& block = blocks[random.below(64)];
    const size_t kind = random.below(200);
    const size_t size = kind == 0   ? random.below(20 * kMiB)
                        : kind < 10 ? random.below(2 * kMiB)
                                    : random.log_uniform(60000);
    switch (random.below(5)) {
      case 0:
        free(block);
        block = calloc(1, size);
        break;
      case 1:
        block = realloc(block, size + 1);
        break;
      case 2:
        free(block);
        block = aligned_alloc(size_t{64} << random.below(12), size);
        break;
      default:
        free(block);
        block = malloc(size);
    }
    CHECK(block != nullptr);
    if (size > 0) *static_cast<char*>(block) = 1;
  }
  malloc_trim(0);
  static_cast<void>(mallinfo2());
  for (auto& block : blocks) free(block);
}

void* run_thread(void* argument) {
  use_everything(reinterpret_cast<uintptr_t>(argument) + 61);
  return nullptr;
}

volatile sig_atomic_t handled = 0;

// Raised synchronously between two calls of the allocator: legal to allocate in.
void on_signal(int) {
  use_everything(71);
  handled = 1;
}

void* raise_on_alternate_stack(void*) {
  const size_t bytes = static_cast<size_t>(sysconf(_SC_MINSIGSTKSZ)) + 12 * kKiB;
  stack_t stack = {};
  stack.ss_size = bytes;
  stack.ss_sp = malloc(bytes);
  CHECK(sigaltstack(&stack, nullptr) == 0);
  CHECK(raise(SIGUSR2) == 0);
  CHECK(handled == 1);
  stack.ss_flags = SS_DISABLE;
  CHECK(sigaltstack(&stack, nullptr) == 0);
  free(stack.ss_sp);
  return nullptr;
}

}  // namespace

int main() {
  begin("small_stacks");
  const auto least = static_cast<size_t>(sysconf(_SC_THREAD_STACK_MIN));
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, least) == 0);
  pthread_t threads[8];
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < 8; ++i) {
      CHECK(pthread_create(&threads[i], &attributes, run_thread, reinterpret_cast<void*>(i)) == 0);
    }
    for (auto thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  }
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  CHECK(sigaction(SIGUSR2, &action, nullptr) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, raise_on_alternate_stack, nullptr) == 0);
  CHECK(pthread_join(thread, nullptr) == 0);
  say("stacks of %zu bytes suffice", least);
  return 0;
}
