// The program of variables.py: uses the heap in one way, checks every byte, and prints results as
// `name=value`.
//
//   places     counts blocks by their mapping's name in /proc/self/maps, and survives a fork
//   again      fills memory until `places` change, frees all, and prints where the next block lies
//   refused    allocates while the kernel refuses mmap
//   decay      prints how long free memory stays
//   cache      prints what the thread caches
//   large      allocates one block of 2,000,000 bytes, twice
//   limit      allocates 200 MiB
//   limits     prints both limits, in bytes

#include <gperftools/malloc_extension_c.h>
#include <larder/larder.h>

#include <map>
#include <string>
#include <vector>

#include "../alloc/seccomp_filter.h"
#include "../alloc/support.h"
#include "../clock.h"

using namespace alloctest;

namespace {

struct Mapping {
  uintptr_t begin, end;
  std::string name;
};

std::vector<Mapping> mappings() {
  std::vector<Mapping> all;
  FILE* maps = fopen("/proc/self/maps", "r");
  CHECK(maps != nullptr);
  char line[4096];
  while (fgets(line, sizeof line, maps) != nullptr) {
    Mapping m;
    char flags[8] = "", path[3000] = "";
    CHECK(sscanf(line, "%lx-%lx %7s %*s %*s %*s %2999[^\n]", &m.begin, &m.end, flags, path) >= 3);
    m.name = path[0] == 0 ? "anonymous" : path;
    if (flags[3] == 's') m.name += " shared";
    all.push_back(m);
  }
  fclose(maps);
  return all;
}

std::string place_of(const std::vector<Mapping>& all, const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  for (const auto& m : all)
    if (at >= m.begin && at < m.end) return m.name;
  return "nowhere";
}

struct Block {
  unsigned char* p;
  size_t size;
  uint64_t key;
};

void check(const Block& b) { check_pattern(b.p, b.size, b.size, b.key); }

Block make(Random& random, size_t size) {
  Block b = {nullptr, size, random.next()};
  if (random.below(3) == 0) {
    b.p = static_cast<unsigned char*>(calloc(1, size));
    CHECK(b.p != nullptr);
    check_zero(b.p, size);
  } else {
    b.p = static_cast<unsigned char*>(malloc(size));
    CHECK(b.p != nullptr);
  }
  fill_pattern(b.p, size, b.key);
  return b;
}

void churn(std::vector<Block>* blocks, Random& random, int turns) {
  for (int i = 0; i < turns; ++i) {
    Block& b = (*blocks)[random.below(blocks->size())];
    check(b);
    const size_t size = 1 + random.log_uniform(4 << 20);
    if (random.below(2) == 0) {
      free(b.p);
      b = make(random, size);
    } else {
      const size_t before = b.size;
      b.p = static_cast<unsigned char*>(realloc(b.p, size));
      CHECK(b.p != nullptr);
      check_pattern(b.p, before, before < size ? before : size, b.key);
      b.size = size;
      fill_pattern(b.p, size, b.key);
    }
    if (i % 500 == 0) MallocExtension_ReleaseFreeMemory();
  }
}

int places() {
  Random random(7);
  std::vector<Block> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(make(random, 1 + random.log_uniform(2 << 20)));
  churn(&blocks, random, 300);
  // A child has a heap of its own, whatever it and its parent do.
  in_child("the child's heap", [&] {
    Random other(8);
    churn(&blocks, other, 100);
    for (const auto& b : blocks) check(b);
  });
  for (const auto& b : blocks) check(b);
  churn(&blocks, random, 100);
  const auto all = mappings();
  std::map<std::string, size_t> count;
  for (const auto& b : blocks) ++count[place_of(all, b.p)];
  for (const auto& [name, n] : count) printf("%s=%zu\n", name.c_str(), n);
  for (const auto& b : blocks) {
    check(b);
    free(b.p);
  }
  return 0;
}

int again() {
  std::vector<void*> blocks;
  std::string first;
  for (int i = 0; i < 2000; ++i) {
    blocks.push_back(malloc(200'000));
    memset(blocks.back(), 1, 200'000);
    const std::string place = place_of(mappings(), blocks.back());
    if (i == 0) first = place;
    if (place != first) break;
  }
  printf("filled=%zu\n", blocks.size());
  for (void* p : blocks) free(p);
  MallocExtension_ReleaseFreeMemory();
  void* p = malloc(3 << 20);  // a mapping of its own
  printf("again=%s\n", place_of(mappings(), p).c_str());
  free(p);
  return 0;
}

int refused() {
  free(malloc(100));
  SeccompFilter filter;
  filter.rule(SYS_mmap, SECCOMP_RET_ERRNO | ENOMEM);
  filter.install(SECCOMP_RET_ALLOW);
  size_t served = 0;
  for (int i = 0; i < 100; ++i)
    if (void* p = malloc(500'000)) {
      memset(p, 1, 500'000);
      ++served;
    }
  printf("served=%zu\n", served);
  return 0;
}

int decay() {
  test_clock::stop();
  std::vector<void*> blocks(128);
  for (auto& b : blocks) {
    b = malloc(512 * 1024);
    memset(b, 1, 512 * 1024);
  }
  const size_t full = rss_bytes();
  for (auto& b : blocks) free(b);
  int stays_ms = 0;
  for (; stays_ms < 3000 && rss_bytes() > full - (32 << 20); stays_ms += 10) {
    // Two at once: one alone would come from the one-entry cache, and nothing would look at the
    // time.
    void* first = malloc(900'000);
    free(malloc(900'000));
    free(first);
    test_clock::pass_ms(10);
  }
  printf("stays_ms=%d\n", stays_ms);
  return 0;
}

int cache() {
  std::vector<void*> blocks(400);
  for (int round = 0; round < 20; ++round) {
    for (auto& b : blocks) b = malloc(20'000);
    for (auto& b : blocks) free(b);
  }
  size_t kept = 0;
  CHECK(MallocExtension_GetNumericProperty("tcmalloc.current_total_thread_cache_bytes", &kept));
  printf("kept=%zu\n", kept);
  return 0;
}

int large() {
  for (int i = 0; i < 2; ++i) {
    void* p = malloc(2'000'000);
    void* q = malloc(1000);
    CHECK(p != nullptr && q != nullptr);
    printf("block=%p\n", p);
  }
  return 0;
}

int limit() {
  void* p = malloc(size_t{200} << 20);
  printf("granted=%d\n", p != nullptr);
  free(p);
  p = malloc(1000);
  CHECK(p != nullptr);
  return 0;
}

int limits() {
  printf("soft=%zu\nhard=%zu\n", larder_get_limit(LARDER_SOFT_LIMIT),
         larder_get_limit(LARDER_HARD_LIMIT));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  test_name = "gperftools_worker";
  watchdog();
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "places") return places();
  if (mode == "again") return again();
  if (mode == "refused") return refused();
  if (mode == "decay") return decay();
  if (mode == "cache") return cache();
  if (mode == "large") return large();
  if (mode == "limit") return limit();
  if (mode == "limits") return limits();
  return 2;
}
