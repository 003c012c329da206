// The pool, the arena and the counted buffer beside others.
#include <larder/kit/arena.h>
#include <larder/kit/buffer.h>
#include <larder/kit/pool.h>
#include <obstack.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <string_view>

#include "compare.h"

#if HAVE_BOOST
#include <boost/pool/pool.hpp>
#endif
#if HAVE_ABSL
#include <absl/strings/cord.h>
#endif
#if HAVE_GLIB
#include <glib.h>
#endif

#define obstack_chunk_alloc std::malloc
#define obstack_chunk_free std::free

namespace {

constexpr size_t kObjects = 1000;
constexpr size_t kSize = 40;

// All are allocated and freed in random order, as a tree's nodes are. `get` and `put` are the pool.
template <typename Get, typename Put>
uint64_t churn(Get get, Put put) {
  static void* objects[kObjects];
  for (void*& object : objects) {
    object = get();
    *static_cast<uint64_t*>(object) = 1;
  }
  uint64_t state = 1, sum = 0;
  for (size_t i = 0; i < kObjects; i++) {
    void*& object = objects[random_number(&state) % kObjects];
    sum += *static_cast<uint64_t*>(object);
    put(object);
    object = get();
    *static_cast<uint64_t*>(object) = 1;
  }
  for (void* object : objects) {
    put(object);
  }
  return sum;
}

Task pool_task() {
  Task task{"pool", "get and put an object of 40 bytes", 2 * kObjects};
  task.add("kit", [] {
    larder_pool pool;
    larder_pool_init(&pool, kSize);
    uint64_t sum =
        churn([&] { return larder_pool_get(&pool); }, [&](void* p) { larder_pool_put(&pool, p); });
    larder_pool_release(&pool);
    return sum;
  });
  task.add("malloc", [] { return churn([] { return std::malloc(kSize); }, std::free); });
#if HAVE_BOOST
  task.add("boost::pool", [] {
    boost::pool<> pool(kSize);
    return churn([&] { return pool.malloc(); }, [&](void* p) { pool.free(p); });
  });
#endif
#if HAVE_GLIB
  task.add("GSlice", [] {
    return churn([] { return g_slice_alloc(kSize); }, [](void* p) { g_slice_free1(kSize, p); });
  });
#endif
  return task;
}

constexpr size_t size_at(size_t i) { return 16 + i * 8 % 96; }

template <typename Allocate>
uint64_t allocate_all(Allocate allocate) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kObjects; i++) {
    auto* p = static_cast<char*>(allocate(size_at(i)));
    *p = 1;
    keep(p);
    sum += uint64_t(*p);
  }
  return sum;
}

Task arena_task() {
  Task task{"arena", "allocate 16 to 104 bytes; all are freed at once", kObjects};
  task.add("kit", [] {
    larder_arena arena;
    larder_arena_init(&arena, 16 << 10);
    uint64_t sum = allocate_all([&](size_t size) { return larder_arena_alloc(&arena, size); });
    larder_arena_release(&arena);
    return sum;
  });
  task.add("kit, kept", [] {
    static larder_arena arena = [] {
      larder_arena made;
      larder_arena_init(&made, 16 << 10);
      return made;
    }();
    uint64_t sum = allocate_all([&](size_t size) { return larder_arena_alloc(&arena, size); });
    larder_arena_reset_all(&arena);
    return sum;
  });
  task.add("malloc", [] {
    static void* objects[kObjects];
    size_t next = 0;
    uint64_t sum = allocate_all([&](size_t size) { return objects[next++] = std::malloc(size); });
    for (void* object : objects) {
      std::free(object);
    }
    return sum;
  });
  task.add("std::pmr::monotonic_buffer_resource", [] {
    std::pmr::monotonic_buffer_resource arena(16 << 10);
    return allocate_all([&](size_t size) { return arena.allocate(size); });
  });
  task.add("obstack", [] {
    obstack arena;
    obstack_begin(&arena, 16 << 10);
    uint64_t sum = allocate_all([&](size_t size) { return obstack_alloc(&arena, size); });
    obstack_free(&arena, nullptr);
    return sum;
  });
  return task;
}

constexpr size_t kLines = 100;
constexpr size_t kLineSize = 80;

const std::string& lines() {
  static const std::string all = [] {
    std::string made;
    for (size_t i = 0; i < kLines; i++) {
      made += std::string(kLineSize - 1, char('a' + i % 26)) + '\n';
    }
    return made;
  }();
  return all;
}

// Takes all lines off an input, keeps all of them, then drops them.
uint64_t split_buffer(larder_buffer_sharing sharing) {
  larder_buffer input;
  std::vector<larder_buffer> parts(kLines);
  uint64_t sum = 0;
  larder_buffer_init(&input, sharing);
  (void)larder_buffer_append(&input, lines().data(), lines().size());
  for (larder_buffer& part : parts) {
    larder_buffer_split_front(&input, kLineSize, &part);
  }
  larder_buffer_release(&input);
  for (larder_buffer& part : parts) {
    sum += uint64_t(part.data[0]);
    larder_buffer_release(&part);
  }
  return sum;
}

template <typename Part, typename Cut, typename First>
uint64_t split_input(Cut cut, First first) {
  std::vector<Part> parts(kLines);
  uint64_t sum = 0;
  for (size_t i = 0; i < kLines; i++) {
    parts[i] = cut(i * kLineSize);
  }
  for (Part& part : parts) {
    sum += uint64_t(first(part));
    part = Part();
  }
  return sum;
}

#if HAVE_GLIB
uint64_t split_glib() {
  GBytes* input = g_bytes_new(lines().data(), lines().size());
  std::vector<GBytes*> parts(kLines);
  uint64_t sum = 0;
  for (size_t i = 0; i < kLines; i++) {
    parts[i] = g_bytes_new_from_bytes(input, i * kLineSize, kLineSize);
  }
  g_bytes_unref(input);
  for (GBytes* part : parts) {
    sum += uint64_t(*static_cast<const char*>(g_bytes_get_data(part, nullptr)));
    g_bytes_unref(part);
  }
  return sum;
}
#endif

Task buffer_task() {
  Task task{"buffer", "take a line of 80 bytes off, keep it, drop it", kLines};
  task.add("kit", [] { return split_buffer(LARDER_BUFFER_ONE_THREAD); });
  task.add("kit, threads", [] { return split_buffer(LARDER_BUFFER_THREADS); });
  task.add("std::string", [] {
    std::string input = lines();
    return split_input<std::string>([&](size_t at) { return input.substr(at, kLineSize); },
                                    [](const std::string& part) { return part[0]; });
  });
  task.add("std::shared_ptr", [] {
    auto input = std::make_shared<std::string>(lines());
    using Part = std::pair<std::shared_ptr<std::string>, std::string_view>;
    return split_input<Part>(
        [&](size_t at) { return Part(input, std::string_view(*input).substr(at, kLineSize)); },
        [](const Part& part) { return part.second[0]; });
  });
#if HAVE_ABSL
  task.add("absl::Cord", [] {
    absl::Cord input(lines());
    return split_input<absl::Cord>([&](size_t at) { return input.Subcord(at, kLineSize); },
                                   [](const absl::Cord& part) { return part[0]; });
  });
#endif
#if HAVE_GLIB
  task.add("GBytes", split_glib);
#endif
  return task;
}

}  // namespace

std::vector<Task> memory_tasks() { return {pool_task(), arena_task(), buffer_task()}; }
