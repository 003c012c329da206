// Arrays of two sizes of items beside std::vector.

#include <algorithm>
#include <vector>

#include "kit.h"

const char* const kPart = "small_array";

namespace {

struct Three {
  int a, b, c;
  bool operator==(const Three& other) const { return a == other.a && b == other.b && c == other.c; }
};

LARDER_SMALL_ARRAY(bytes, unsigned char, 7);
LARDER_SMALL_ARRAY(threes, Three, 4);

Three item_of(uint64_t n, const Three*) {
  return {int(n & 0xFFFF), int(n >> 16 & 0xFFFF), int(n & 7)};
}
unsigned char item_of(uint64_t n, const unsigned char*) { return static_cast<unsigned char>(n); }

#define FUNCTIONS(name, type)                         \
  struct name##_calls {                               \
    using Array = name;                               \
    using Item = type;                                \
    static constexpr auto init = name##_init;         \
    static constexpr auto release = name##_release;   \
    static constexpr auto reserve = name##_reserve;   \
    static constexpr auto push = name##_push;         \
    static constexpr auto append = name##_append;     \
    static constexpr auto pop = name##_pop;           \
    static constexpr auto truncate = name##_truncate; \
  }
FUNCTIONS(bytes, unsigned char);
FUNCTIONS(threes, Three);

template <typename Calls>
class Model {
 public:
  using Item = typename Calls::Item;
  Model() { Calls::init(&array_); }
  ~Model() { Calls::release(&array_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step(Choices& choices) {
    switch (choices.below(6)) {
      case 0:
      case 1:
        push(choices);
        break;
      case 2:
        append(choices);
        break;
      case 3:
        pop();
        break;
      case 4:
        reserve(choices);
        break;
      default:
        shrink(choices);
    }
    CHECK(array_.count == model_.size() && array_.count <= array_.capacity);
    CHECK(std::equal(model_.begin(), model_.end(), array_.data));
    CHECK((array_.data == array_.local) == (array_.capacity == sizeof array_.local / sizeof(Item)));
  }

 private:
  void push(Choices& choices) {
    Item item = item_of(choices.word(), static_cast<Item*>(nullptr));
    failing::Chance chance(choices);
    bool pushed = Calls::push(&array_, item);
    CHECK(chance.agrees(pushed));
    if (pushed) {
      model_.push_back(item);
    }
  }

  void append(Choices& choices) {
    std::vector<Item> items(choices.below(9));
    for (Item& item : items) {
      item = item_of(choices.word(), &item);
    }
    failing::Chance chance(choices);
    bool appended = Calls::append(&array_, items.data(), items.size());
    CHECK(chance.agrees(appended));
    if (appended) {
      model_.insert(model_.end(), items.begin(), items.end());
    }
  }

  void pop() {
    if (!model_.empty()) {
      CHECK(Calls::pop(&array_) == model_.back());
      model_.pop_back();
    }
  }

  void reserve(Choices& choices) {
    if (choices.one_in(16)) {
      CHECK(!Calls::reserve(&array_, SIZE_MAX / sizeof(Item)));
      CHECK(!Calls::reserve(&array_, size_t(PTRDIFF_MAX) / sizeof(Item) + 1));
    }
    size_t needed = choices.below(100);
    failing::Chance chance(choices);
    bool reserved = Calls::reserve(&array_, needed);
    CHECK(chance.agrees(reserved) && (!reserved || array_.capacity >= needed));
  }

  void shrink(Choices& choices) {
    if (choices.one_in(8)) {
      Calls::release(&array_);
      model_.clear();
    } else {
      size_t left = choices.below(model_.size() + 1);
      Calls::truncate(&array_, left);
      model_.resize(left);
    }
  }

  typename Calls::Array array_;
  std::vector<Item> model_;
};

}  // namespace

void run(Choices& choices) {
  Model<bytes_calls> of_bytes;
  Model<threes_calls> of_threes;
  while (choices.more()) {
    choices.below(2) == 0 ? of_bytes.step(choices) : of_threes.step(choices);
  }
}
