// Sampling with all interruptions: a thousand signals a second, queued, so that each is delivered,
// whose handlers allocate; children of fork that allocate, libraries that are loaded and unloaded,
// threads that start and end, and profiles that are written meanwhile. Each must make progress; the
// watchdog ends a hang. Usage: profile_storm PLUGIN [SECONDS]

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "support.h"

using namespace alloctest;

namespace {

std::atomic<bool> stop{false};
std::atomic<size_t> sent{0}, signals{0}, pairs{0}, threads{0};
volatile void* sink;

void on_signal(int) {
  signals.fetch_add(1, std::memory_order_relaxed);
  void* block = malloc(100);
  sink = block;
  free(block);
}

void* send_signals(void*) {
  const double start = seconds_now();
  while (!stop.load()) {
    const auto due = static_cast<size_t>((seconds_now() - start) * 1000);
    // A full queue is emptied soon.
    while (sent.load() < due && sigqueue(getpid(), SIGRTMIN, {}) == 0) sent.fetch_add(1);
    sleep_ms(1);
  }
  return nullptr;
}

[[gnu::noinline]] void allocate(Random& random, void** blocks, int depth) {
  if (depth > 0) {
    allocate(random, blocks, depth - 1);
    sink = blocks;  // no tail call
    return;
  }
  for (int i = 0; i < 50; ++i) {
    void*& block = blocks[random.below(256)];
    free(block);
    const size_t size = random.log_uniform(200 * kKiB);
    block = malloc(size);
    CHECK(block != nullptr);
    if (size > 0) memset(block, 1, size < 100 ? size : 100);
    pairs.fetch_add(1, std::memory_order_relaxed);
  }
}

void* churn(void* argument) {
  Random random(reinterpret_cast<uintptr_t>(argument) + 3);
  void* blocks[256] = {};
  const size_t rounds = 20 + random.below(300);
  for (size_t i = 0; i < rounds && !stop.load(std::memory_order_relaxed); ++i)
    allocate(random, blocks, static_cast<int>(random.below(40)));
  for (auto& block : blocks) free(block);
  return nullptr;
}

void* start_threads(void* argument) {
  for (auto n = reinterpret_cast<uintptr_t>(argument); !stop.load(); n += 2) {
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, churn, reinterpret_cast<void*>(n)) == 0);
    pthread_join(thread, nullptr);
    threads.fetch_add(1);
  }
  return nullptr;
}

void fork_one() {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    watchdog();
    Random random(7);
    void* blocks[256] = {};
    for (int i = 0; i < 20; ++i) allocate(random, blocks, 10);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child of fork ends with %x", status);
}

void load_and_unload(const char* plugin) {
  void* library = dlopen(plugin, RTLD_NOW);
  CHECK_MSG(library != nullptr, "dlopen %s: %s", plugin, dlerror());
  auto make = reinterpret_cast<void* (*)(size_t)>(dlsym(library, "plugin_malloc"));
  CHECK(make != nullptr);
  for (int i = 0; i < 50; ++i) free(make(3000));
  dlclose(library);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_MSG(argc >= 2, "usage: profile_storm PLUGIN [SECONDS]");
  const size_t seconds = argument(argc, argv, 2, 5);
  begin("profile_storm");
  auto write_to = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "larder_profile_write"));
  CHECK(write_to != nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGRTMIN, &action, nullptr) == 0);

  pthread_t sender, starters[2];
  CHECK(pthread_create(&sender, nullptr, send_signals, nullptr) == 0);
  for (uintptr_t i = 0; i < 2; ++i)
    CHECK(pthread_create(&starters[i], nullptr, start_threads, reinterpret_cast<void*>(i)) == 0);
  const int profile = static_cast<int>(syscall(SYS_memfd_create, "profile", 0));
  CHECK(profile >= 0);
  size_t forks = 0, loads = 0, profiles = 0;
  for (const double start = seconds_now(); seconds_now() < start + static_cast<double>(seconds);) {
    const size_t before = pairs.load();
    fork_one();
    ++forks;
    load_and_unload(argv[1]);
    ++loads;
    CHECK(lseek(profile, 0, SEEK_SET) == 0 && write_to(profile) == 0);
    ++profiles;
    while (pairs.load() == before) sleep_ms(1);
  }
  stop.store(true);
  pthread_join(sender, nullptr);
  for (auto& starter : starters) pthread_join(starter, nullptr);
  while (signals.load() < sent.load()) sleep_ms(1);
  say("%zu s: %zu signals, %zu forks, %zu loads, %zu profiles, %zu threads, %zu pairs", seconds,
      signals.load(), forks, loads, profiles, threads.load(), pairs.load());
  CHECK(signals.load() == sent.load() && forks > 0 && threads.load() > 0);
  return 0;
}
