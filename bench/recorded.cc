// bench_recorded map|parser|threads|crowd|copies COUNT: what `larder lab recording` records: calls
// that come from few stacks, from deep ones, from four threads at once; and what threads cost in
// memory, and copies in time.
//
// map: strings counted in an ordered map and a hash table, as an indexer does: two dozen stacks in
// all. parser: expressions of twelve levels of precedence, nested three to six deep, one template
// instance a level: 36 to 80 frames above most allocations, and thousands of distinct stacks.
// threads: four threads, each with maps of its own, that hand a part of their strings to the next
// one. crowd: threads that allocate from 22 stacks each and then sleep until memory is reported.
// copies: 64 bytes each, by memcpy, from one line.
// COUNT: thousands of words, expressions, thousands of words a thread, threads, thousands of
// copies.

#include <cstring>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "workload.h"

namespace {

std::string word(bench::Random& random, std::size_t distinct) {
  std::string text = "a word that needs a block, number ";
  text += std::to_string(random.below(distinct));
  return text;
}

// Words that are counted, ordered, and dropped occasionally.
class Index {
 public:
  explicit Index(std::uint64_t seed) : random_(seed) {}

  std::string add() {
    std::string text = word(random_, 20'000);
    counts_[text]++;
    if (random_.below(4) == 0) ordered_[text].push_back(random_.next());
    if (ordered_.size() > 10'000) ordered_.clear();
    if (counts_.size() > 15'000) counts_.clear();
    return text;
  }

  std::size_t size() const { return counts_.size() + ordered_.size(); }

 private:
  bench::Random random_;
  std::unordered_map<std::string, std::size_t> counts_;
  std::map<std::string, std::vector<std::uint64_t>> ordered_;
};

std::size_t map(std::size_t count) {
  Index index(1);
  for (std::size_t i = 0; i < count; i++) index.add();
  return index.size();
}

std::size_t threads(std::size_t count) {
  constexpr std::size_t kThreads = 4;
  struct Box {
    std::mutex lock;
    std::vector<std::string> words;
  };
  Box boxes[kThreads];
  std::size_t sizes[kThreads] = {};
  std::vector<std::thread> all;
  for (std::size_t number = 0; number < kThreads; number++) {
    all.emplace_back([&, number] {
      Index index(number);
      std::vector<std::string> batch;
      for (std::size_t i = 0; i < count; i++) {
        std::string text = index.add();
        if (i % 8 == 0) batch.push_back(std::move(text));
        if (batch.size() < 256) continue;
        Box& next = boxes[(number + 1) % kThreads];
        const std::lock_guard guard(next.lock);
        std::swap(next.words, batch);  // The old words are another thread's, and are freed here.
        batch.clear();
      }
      sizes[number] = index.size();
    });
  }
  for (std::thread& thread : all) thread.join();
  std::size_t sum = 0;
  for (const std::size_t size : sizes) sum += size;
  return sum;
}

// A block at each of this many depths.
[[gnu::noinline]] std::size_t descend(std::size_t depth) {
  const std::string text(100 + depth, 'x');
  return depth == 1 ? text.size() : descend(depth - 1) + text.size();
}

class Crowd {
 public:
  explicit Crowd(std::size_t count) : working_(static_cast<std::ptrdiff_t>(count)) {
    for (std::size_t i = 0; i < count; i++) {
      threads_.emplace_back([this] {
        constexpr std::size_t kStacks = 22;
        bench::opaque(descend(kStacks));
        working_.count_down();
        ended_.wait();
      });
    }
    working_.wait();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  ~Crowd() {
    ended_.count_down();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::latch working_;
  std::latch ended_{1};
  std::vector<std::thread> threads_;
};

struct Expression {
  Expression() = default;
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  virtual ~Expression() = default;
  [[nodiscard]] virtual std::size_t value() const = 0;
};

struct Name final : Expression {
  explicit Name(std::string_view text) : name(text) {}
  [[nodiscard]] std::size_t value() const override { return name.size(); }
  std::string name;
};

template <int level>
struct Operation final : Expression {
  Operation(std::unique_ptr<Expression> a, std::unique_ptr<Expression> b)
      : left(std::move(a)), right(std::move(b)) {}
  [[nodiscard]] std::size_t value() const override {
    return left->value() * level + right->value();
  }
  std::unique_ptr<Expression> left;
  std::unique_ptr<Expression> right;
};

constexpr std::string_view kOperators = "=?|&^!<@+*%.";
constexpr std::size_t kTexts = 300;
constexpr int kLevels = static_cast<int>(kOperators.size());

struct Input {
  std::string_view text;
  std::size_t at = 0;
  [[nodiscard]] char peek() const { return at < text.size() ? text[at] : '\0'; }
};

template <int level>
[[gnu::noinline]] std::unique_ptr<Expression> parse(Input& in);

template <>
std::unique_ptr<Expression> parse<kLevels>(Input& in) {
  if (in.peek() == '(') {
    in.at++;
    auto inner = parse<0>(in);
    in.at++;
    return inner;
  }
  const std::size_t start = in.at;
  while (in.peek() >= 'a' && in.peek() <= 'z') in.at++;
  return std::make_unique<Name>(in.text.substr(start, in.at - start));
}

template <int level>
std::unique_ptr<Expression> parse(Input& in) {
  auto left = parse<level + 1>(in);
  while (in.peek() == kOperators[level]) {
    in.at++;
    left = std::make_unique<Operation<level>>(std::move(left), parse<level + 1>(in));
  }
  return left;
}

void write_expression(bench::Random& random, int depth, std::string& out) {
  const std::size_t operands = 2 + random.below(3);
  for (std::size_t i = 0; i < operands; i++) {
    if (i > 0) out += kOperators[random.below(kLevels)];
    if (depth > 0 && random.below(2) == 0) {
      out += '(';
      write_expression(random, depth - 1, out);
      out += ')';
    } else {
      out.append(10 + random.below(20), static_cast<char>('a' + random.below(26)));
    }
  }
}

std::size_t parser(std::size_t count) {
  bench::Random random(1);
  std::vector<std::string> texts(kTexts);
  for (std::string& text : texts) {
    const int depth = 3 + static_cast<int>(random.below(4));
    text.append(static_cast<std::size_t>(depth / 2), '(');
    write_expression(random, depth, text);
    text.append(static_cast<std::size_t>(depth / 2), ')');
  }
  std::size_t sum = 0;
  for (std::size_t i = 0; i < count; i++) {
    Input in{texts[random.below(kTexts)]};
    sum += parse<0>(in)->value();
  }
  return sum;
}

std::size_t copies(std::size_t count) {
  constexpr std::size_t kBytes = 64;
  constexpr std::size_t kPlaces = 32;
  std::vector<char> from(kBytes * kPlaces);
  std::vector<char> to(kBytes * kPlaces);
  // Not a constant, which the compiler would copy itself.
  const std::size_t bytes = bench::opaque(kBytes);
  for (std::size_t i = 0; i < count; i++) {
    const std::size_t place = i % kPlaces * kBytes;
    std::memcpy(bench::opaque(to.data() + place), from.data() + i * 7 % kPlaces * kBytes, bytes);
  }
  return static_cast<std::size_t>(to.back());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc > 1 ? argv[1] : "";
  const std::size_t count = bench::number(argc, argv, 2, "the amount of work");
  const bench::Stopwatch stopwatch;
  std::size_t result = 0;
  std::optional<Crowd> crowd;
  if (kind == "map") {
    result = map(bench::work(count * 1000));
  } else if (kind == "threads") {
    result = threads(bench::work(count * 1000));
  } else if (kind == "parser") {
    result = parser(bench::work(count));
  } else if (kind == "crowd") {
    crowd.emplace(count);
  } else if (kind == "copies") {
    result = copies(bench::work(count * 1000));
  } else {
    std::fprintf(stderr, "usage: bench_recorded map|parser|threads|crowd|copies COUNT\n");
    return 2;
  }
  bench::opaque(result);
  stopwatch.report(count);
  return 0;
}
