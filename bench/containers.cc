// bench_containers: maps, hash tables, strings and vectors of the C++ library, as programs mix
// them.
//
// Behaves like an indexer: words become strings, counted in a hash table, ordered in a map, with
// lists of positions that grow by doubling, then queried, partly erased and dropped. Nodes of 40 to
// 100 bytes, strings beyond the inline ones, vectors through realloc-less growth, and operator
// delete with a size: what most C++ code asks of an allocator.

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "workload.h"

namespace {

std::string word(bench::Random& random) {
  // Few words are common, most are rare.
  const std::size_t number = random.below(1 + random.below(40'000));
  std::string text = "word-" + std::to_string(number * 7919 % 40'009);
  if (number % 3 == 0) text += "-with-a-suffix-that-does-not-fit-inline";
  return text;
}

struct Posting {
  std::vector<std::uint32_t> positions;
  std::shared_ptr<std::string> source;
};

std::size_t index_once(std::size_t words, std::uint64_t seed) {
  bench::Random random(seed);
  std::unordered_map<std::string, Posting> index;
  std::list<std::string> recent;
  std::deque<std::unique_ptr<std::uint64_t[]>> windows;
  auto source = std::make_shared<std::string>("document");
  for (std::uint32_t i = 0; i < words; ++i) {
    std::string text = word(random);
    if (i % 1000 == 0) source = std::make_shared<std::string>("document-" + text);
    Posting& posting = index[text];
    posting.positions.push_back(i);
    posting.source = source;
    recent.push_back(std::move(text));
    if (recent.size() > 200) recent.pop_front();
    if (i % 16 == 0) windows.push_back(std::make_unique<std::uint64_t[]>(8 + i % 64));
    if (windows.size() > 500) windows.pop_front();
  }
  std::map<std::string, std::vector<std::uint32_t>> ordered;
  for (const auto& [text, posting] : index) {
    if (posting.positions.size() > 1) ordered.emplace(text, posting.positions);
  }
  std::size_t found = 0;
  for (auto at = ordered.begin(); at != ordered.end();) {
    found += at->second.size();
    at = found % 2 == 0 ? ordered.erase(at) : std::next(at);
  }
  return found + ordered.size();
}

}  // namespace

int main() {
  constexpr std::size_t kWords = 300'000;
  const std::size_t words = bench::scale() < 1 ? bench::work(kWords) : kWords;
  const std::size_t rounds = bench::scale() < 1 ? 3 : bench::work(8);
  const bench::Stopwatch watch;
  std::size_t found = 0;
  for (std::size_t i = 0; i < rounds; ++i) found += index_once(words, i + 1);
  bench::opaque(found);
  watch.report(rounds * words);
  return 0;
}
