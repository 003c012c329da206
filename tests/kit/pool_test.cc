// A pool beside the objects that it handed out.

#include <algorithm>
#include <vector>

#include "kit.h"
#include "regions.h"

const char* const kPart = "pool";

namespace {

class Model {
 public:
  explicit Model(size_t object_size) : object_size_(object_size) {
    larder_pool_init(&pool_, object_size);
  }
  ~Model() { larder_pool_release(&pool_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void step(Choices& choices) {
    // Phases that grow and phases that shrink.
    if (choices.one_in(200)) {
      growing_ = !growing_;
    }
    if (choices.below(3) != 0 ? growing_ : !growing_) {
      get(choices);
    } else if (!live_.empty()) {
      put(choices.below(live_.size()));
    }
    if (choices.one_in(4000)) {
      larder_pool_release(&pool_);
      CHECK(failing::blocks.empty());
      regions_ = Regions();
      live_.clear();
      peak_ = 0;
      freed_last_ = nullptr;
    } else if (choices.one_in(500)) {
      regions_.check_all();
    }
  }

 private:
  void get(Choices& choices) {
    void* object;
    {
      failing::Chance chance(choices);
      object = larder_pool_get(&pool_);
      CHECK(chance.agrees(object != nullptr));
    }
    if (object != nullptr) {
      CHECK(object_size_ == 0 || object_size_ % 16 != 0 || uintptr_t(object) % 16 == 0);
      CHECK(uintptr_t(object) % 8 == 0);
      // All that belongs to it, not only what was asked for.
      regions_.add(object, pool_.object_size, static_cast<unsigned char>(choices.below(256)));
      live_.push_back(object);
      peak_ = std::max(peak_, live_.size());
      CHECK(failing::live_bytes <= (2 * peak_ + LARDER_POOL_FIRST_OBJECTS) * pool_.object_size +
                                       LARDER_POOL_CHUNK_BYTES + 16 * failing::blocks.size());
      CHECK(freed_last_ == nullptr || object == freed_last_);
      freed_last_ = nullptr;
    }
  }

  void put(size_t which) {
    void* object = live_[which];
    live_[which] = live_.back();
    live_.pop_back();
    regions_.remove(object);
    larder_pool_put(&pool_, object);
    CHECK(is_poisoned(object, pool_.object_size));
    freed_last_ = object;
  }

  size_t object_size_;
  size_t peak_ = 0;
  bool growing_ = true;
  void* freed_last_ = nullptr;
  larder_pool pool_;
  Regions regions_;
  std::vector<void*> live_;
};

}  // namespace

void run(Choices& choices) {
  Model model(choices.below(choices.one_in(8) ? 5000 : 100));
  while (choices.more()) {
    model.step(choices);
  }
}
