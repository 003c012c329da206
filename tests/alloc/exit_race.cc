// The process ends, in every possible way, while threads continue to allocate and free.
// Usage: exit_race [ROUNDS]
//
// exit handlers and static destructors allocate, too; no part of the allocator may be torn down
// while the threads run, and the exit code must be the program's own.

#include <pthread.h>

#include <map>
#include <string>

#include "support.h"

using namespace alloctest;

namespace {

struct LateUser {
  std::map<int, std::string> names;
  LateUser() {
    for (int i = 0; i < 100; ++i) names[i] = std::string(static_cast<size_t>(i) * 3, 'n');
  }
  ~LateUser() {
    for (int i = 0; i < 2000; ++i) names[i % 300] += "late";
  }
};

LateUser late_user;

void in_exit_handler() {
  for (size_t i = 0; i < 500; ++i) free(realloc(malloc(i * 40), i * 90 + 1));
}

void* churn(void* argument) {
  Random random(reinterpret_cast<uintptr_t>(argument) + 81);
  void* blocks[128] = {};
  for (;;) {
    void*& block = blocks[random.below(128)];
    free(block);
    block = malloc(1 + random.log_uniform(300 * kKiB));
    if (block != nullptr) *static_cast<char*>(block) = 1;
  }
}

[[noreturn]] void run_and_end(size_t round) {
  atexit(in_exit_handler);
  at_quick_exit(in_exit_handler);
  for (size_t i = 0; i < 5; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, churn, reinterpret_cast<void*>(round * 8 + i)) == 0);
    pthread_detach(thread);
  }
  usleep(static_cast<useconds_t>(round * 37 % 3000));
  switch (round % 3) {
    case 0:
      exit(0);
    case 1:
      quick_exit(0);
    default: {
      // The main thread ends; another one ends the process.
      pthread_t last;
      CHECK(pthread_create(
                &last, nullptr,
                [](void*) -> void* {
                  usleep(500);
                  exit(0);
                },
                nullptr) == 0);
      pthread_exit(nullptr);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  begin("exit_race");
  const size_t rounds = argument(argc, argv, 1, 1000);
  for (size_t round = 0; round < rounds; ++round) {
    in_child("ending process", [&] { run_and_end(round); });
  }
  say("%zu processes ended while their threads allocated", rounds);
  return 0;
}
