// bench_index MIB LOOKUPS: an index in memory is filled, then keys are looked up at random.
//
// Behaves like the tables of a database, a cache or a compiler once they are much larger than the
// processor's caches: each lookup goes to a bucket and along a chain of nodes, whose addresses have
// no order. Nearly each step misses the caches, and the translation of addresses, too: what it
// costs depends on how densely the nodes lie, and on the size of the system's pages.

#include <cstdint>

#include "workload.h"

namespace {

struct Node {
  Node* next;
  std::uint64_t key;
};

constexpr std::size_t kSmallest = sizeof(Node) + 16;
constexpr std::size_t kSpread = 96;  // bytes of values: evenly up to here
constexpr std::size_t kMeanBytes = kSmallest + kSpread / 2;
constexpr std::size_t kNodesOfBucket = 2;

// Multiplying by an odd number is a bijection: keys are distinct, and in no order.
std::uint64_t key_of(std::uint64_t number) { return number * 0x9E3779B97F4A7C15; }

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = bench::work(bench::number(argc, argv, 1, "MIB") * bench::kMiB);
  const std::size_t lookups = bench::work(bench::number(argc, argv, 2, "LOOKUPS"));
  const std::size_t nodes = bytes / kMeanBytes + 1;
  const std::size_t buckets = nodes / kNodesOfBucket + 1;
  bench::Random random(17);
  const bench::Stopwatch watch;
  auto* table = static_cast<Node**>(bench::checked(std::calloc(buckets, sizeof(Node*))));
  for (std::size_t i = 0; i < nodes; ++i) {
    auto* node = static_cast<Node*>(bench::checked(std::malloc(kSmallest + random.below(kSpread))));
    Node*& head = table[key_of(i) % buckets];
    *node = {head, key_of(i)};
    head = node;
  }
  std::size_t found = 0;
  for (std::size_t i = 0; i < lookups; ++i) {
    const std::uint64_t key = key_of(random.below(nodes));
    for (const Node* node = table[key % buckets]; node != nullptr; node = node->next) {
      if (node->key != key) continue;
      ++found;
      break;
    }
  }
  watch.report(nodes + lookups);
  if (found != lookups) {
    std::fprintf(stderr, "bench_index: %zu of %zu keys found\n", found, lookups);
    return 1;
  }
  return 0;
}
