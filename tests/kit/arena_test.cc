// An arena, with a stack of marks, beside the regions that it handed out.

#include <vector>

#include "kit.h"
#include "regions.h"

const char* const kPart = "arena";

namespace {

class Model {
 public:
  explicit Model(size_t chunk_size) { larder_arena_init(&arena_, chunk_size); }
  ~Model() { larder_arena_release(&arena_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step(Choices& choices) {
    uint64_t what = choices.below(64);
    if (what < 40) {
      allocate(choices);
    } else if (what < 50) {
      copy(choices);
    } else if (what < 56) {
      marks_.push_back({larder_arena_get_mark(&arena_), live_.size()});
    } else if (what < 62) {
      reset_to_mark(choices);
    } else {
      forget(0);
      marks_.clear();
      what == 62 ? larder_arena_reset_all(&arena_) : larder_arena_release(&arena_);
      CHECK(what == 62 || failing::blocks.empty());
    }
  }

 private:
  struct Mark {
    larder_arena_mark mark;
    size_t live;
  };

  void forget(size_t left) {
    for (; live_.size() > left; live_.pop_back()) {
      regions_.remove(live_.back());
    }
  }

  void note(void* memory, size_t size, Choices& choices) {
    regions_.add(memory, size, static_cast<unsigned char>(choices.below(256)));
    if (size > 0) {
      live_.push_back(memory);
    }
  }

  void allocate(Choices& choices) {
    size_t size = choices.below(choices.one_in(16) ? 2000 : 40);
    size_t alignment = size_t{1} << choices.below(choices.one_in(8) ? 9 : 5);
    CHECK(larder_arena_alloc_aligned(&arena_, SIZE_MAX - choices.below(64), alignment) == nullptr);
    void* memory;
    {
      failing::Chance chance(choices);
      memory = larder_arena_alloc_aligned(&arena_, size, alignment);
      CHECK(chance.agrees(memory != nullptr));
    }
    if (memory != nullptr) {
      CHECK(uintptr_t(memory) % alignment == 0);
      note(memory, size, choices);
    }
  }

  void copy(Choices& choices) {
    std::string text = choices.text(choices.below(50), 26);
    failing::Chance chance(choices);
    char* copied = larder_arena_copy(&arena_, text.data(), text.size());
    CHECK(chance.agrees(copied != nullptr));
    if (copied != nullptr) {
      CHECK(copied == text);
      note(copied, text.size() + 1, choices);
    }
  }

  void reset_to_mark(Choices& choices) {
    if (marks_.empty()) {
      return;
    }
    marks_.resize(1 + choices.below(marks_.size()));
    size_t live = marks_.back().live;
    std::vector<void*> freed(live_.begin() + long(live), live_.end());
    forget(live);
    size_t chunks = failing::blocks.size();
    larder_arena_reset(&arena_, marks_.back().mark);
    CHECK(failing::blocks.size() == chunks);
    for (void* memory : freed) {
      CHECK(is_poisoned(memory, 1));
    }
    regions_.check_all();
    if (choices.below(2) == 0) {
      marks_.pop_back();
    }
  }

  larder_arena arena_;
  Regions regions_;
  std::vector<void*> live_;
  std::vector<Mark> marks_;
};

}  // namespace

void run(Choices& choices) {
  Model model(choices.below(4) * 300);
  while (choices.more()) {
    model.step(choices);
  }
}
