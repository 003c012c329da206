// A growing array of bytes beside std::string.

#include <string>

#include "kit.h"

const char* const kPart = "bytes";

namespace {

class Model {
 public:
  Model() { larder_bytes_init(&bytes_); }
  ~Model() { larder_bytes_release(&bytes_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step(Choices& choices) {
    switch (choices.below(8)) {
      case 0:
        append_byte(choices);
        break;
      case 1:
      case 2:
        append(choices, choices.text(choices.below(choices.one_in(8) ? 200 : 16), 26));
        break;
      case 3:
        append_own(choices);
        break;
      case 4:
        write(choices);
        break;
      case 5:
        reserve(choices);
        break;
      default:
        shrink(choices);
    }
    CHECK(bytes_.size == model_.size() && (bytes_.data == nullptr) == (bytes_.capacity == 0));
    CHECK(bytes_.data == nullptr || bytes_.size < bytes_.capacity);
    CHECK(larder_bytes_c_string(&bytes_) == model_);
  }

 private:
  void append_byte(Choices& choices) {
    char byte = char('a' + choices.below(26));
    failing::Chance chance(choices);
    bool appended = larder_bytes_append_byte(&bytes_, byte);
    CHECK(chance.agrees(appended));
    if (appended) {
      model_.push_back(byte);
    }
  }

  void append(Choices& choices, const std::string& piece) {
    failing::Chance chance(choices);
    bool appended = larder_bytes_append(&bytes_, piece.data(), piece.size());
    CHECK(chance.agrees(appended));
    if (appended) {
      model_ += piece;
    }
  }

  void append_own(Choices& choices) {
    if (model_.size() > 5000) {
      return;
    }
    size_t from = choices.below(model_.size() + 1);
    size_t size = choices.below(model_.size() - from + 1);
    failing::Chance chance(choices);
    bool appended = larder_bytes_append(&bytes_, larder_bytes_c_string(&bytes_) + from, size);
    CHECK(chance.agrees(appended));
    if (appended) {
      model_ += model_.substr(from, size);
    }
  }

  void write(Choices& choices) {
    size_t room = choices.below(100), written = choices.below(room + 1);
    failing::Chance chance(choices);
    char* to = larder_bytes_prepare(&bytes_, room);
    CHECK(chance.agrees(to != nullptr));
    if (to != nullptr) {
      memset(to, '-', room);
      larder_bytes_commit(&bytes_, written);
      model_.append(written, '-');
      larder_bytes_truncate(&bytes_, bytes_.size);
    }
  }

  void reserve(Choices& choices) {
    CHECK(!larder_bytes_reserve(&bytes_, SIZE_MAX - choices.below(200)));
    CHECK(!larder_bytes_reserve(&bytes_, size_t(PTRDIFF_MAX)));
    size_t more = choices.below(300);
    failing::Chance chance(choices);
    bool reserved = larder_bytes_reserve(&bytes_, more);
    CHECK(chance.agrees(reserved));
    if (reserved) {
      failing::countdown = 0;
      while (more-- > 0) {
        CHECK(larder_bytes_append_byte(&bytes_, '.'));
        model_.push_back('.');
      }
    }
  }

  void shrink(Choices& choices) {
    switch (choices.below(16)) {
      case 0:
        larder_bytes_release(&bytes_);
        model_.clear();
        break;
      case 1: {
        char* taken = larder_bytes_take(&bytes_);
        CHECK(taken == nullptr ? model_.empty() : taken == model_);
        failing::release(taken);
        model_.clear();
        break;
      }
      default: {
        size_t left = choices.below(model_.size() + 1);
        larder_bytes_truncate(&bytes_, left);
        model_.resize(left);
      }
    }
  }

  larder_bytes bytes_;
  std::string model_;
};

}  // namespace

void run(Choices& choices) {
  Model model;
  while (choices.more()) {
    model.step(choices);
  }
}
