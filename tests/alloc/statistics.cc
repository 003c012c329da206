// The statistics explain the process's memory: after each of several workloads the sum of all kinds
// = mapped memory, and the sum of their resident memory = the process's, without its own, within 3
// %. Prints the figures: docs/reference/statistics.md shows them.
//
// Usage: alloc_statistics [JSON_FILE]: writes the statistics there, and waits for a signal.

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "larder_stats_probe.h"

namespace {

using alloctest::read_larder_stats;

// Bytes of a figure of /proc/self/smaps_rollup.
size_t rollup(const char* name) {
  char text[4096];
  int file = open("/proc/self/smaps_rollup", O_RDONLY);
  CHECK_MSG(file >= 0, "no /proc/self/smaps_rollup");
  ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  CHECK_MSG(n > 0, "empty smaps_rollup");
  text[n] = 0;
  const char* at = strstr(text, name);
  CHECK_MSG(at != nullptr, "smaps_rollup lacks a figure");
  return strtoull(at + strlen(name), nullptr, 10) << 10;
}

struct Look {
  larder_stats stats;
  size_t anonymous;  // in memory, of the whole process
};

Look look() {
  Look now = {};
  // Read twice: the first time allocates the memory for reading.
  for (int i = 0; i < 2; ++i) {
    if (!read_larder_stats(&now.stats)) exit(0);
    now.anonymous = rollup("\nAnonymous:");
  }
  return now;
}

size_t sum_of_kinds(const larder_stats& s) {
  return s.in_use + s.slab_free + s.slab_uncarved + s.slab_tail + s.sample_slabs + s.heap_runs +
         s.page_heap_dirty + s.page_heap_clean + s.kept_mappings + s.metadata;
}

size_t sum_of_resident(const larder_stats& s) {
  return s.resident_in_use + s.resident_slab_free + s.resident_slab_uncarved +
         s.resident_slab_tail + s.resident_sample_slabs + s.resident_heap_runs +
         s.resident_page_heap_dirty + s.resident_page_heap_clean + s.resident_kept_mappings +
         s.resident_metadata;
}

void judge(const char* workload, const Look& start, const Look& now) {
  const larder_stats& s = now.stats;
  CHECK_MSG(sum_of_kinds(s) == s.mapped, "the kinds do not add up to what is mapped");
  CHECK_MSG(sum_of_resident(s) == s.resident, "the parts do not add up to the sum");
  size_t own = start.anonymous - start.stats.resident;
  double process = double(now.anonymous - own), error = 100 * (double(s.resident) / process - 1);
  printf("%-22s %10.1f %10.1f %+7.2f %%   %8.1f %8.1f %8.1f %8.1f\n", workload, process / (1 << 20),
         double(s.resident) / (1 << 20), error, double(s.resident_in_use) / (1 << 20),
         double(s.resident_slab_free + s.resident_slab_uncarved + s.resident_slab_tail) / (1 << 20),
         double(s.resident_page_heap_dirty + s.resident_kept_mappings + s.resident_heap_runs) /
             (1 << 20),
         double(s.resident_metadata) / (1 << 20));
  CHECK_MSG(error < 3 && error > -3, "the sum does not explain the process's memory");
}

using Blocks = std::vector<void*>;

void* filled(size_t bytes) {
  void* p = malloc(bytes);
  CHECK_MSG(p != nullptr, "no memory");
  memset(p, 1, bytes);
  return p;
}

Blocks fill(size_t total, size_t least, size_t most) {
  std::mt19937_64 random(least + most);
  Blocks blocks;
  for (size_t sum = 0; sum < total; sum += malloc_usable_size(blocks.back()))
    blocks.push_back(filled(least + random() % (most - least + 1)));
  return blocks;
}

// Frees all but one in `keep_one_of`.
void thin_out(Blocks& blocks, size_t keep_one_of) {
  Blocks kept;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % keep_one_of == 0)
      kept.push_back(blocks[i]);
    else
      free(blocks[i]);
  }
  blocks = std::move(kept);
}

void write_json(const char* path) {
  auto write_to = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "larder_stats_json"));
  CHECK_MSG(write_to != nullptr, "liblarder.so does not export larder_stats_json");
  // The first output settles the heap.
  std::string unfinished = std::string(path) + ".part";
  for (int i = 0; i < 2; ++i) {
    int file = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK_MSG(file >= 0 && write_to(file) == 0, "larder_stats_json failed");
    close(file);
  }
  CHECK_MSG(write_to(-1) == -1 && errno == EBADF, "larder_stats_json writes to no file");
  rename(unfinished.c_str(), path);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  Look start = look();
  printf("%-22s %10s %10s %9s   %8s %8s %8s %8s\n", "MiB after", "process", "sum", "error",
         "in use", "in slabs", "free", "metadata");
  Blocks small = fill(64 << 20, 1, 1024);
  judge("small objects", start, look());
  thin_out(small, 3);
  judge("two of three freed", start, look());
  Blocks medium = fill(48 << 20, 2000, 200000);
  judge("medium objects", start, look());
  // Of each only the first page is touched.
  Blocks untouched;
  for (int i = 0; i < 40; ++i) untouched.push_back(memset(malloc(3 << 20), 1, 100));
  judge("untouched mappings", start, look());
  Blocks large = fill(64 << 20, 1 << 20, 8 << 20);
  thin_out(large, 2);
  judge("large, half freed", start, look());
  std::vector<std::thread> threads;
  std::vector<Blocks> of_threads(4);
  for (Blocks& blocks : of_threads)
    threads.emplace_back([&blocks] { blocks = fill(8 << 20, 16, 4000); });
  for (std::thread& thread : threads) thread.join();
  for (Blocks& blocks : of_threads) thin_out(blocks, 4);
  judge("freed across threads", start, look());
  fflush(stdout);
  if (argc > 1) write_json(argv[1]);
  for (Blocks* blocks : {&small, &medium, &untouched, &large}) thin_out(*blocks, SIZE_MAX);
  judge("nearly all freed", start, look());
  // Like a process that ends during the heap walk.
  auto* block = static_cast<char*>(memset(malloc(8 << 20), 1, 8 << 20));
  auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  char* within = block + (4 << 20);
  CHECK(munmap(within - reinterpret_cast<uintptr_t>(within) % page, page) == 0);
  judge("a page gone", start, look());
}
