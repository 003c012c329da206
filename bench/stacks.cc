// bench_stacks exceptions|frames|tails|signals|contexts|plugins|threads COUNT: what `larder lab
// stacks` records: allocations on stacks that are hard to walk.
//
//   exceptions  in destructors, handlers and constructors while exceptions pass
//   frames      below variable, very large and over-aligned frames, and callbacks from the C
//   library tails       below functions that have left by a jump signals     in handlers, on the
//   thread's stack or their own, that interrupt prologues, the C
//               library, system calls, calls through the linkage table
//   contexts    on stacks of coroutines, made by makecontext and by the compiler
//   plugins     in two libraries, each loaded where the other one was
//   threads     in many threads that start and end
//
// COUNT: rounds, of some hundred allocations each.

#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <any>
#include <array>
#include <atomic>
#include <coroutine>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "workload.h"

namespace {

bench::Random shared_random(1);

[[gnu::noinline]] void allocate(std::size_t bytes) { std::free(bench::opaque(std::malloc(bytes))); }

// Runs `act` below `depth` frames of its own.
template <typename Act>
[[gnu::noinline]] std::size_t below(std::size_t depth, const Act& act) {
  if (depth == 0) {
    act();
    return 1;
  }
  return below(depth - 1, act) + 1;
}

struct Noisy {
  explicit Noisy(std::size_t size) : bytes(size) { allocate(size); }
  Noisy(const Noisy&) = delete;
  Noisy& operator=(const Noisy&) = delete;
  ~Noisy() { allocate(bytes); }
  std::size_t bytes;
};

[[gnu::noinline]] std::size_t thrower(std::size_t depth, std::size_t rethrow_at) {
  const Noisy noisy(depth + 16);
  if (depth == 0) throw std::runtime_error("a message that is too long to be kept in place");
  try {
    return thrower(depth - 1, rethrow_at) + 1;
  } catch (const std::logic_error&) {
    return 0;
  } catch (...) {
    allocate(depth + 100);
    if (depth % rethrow_at == 0) {
      std::throw_with_nested(std::invalid_argument(std::string(depth + 40, 'n')));
    }
    throw;
  }
}

std::size_t exceptions() {
  std::size_t caught = 0;
  for (std::size_t depth = 0; depth < 12; depth++) {
    try {
      thrower(depth, 2 + depth % 3);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      caught += text.size();
    }
  }
  return caught;
}

[[gnu::noinline]] std::size_t varying(std::size_t depth) {
  auto* room = static_cast<volatile char*>(alloca((depth + 1) * 24));
  room[0] = static_cast<char>(depth);
  allocate(depth + 8);
  return depth == 0 ? 0 : varying(depth - 1) + static_cast<std::size_t>(room[0]);
}

template <std::size_t alignment>
[[gnu::noinline]] std::size_t aligned(std::size_t depth, const std::function<void()>& act) {
  alignas(alignment) volatile char room[alignment] = {};
  room[depth % alignment] = 1;
  if (depth == 0) {
    act();
    return 0;
  }
  allocate(depth);
  return aligned<alignment>(depth - 1, act) + static_cast<std::size_t>(room[depth % alignment]);
}

// An over-aligned frame whose size is not known either.
[[gnu::noinline]] std::size_t aligned_and_varying(std::size_t depth) {
  alignas(64) volatile char room[64] = {};
  auto* more = static_cast<volatile char*>(alloca(depth * 40 + 1));
  more[0] = 1;
  allocate(depth + 1);
  return depth == 0 ? 0
                    : aligned_and_varying(depth - 1) + static_cast<std::size_t>(room[0] + more[0]);
}

[[gnu::noinline]] std::size_t large_frame(std::size_t depth) {
  volatile char room[20'000];
  room[depth] = 1;
  allocate(depth + 2);
  return depth == 0 ? 0 : large_frame(depth - 1) + static_cast<std::size_t>(room[depth]);
}

[[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]] std::size_t with_frame_pointer(
    std::size_t depth) {
  allocate(depth + 3);
  return depth == 0 ? varying(3) : with_frame_pointer(depth - 1) + 1;
}

// Arguments on the stack, pushed one by one.
[[gnu::noinline]] std::size_t many_arguments(std::size_t a, std::size_t b, std::size_t c,
                                             std::size_t d, std::size_t e, std::size_t f,
                                             std::size_t g, std::size_t h, std::size_t i) {
  allocate(a + 5);
  return a == 0 ? b + c + d + e + f + g + h + i : many_arguments(a - 1, i, b, c, d, e, f, g, h) + 1;
}

int compare(const void* left, const void* right) {
  allocate(33);
  return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

std::size_t frames() {
  std::size_t sum = varying(8) + large_frame(4) + with_frame_pointer(6);
  sum += many_arguments(6, 1, 2, 3, 4, 5, 6, 7, 8) + aligned_and_varying(5);
  sum += aligned<32>(4, [] { aligned<128>(3, [] { allocate(70); }); });
  sum += aligned<4096>(2, [] { varying(4); });
  std::array<int, 9> values = {5, 3, 8, 1, 9, 2, 7, 4, 6};
  std::qsort(values.data(), values.size(), sizeof values[0], compare);
  std::map<std::string, std::any> map;
  for (const int value : values)
    map[std::string(30, 'k') + std::to_string(value)] = std::string(40, 'v');
  const std::regex pattern("(a|b)*c[0-9]+");
  sum += static_cast<std::size_t>(std::regex_match(std::string("ababababc12345"), pattern));
  std::ostringstream out;
  for (const auto& entry : map) out << entry.first;
  return sum + out.str().size();
}

using Jump = std::size_t (*)(std::size_t, void**);

[[gnu::noinline]] std::size_t tail_first(std::size_t depth, void** keep);
[[gnu::noinline]] std::size_t tail_second(std::size_t depth, void** keep);
const std::array<Jump, 2> volatile_jumps = {tail_first, tail_second};

std::size_t tail_first(std::size_t depth, void** keep) {
  allocate(depth + 9);
  if (depth == 0) return 0;
  return volatile_jumps[shared_random.below(2)](depth - 1, keep);
}

std::size_t tail_second(std::size_t depth, void** keep) {
  volatile std::size_t room[7] = {depth};
  allocate(room[0] + 11);
  if (depth % 5 == 0) return depth == 0 ? 0 : volatile_jumps[0](depth - 1, keep) + 1;
  return volatile_jumps[1](depth - 1, keep);
}

// The jump goes to malloc itself: the innermost frame is the caller's caller's.
[[gnu::noinline]] void* tail_of_malloc(std::size_t bytes) { return std::malloc(bytes); }

std::size_t tails() {
  std::size_t sum = 0;
  for (std::size_t depth = 0; depth < 12; depth++) {
    sum += volatile_jumps[depth % 2](depth, nullptr);
    std::free(bench::opaque(tail_of_malloc(depth + 1)));
  }
  return sum;
}

std::atomic<std::size_t> handled;

void handle(int) {
  allocate(64);
  below(handled++ % 5, [] { allocate(48); });
}

[[gnu::noinline]] std::size_t collatz(std::size_t value) {
  if (value <= 1) return 1;
  return collatz(value % 2 == 0 ? value / 2 : 3 * value + 1) + 1;
}

[[gnu::noinline]] std::size_t pushes(std::size_t a, std::size_t b) {
  volatile std::size_t room[5] = {a, b, a + b, a * b, a ^ b};
  if (a == 0) return room[4];
  const std::size_t first = pushes(a - 1, room[2]);
  return first + room[a % 5] + (a % 7 == 0 ? pushes(a / 2, first) : 0);
}

int compare_quietly(const void* left, const void* right) {
  return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

// Does not allocate: a handler that interrupts malloc could wait for itself.
std::size_t interrupted_work() {
  std::size_t sum = collatz(27) + pushes(24, 3);
  std::array<int, 64> values{};
  for (int& value : values) value = static_cast<int>(shared_random.below(1000));
  std::qsort(values.data(), values.size(), sizeof values[0], compare_quietly);
  std::array<char, 512> text{};
  sum += static_cast<std::size_t>(
      std::snprintf(text.data(), text.size(), "%d %zu %s", values[3], sum, "text"));
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  sum += aligned<64>(0, {[] {}}) + std::strlen(text.data());
  return sum + static_cast<std::size_t>(getppid()) + static_cast<std::size_t>(now.tv_nsec);
}

std::size_t signals() {
  static std::array<char, 1 << 16> alternate;
  const stack_t stack = {.ss_sp = alternate.data(), .ss_flags = 0, .ss_size = alternate.size()};
  sigaltstack(&stack, nullptr);
  std::size_t sum = 0;
  for (const int flags : {0, SA_ONSTACK}) {
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART | flags;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often = {.it_interval = {.tv_sec = 0, .tv_usec = 100}, .it_value = {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
    for (const std::size_t wanted = handled + 100; handled < wanted;) sum += interrupted_work();
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
  }
  return sum;
}

ucontext_t home;
std::array<ucontext_t, 4> contexts;
std::array<std::array<char, 1 << 16>, 4> context_stacks;

void context_body(int number) {
  for (int round = 0; round < 4; round++) {
    below(static_cast<std::size_t>(number * 3 + round), [] { allocate(90); });
    swapcontext(&contexts[static_cast<std::size_t>(number)], &home);
  }
}

struct Generator {
  struct promise_type {
    std::size_t value = 0;
    Generator get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(std::size_t given) {
      value = given;
      return {};
    }
    static void return_void() {}
    static void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Generator generate(std::size_t count) {
  for (std::size_t i = 0; i < count; i++) {
    const std::string text(40 + i, 'g');
    below(i, [] { allocate(55); });
    co_yield text.size();
  }
}

std::size_t contexts_round() {
  for (std::size_t i = 0; i < contexts.size(); i++) {
    getcontext(&contexts[i]);
    contexts[i].uc_stack = {
        .ss_sp = context_stacks[i].data(), .ss_flags = 0, .ss_size = context_stacks[i].size()};
    contexts[i].uc_link = &home;
    // NOLINTNEXTLINE(*-reinterpret-cast): the type that makecontext wants
    makecontext(&contexts[i], reinterpret_cast<void (*)()>(context_body), 1, static_cast<int>(i));
  }
  for (int round = 0; round < 5; round++) {
    for (ucontext_t& context : contexts) {
      swapcontext(&home, &context);
      allocate(21);
    }
  }
  std::size_t sum = 0;
  const Generator generator = generate(10);
  while (generator.handle.resume(), !generator.handle.done()) {
    sum += generator.handle.promise().value;
  }
  generator.handle.destroy();
  return sum;
}

std::size_t plugins() {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::size_t sum = 0;
  for (const char* name : {"libbench_plugin_one.so", "libbench_plugin_two.so"}) {
    void* library = dlopen((folder / name).c_str(), RTLD_NOW);
    if (!library) {
      std::fprintf(stderr, "bench_stacks: %s\n", dlerror());
      std::exit(2);
    }
    // NOLINTNEXTLINE(*-reinterpret-cast): what dlsym is for
    auto* work = reinterpret_cast<std::size_t (*)(std::size_t)>(dlsym(library, "plugin_work"));
    for (std::size_t depth = 0; depth < 20; depth++) sum += work(depth);
    dlclose(library);
  }
  return sum;
}

std::size_t threads() {
  std::vector<std::thread> all;
  for (std::size_t number = 0; number < 6; number++) {
    all.emplace_back([number] {
      std::map<std::size_t, std::string> words;
      for (std::size_t i = 0; i < 40; i++) {
        below(i % 9, [&] { words[i * number] = std::string(20 + i, 'w'); });
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  return all.size();
}

const std::map<std::string_view, std::size_t (*)()> kKinds = {
    {"exceptions", exceptions},   {"frames", frames},   {"tails", tails},    {"signals", signals},
    {"contexts", contexts_round}, {"plugins", plugins}, {"threads", threads}};

}  // namespace

int main(int argc, char** argv) {
  const auto kind = kKinds.find(argc > 1 ? argv[1] : "");
  if (kind == kKinds.end()) {
    std::fprintf(stderr, "usage: bench_stacks KIND COUNT, with KIND one of");
    for (const auto& known : kKinds) std::fprintf(stderr, " %s", std::string(known.first).c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::size_t rounds = bench::work(bench::number(argc, argv, 2, "the number of rounds"));
  const bench::Stopwatch stopwatch;
  std::size_t result = 0;
  for (std::size_t round = 0; round < rounds; round++) result += kind->second();
  bench::opaque(result);
  stopwatch.report(rounds);
  return 0;
}
