// bench_dom: JSON texts read into trees of nodes, walked, partly copied, and dropped.
//
// Behaves like nativejson-benchmark's readers that give a block to each node, each string and each
// array: whole trees are made front to back and dropped depth first, while a few of the last ones
// stay. Mixed small sizes and growing arrays in bursts, as in every web service.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "workload.h"

namespace {

struct Node;
using NodePointer = std::unique_ptr<Node>;

struct Node {
  enum class Kind : std::uint8_t { kNumber, kText, kArray, kObject };
  Kind kind = Kind::kNumber;
  double number = 0;
  std::string text;
  std::vector<std::pair<std::string, NodePointer>> members;  // of an array: without names
};

// Parses only the output of write(): no white space, no escapes.
class Reader {
 public:
  explicit Reader(const std::string& text) : at_(text.c_str()) {}

  NodePointer read() {
    auto node = std::make_unique<Node>();
    if (*at_ == '{' || *at_ == '[') {
      read_members(*node, *at_ == '{');
    } else if (*at_ == '"') {
      node->kind = Node::Kind::kText;
      node->text = read_text();
    } else {
      char* end = nullptr;
      node->number = std::strtod(at_, &end);
      at_ = end;
    }
    return node;
  }

 private:
  void read_members(Node& node, bool named) {
    node.kind = named ? Node::Kind::kObject : Node::Kind::kArray;
    const char closing = named ? '}' : ']';
    ++at_;
    while (*at_ != closing) {
      std::string name;
      if (named) {
        name = read_text();
        ++at_;
      }
      node.members.emplace_back(std::move(name), read());
      if (*at_ == ',') ++at_;
    }
    ++at_;
  }

  std::string read_text() {
    const char* start = ++at_;
    while (*at_ != '"') ++at_;
    return {start, at_++};
  }

  const char* at_;
};

std::string write(std::size_t records) {
  bench::Random random(9);
  std::string text = "[";
  for (std::size_t i = 0; i < records; ++i) {
    if (i > 0) text += ',';
    text += "{\"id\":" + std::to_string(i) + ",\"name\":\"customer number " +
            std::to_string(random.below(100'000)) + "\",\"scores\":[";
    for (std::size_t n = 1 + random.below(12); n > 0; --n) {
      text += std::to_string(random.below(1000)) + (n > 1 ? "," : "");
    }
    text += "],\"address\":{\"street\":\"" + std::string(5 + random.below(30), 's') +
            "\",\"town\":\"" + std::string(3 + random.below(12), 't') + "\"}}";
  }
  return text + "]";
}

NodePointer copy(const Node& from) {
  auto node = std::make_unique<Node>();
  node->kind = from.kind;
  node->number = from.number;
  node->text = from.text;
  for (const auto& [name, member] : from.members) node->members.emplace_back(name, copy(*member));
  return node;
}

std::size_t count(const Node& node) {
  std::size_t nodes = 1;
  for (const auto& [name, member] : node.members) nodes += count(*member);
  return nodes;
}

}  // namespace

int main() {
  constexpr std::size_t kKept = 4;
  const std::string text = write(3000);
  const std::size_t texts = bench::work(100);
  NodePointer kept[kKept];
  std::size_t nodes = 0;
  const bench::Stopwatch watch;
  for (std::size_t i = 0; i < texts; ++i) {
    NodePointer tree = Reader(text).read();
    nodes += count(*tree);
    // Half of the records stay live, in trees of their own.
    auto part = std::make_unique<Node>();
    for (std::size_t m = i % 2; m < tree->members.size(); m += 2) {
      part->members.emplace_back("", copy(*tree->members[m].second));
    }
    nodes += count(*part);
    kept[i % kKept] = std::move(part);
  }
  watch.report(nodes);
  return 0;
}
