// Calls of the malloc family by two threads, decoded from the fuzzer's bytes, against a model
// (tests/alloc/fuzz). The model knows where each object lies and what it holds. Under
// LARDER_ON_ERROR=ignore an object may also be freed twice, or by an address within it: neither may
// have an effect.
#include <semaphore.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "larder/larder.h"
#include "larder/larder_malloc.h"

namespace {

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (false)

constexpr int kSlots = 64;
constexpr size_t kMaxLive = size_t{64} << 20;

struct Object {
  unsigned char* at = nullptr;
  size_t bytes = 0;
  unsigned char first = 0;  // of the content, which counts up
};

class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : at_(bytes), end_(bytes + size) {}
  bool empty() const { return at_ == end_; }
  unsigned byte() { return empty() ? 0 : *at_++; }
  // 0 to 16 MiB, in 17 octaves.
  size_t size() {
    unsigned octave = byte() % 17;
    return size_t{byte()} << octave;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

class Model {
 public:
  ~Model() {
    for (Object& o : objects_) release(o);
  }

  void step(Input& in) {
    Object& o = objects_[in.byte() % kSlots];
    switch (in.byte() % 12) {
      case 0:
      case 1:
      case 2:
        allocate(o, in.size(), 1, [](size_t n) { return larder_malloc(n); });
        return fill(o, 0);
      case 3:
        allocate(o, in.size(), 1, [](size_t n) { return larder_calloc(n, 1); });
        for (size_t i = 0; i < o.bytes; i += step_at(i)) CHECK(o.at[i] == 0);
        return fill(o, 0);
      case 4: {
        size_t align = size_t{1} << (in.byte() % 17);
        allocate(o, in.size(), align, [align](size_t n) { return larder_memalign(align, n); });
        return fill(o, 0);
      }
      case 5:
      case 6:
        return resize(o, in.size());
      case 7:
      case 8:
      case 9:
        return release(o);
      case 10:
        return free_wrongly(o, in.byte());
      default:
        if (in.byte() % 16 == 0) larder_release_free_memory();
    }
  }

 private:
  // Leaves no object if there would be too many bytes. The content is to be filled.
  template <typename Call>
  void allocate(Object& o, size_t bytes, size_t align, Call call) {
    release(o);
    if (live_ + bytes > kMaxLive) return;
    place(o, call(bytes), bytes);
    // As the psABI has it: what fits into less needs no more.
    CHECK(uintptr_t(o.at) % (bytes < 16 ? 8 : 16) == 0 && uintptr_t(o.at) % align == 0);
  }

  void resize(Object& o, size_t bytes) {
    if (o.at == nullptr || bytes == 0 || live_ + bytes > kMaxLive) return;
    check(o);
    size_t before = o.bytes;
    if (bytes < before) o.at[bytes - 1] = content(o, bytes - 1);
    forget(o);
    place(o, static_cast<unsigned char*>(larder_realloc(o.at, bytes)), bytes);
    o.bytes = before < bytes ? before : bytes;
    check(o);
    o.bytes = bytes;
    fill(o, before);
  }

  void release(Object& o) {
    if (o.at == nullptr) return;
    check(o);
    forget(o);
    larder_free(o.at);
    o = {};
  }

  void free_wrongly(Object& o, unsigned how) {
    if (o.at == nullptr) return;
    if (how % 2 == 0) {
      void* freed = o.at;
      release(o);
      return larder_free(freed);
    }
    if (o.bytes > 1) larder_free(o.at + 1 + how % (o.bytes - 1));
    check(o);
  }

  void place(Object& o, void* at, size_t bytes) {
    CHECK(at != nullptr);
    o.at = static_cast<unsigned char*>(at);
    o.bytes = bytes;
    CHECK(larder_malloc_usable_size(at) >= bytes);
    auto next = places_.lower_bound(o.at);
    CHECK(next == places_.end() || o.at + bytes <= next->first);
    CHECK(next == places_.begin() || std::prev(next)->second <= o.at);
    places_[o.at] = o.at + (bytes != 0 ? bytes : 1);
    live_ += bytes;
  }
  void forget(Object& o) {
    places_.erase(o.at);
    live_ -= o.bytes;
  }

  // The eighth byte of each word stays small: no content looks like a link.
  static unsigned char content(const Object& o, size_t i) { return (o.first + i * 7) & 0x7F; }
  static size_t step_at(size_t i) { return i < 256 ? 1 : 509; }
  void fill(Object& o, size_t from) {
    if (from == 0) o.first = static_cast<unsigned char>(++fills_);
    for (size_t i = 0; i < o.bytes; i += step_at(i)) o.at[i] = content(o, i);
    if (o.bytes != 0) o.at[o.bytes - 1] = content(o, o.bytes - 1);
  }
  static void check(const Object& o) {
    for (size_t i = 0; i < o.bytes; i += step_at(i)) CHECK(o.at[i] == content(o, i));
    CHECK(o.bytes == 0 || o.at[o.bytes - 1] == content(o, o.bytes - 1));
  }

  Object objects_[kSlots];
  std::map<unsigned char*, unsigned char*> places_;  // by address: the ends
  size_t live_ = 0;
  unsigned fills_ = 0;
};

// Runs single steps in another thread, while the first waits.
class Other {
 public:
  Other() {
    sem_init(&asked_, 0, 0);
    sem_init(&answered_, 0, 0);
    std::thread([this] { serve(); }).detach();
  }
  void step(Model& model, Input& in) {
    model_ = &model;
    in_ = &in;
    sem_post(&asked_);
    while (sem_wait(&answered_) != 0) {
    }
  }

 private:
  void serve() {
    for (;;) {
      while (sem_wait(&asked_) != 0) {
      }
      model_->step(*in_);
      sem_post(&answered_);
    }
  }
  sem_t asked_, answered_;
  Model* model_ = nullptr;
  Input* in_ = nullptr;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static auto* other = new Other;
  Input in(bytes, size);
  Model model;
  while (!in.empty()) {
    if (in.byte() % 4 == 0)
      other->step(model, in);
    else
      model.step(in);
  }
  return 0;
}
