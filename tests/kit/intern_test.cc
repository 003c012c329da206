// An interning table beside std::map.
#include <map>
#include <string>

#include "kit.h"

const char* const kPart = "intern";

namespace {

class Model {
 public:
  explicit Model(uint64_t seed) { larder_intern_init(&table_, seed); }
  ~Model() { larder_intern_release(&table_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step(Choices& choices) {
    std::string text = choices.text(choices.below(choices.one_in(64) ? 300 : 7), 4);
    auto known = model_.find(text);
    if (choices.below(4) == 0) {
      const char* found = larder_intern_find(&table_, text.data(), text.size());
      CHECK(found == (known == model_.end() ? nullptr : known->second));
    } else {
      failing::Chance chance(choices);
      const char* added = larder_intern_add(&table_, text.data(), text.size());
      CHECK(chance.agrees(added != nullptr));
      if (added != nullptr) {
        CHECK(known == model_.end() || known->second == added);
        model_[text] = added;
      } else {
        CHECK(known == model_.end());
      }
    }
    CHECK(table_.entries.count == model_.size());
    if (choices.one_in(4096)) {
      check_all();
    }
  }

  void check_all() {
    for (const auto& [text, pointer] : model_) {
      // As if another text had the same hash.
      const auto* entry = reinterpret_cast<const larder_intern_entry*>(pointer) - 1;
      larder_intern_key longer = {pointer, text.size() + 1}, shorter = {pointer, text.size() - 1};
      CHECK(!larder_intern_equal(&entry->link, &longer));
      CHECK(text.empty() || !larder_intern_equal(&entry->link, &shorter));
      CHECK(larder_intern_size(pointer) == text.size() && pointer == text);
      CHECK(larder_intern_find(&table_, text.data(), text.size()) == pointer);
    }
  }

 private:
  larder_intern table_;
  std::map<std::string, const char*> model_;
};

}  // namespace

void run(Choices& choices) {
  Model model(choices.word());
  while (choices.more()) {
    model.step(choices);
  }
  model.check_all();
}
