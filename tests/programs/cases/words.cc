// The input of the compiler cases, and a program of its own: containers, regular expressions,
// streams and threads of the standard library, with a fixed output.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

struct Leaf {
  std::string word;
};
struct Node;
using Tree = std::variant<std::monostate, Leaf, std::unique_ptr<Node>>;
struct Node {
  Tree left, right;
};

Tree build(const std::vector<std::string>& words, size_t from, size_t to) {
  if (from == to) return std::monostate{};
  if (to - from == 1) return Leaf{words[from]};
  auto node = std::make_unique<Node>();
  node->left = build(words, from, (from + to) / 2);
  node->right = build(words, (from + to) / 2, to);
  return node;
}

size_t letters(const Tree& tree) {
  if (const auto* leaf = std::get_if<Leaf>(&tree)) return leaf->word.size();
  if (const auto* node = std::get_if<std::unique_ptr<Node>>(&tree)) {
    return letters((*node)->left) + letters((*node)->right);
  }
  return 0;
}

std::vector<std::string> make_words(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> words(20000);
  for (auto& word : words) {
    word.resize(1 + random() % 30);
    std::generate(word.begin(), word.end(), [&] { return char('a' + random() % 5); });
  }
  return words;
}

uint64_t digest(unsigned seed) {
  const auto words = make_words(seed);
  std::map<std::string, std::set<size_t>> places;
  std::unordered_map<std::string, std::shared_ptr<std::string>> shared;
  for (size_t i = 0; i < words.size(); ++i) {
    places[words[i].substr(0, 4)].insert(i);
    shared.try_emplace(words[i], std::make_shared<std::string>(words[i] + words[i]));
  }
  std::ostringstream out;
  for (const auto& [prefix, where] : places) out << prefix << ':' << where.size() << ' ';
  const std::regex pattern("([ab]+)c:(\\d+)");
  const std::string text = out.str();
  const auto matches = std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), {});
  const uint64_t sum = std::accumulate(
      shared.begin(), shared.end(), uint64_t{0},
      [](uint64_t total, const auto& entry) { return total + entry.second->size() * 7; });
  return sum * 31 + std::hash<std::string>{}(text) % 1000 + uint64_t(matches) +
         letters(build(words, 0, words.size()));
}

}  // namespace

int main() {
  std::vector<uint64_t> results(8);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < results.size(); ++i) {
    threads.emplace_back([&results, i] { results[i] = digest(i); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto result : results) std::cout << result << '\n';
  return 0;
}
