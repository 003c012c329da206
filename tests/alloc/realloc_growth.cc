// One block grown by realloc from 64 bytes to FINAL bytes, each new page written to.
// Usage: realloc_growth factor|step [FINAL_MIB]: by x 1.5, or by + 4,096 bytes.
//
// Peak resident memory must stay within 2 % of the final size, the content must survive, and
// from 4 MiB on nothing may be copied. Three witnesses for "not copied": the allocator's own
// count of copied bytes, page faults (a copy into fresh memory faults its pages again), and the
// peak itself (a copy has both blocks resident).

#include "larder_stats_probe.h"

using namespace alloctest;

namespace {

constexpr size_t kNoCopyFrom = 4 * kMiB;
constexpr size_t kPeakSlack = 2 * kMiB;

size_t minor_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_minflt);
}

size_t copied_bytes() {
  struct larder_stats stats;
  return read_larder_stats(&stats) ? stats.realloc_copied_bytes : 0;
}

uint64_t word_at(size_t offset) { return offset * 0x9E3779B97F4A7C15u + 1; }

// A word at the start of every page and at the end of the block.
void write_range(unsigned char* block, size_t from, size_t to) {
  for (size_t at = (from + 4095) & ~size_t{4095}; at + 8 <= to; at += 4096) {
    const uint64_t word = word_at(at);
    memcpy(block + at, &word, 8);
  }
  memset(block + (from > to - 8 ? from : to - 8), 0x77, to - (from > to - 8 ? from : to - 8));
}

void check_words(const unsigned char* block, size_t size, size_t page_stride) {
  for (size_t at = 0; at + 16 <= size; at += 4096 * page_stride) {
    uint64_t word;
    memcpy(&word, block + at, 8);
    CHECK_MSG(word == word_at(at), "content lost at offset %zu of %zu", at, size);
  }
}

}  // namespace

int main(int argc, char** argv) {
  begin("realloc_growth");
  CHECK_MSG(argc >= 2, "usage: realloc_growth factor|step [FINAL_MIB]");
  const bool by_factor = strcmp(argv[1], "factor") == 0;
  const size_t final_size = argument(argc, argv, 2, 1024) * kMiB;

  size_t size = 64;
  auto* block = static_cast<unsigned char*>(malloc(size));
  write_range(block, 0, size);
  const size_t base = rss_bytes();
  size_t moves = 0, large_moves = 0, steps = 0;
  size_t faults_at_threshold = 0, size_at_threshold = 0, copied_at_threshold = 0;
  const double start = seconds_now();
  while (size < final_size) {
    size_t larger = by_factor ? size + size / 2 : size + 4096;
    if (larger > final_size) larger = final_size;
    if (size >= kNoCopyFrom && size_at_threshold == 0) {
      size_at_threshold = size;
      faults_at_threshold = minor_faults();
      copied_at_threshold = copied_bytes();
    }
    auto* grown = static_cast<unsigned char*>(realloc(block, larger));
    CHECK_MSG(grown != nullptr, "realloc to %zu failed", larger);
    const bool moved = grown != block;
    moves += moved;
    large_moves += moved && size >= kNoCopyFrom;
    // All pages after a move, a sample after growth in place: + 4,096 stays linear in time.
    check_words(grown, size, moved && by_factor ? 1 : size / (64 * 4096) + 1);
    CHECK_MSG(grown[size - 1] == 0x77, "the last byte of %zu was lost", size);
    write_range(grown, size, larger);
    block = grown;
    size = larger;
    ++steps;
  }
  const double elapsed = seconds_now() - start;
  check_words(block, size, 1);
  const size_t peak = status_bytes("VmHWM:") - base;
  const size_t new_pages = (size - size_at_threshold) / 4096;
  const size_t faults = minor_faults() - faults_at_threshold;
  const size_t copied = copied_bytes() - copied_at_threshold;
  say("%s to %zu MiB in %zu steps, %.2f s: peak %.1f MiB (x %.4f), %zu moves, %zu of them from "
      "4 MiB on; copied from 4 MiB on: %zu bytes; faults %zu for %zu new pages",
      argv[1], size / kMiB, steps, elapsed, mib(peak),
      static_cast<double>(peak) / static_cast<double>(size), moves, large_moves, copied, faults,
      new_pages);
  CHECK_MSG(peak <= size + size / 50 + kPeakSlack, "peak %.1f MiB for %.1f MiB", mib(peak),
            mib(size));
  CHECK_MSG(copied == 0, "%zu bytes copied by realloc from 4 MiB on", copied);
  CHECK_MSG(faults <= new_pages + new_pages / 20 + 512, "%zu faults for %zu new pages: it copies",
            faults, new_pages);

  // And down again: a shrunk block keeps its head and frees its tail.
  while (size > 4096) {
    size /= 3;
    block = static_cast<unsigned char*>(realloc(block, size));
    CHECK(block != nullptr);
    check_words(block, size - size % 4096, 16);
  }
  free(block);
  return 0;
}
