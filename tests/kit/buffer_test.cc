// Views of shared blocks beside std::string, one for each view.
#include <array>
#include <cstring>
#include <string>

#include "kit.h"

const char* const kPart = "buffer";

namespace {

class Views {
 public:
  explicit Views(larder_buffer_sharing sharing) {
    for (View& view : views_) {
      larder_buffer_init(&view.buffer, sharing);
    }
  }
  ~Views() {
    for (View& view : views_) {
      larder_buffer_release(&view.buffer);
    }
  }
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  void step(Choices& choices) {
    View& view = views_[choices.below(views_.size())];
    View& other = views_[choices.below(views_.size())];
    switch (choices.below(8)) {
      case 0:
      case 1:
        append(choices, view);
        break;
      case 2:
        write(choices, view);
        break;
      case 3:
        share(choices, view, other);
        break;
      case 4:
        split(choices, view, other);
        break;
      case 5:
        drop(choices, view);
        break;
      case 6:
        reserve(choices, view);
        break;
      default:
        larder_buffer_release(&view.buffer);
        view.model.clear();
    }
    check_counts();
    for (const View& each : views_) {
      CHECK(each.buffer.size == each.model.size());
      CHECK(std::string(each.buffer.data, each.buffer.size) == each.model);
    }
  }

 private:
  struct View {
    larder_buffer buffer;
    std::string model;
  };

  void check_counts() {
    for (const View& view : views_) {
      size_t count = 0;
      for (const View& other : views_) {
        count += other.buffer.block == view.buffer.block;
      }
      CHECK(view.buffer.block == nullptr || view.buffer.block->count == count);
      CHECK(larder_buffer_is_unique(&view.buffer) == (count == 1 || view.buffer.block == nullptr));
    }
  }

  static void append(Choices& choices, View& view) {
    std::string piece = choices.text(choices.below(choices.one_in(8) ? 300 : 20), 26);
    failing::Chance chance(choices);
    bool appended = larder_buffer_append(&view.buffer, piece.data(), piece.size());
    CHECK(chance.agrees(appended));
    if (appended) {
      view.model += piece;
    }
  }

  static void write(Choices& choices, View& view) {
    size_t room = choices.below(100), written = choices.below(room + 1);
    failing::Chance chance(choices);
    char* to = larder_buffer_prepare(&view.buffer, room);
    CHECK(chance.agrees(to != nullptr));
    if (to != nullptr) {
      std::memset(to, '-', room);
      larder_buffer_commit(&view.buffer, written);
      view.model.append(written, '-');
    }
  }

  static void share(Choices& choices, const View& view, View& other) {
    if (&view != &other) {
      size_t from = choices.below(view.model.size() + 1);
      size_t size = choices.below(view.model.size() - from + 1);
      larder_buffer_release(&other.buffer);
      larder_buffer_share(&view.buffer, from, size, &other.buffer);
      other.model = view.model.substr(from, size);
    }
  }

  static void split(Choices& choices, View& view, View& front) {
    if (&view != &front) {
      size_t size = choices.below(view.model.size() + 1);
      larder_buffer_release(&front.buffer);
      larder_buffer_split_front(&view.buffer, size, &front.buffer);
      front.model = view.model.substr(0, size);
      view.model.erase(0, size);
    }
  }

  static void drop(Choices& choices, View& view) {
    size_t size = choices.below(view.model.size() + 1);
    if (choices.below(2) == 0) {
      larder_buffer_drop_front(&view.buffer, size);
      view.model.erase(0, size);
    } else {
      larder_buffer_truncate(&view.buffer, size);
      view.model.resize(size);
    }
  }

  static void reserve(Choices& choices, View& view) {
    CHECK(!larder_buffer_reserve(&view.buffer, SIZE_MAX - choices.below(200)));
    CHECK(!larder_buffer_reserve(&view.buffer, size_t(PTRDIFF_MAX)));
    size_t more = choices.below(200);
    failing::Chance chance(choices);
    bool reserved = larder_buffer_reserve(&view.buffer, more);
    CHECK(chance.agrees(reserved));
    if (reserved) {
      failing::countdown = 0;
      std::string filler(more, '.');
      CHECK(larder_buffer_append(&view.buffer, filler.data(), more));
      view.model += filler;
    }
  }

  std::array<View, 6> views_;
};

}  // namespace

void run(Choices& choices) {
  Views views(choices.below(2) == 0 ? LARDER_BUFFER_ONE_THREAD : LARDER_BUFFER_THREADS);
  while (choices.more()) {
    views.step(choices);
  }
}
