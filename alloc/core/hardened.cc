#include "core/hardened.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>

#include <utility>

#include "base/policy.h"
#include "core/misuse.h"
#include "core/thread_heap.h"
#include "os/backing.h"

namespace larder {

namespace {

// --- canaries

uintptr_t mixed(uintptr_t word) {
  word ^= word >> 29;
  word *= 0x9E3779B97F4A7C15u;
  word ^= word >> 32;
  return word * 0xD6E8FEB86659FD93u;
}

// 0: not drawn yet. Relaxed: each thread draws the same. The kernel's random bytes of the process
// need no system call, which a sandbox may forbid; libc's canaries, which are some of them, do not
// show through.
constinit std::atomic<uintptr_t> secret_word{0};

LARDER_SLOW uintptr_t draw_secret() {
  uintptr_t random[2] = {};
  const void* given = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (given != nullptr) memcpy(random, given, sizeof random);
  uintptr_t secret = mixed(mixed(random[0]) ^ random[1]) | 1;
  secret_word.store(secret, std::memory_order_relaxed);
  return secret;
}

LARDER_FAST uintptr_t canary_of(const void* p) {
  uintptr_t secret = secret_word.load(std::memory_order_relaxed);
  if (unlikely(secret == 0)) secret = draw_secret();
  // The first byte is none that most overflows by one byte write: no zero, no ASCII, not odd.
  return (mixed(secret ^ uintptr_t(p)) & ~uintptr_t{1}) | 0x80;
}

// Behind the content. REQUIRES: an object begins at p.
LARDER_FAST uintptr_t* end_word(const void* p, const Slab* s) {
  return reinterpret_cast<uintptr_t*>(uintptr_t(p) + usable_size(s) - Hardened::kRoom);
}

// --- objects above kSpanMax

// Their descriptors; whoever exchanges one for another has it to itself.
constinit std::atomic<Slab*> closed[kClosed] = {};
constinit std::atomic<uint32_t> next_closed{0};  // relaxed: a count

void reopen(Slab* s) {
  // What cannot be opened again is lost, and takes no memory.
  if (!backing::open(s->base, s->bytes)) return;
  s->kind = Kind::kHuge;
  free_fast(s->object());
}

void close_mapping(Slab* s) {
  s->kind = Kind::kFree;
  if (!backing::close(s->base, s->bytes)) {
    s->kind = Kind::kHuge;
    return free_fast(s->object());
  }
  auto& place = closed[next_closed.fetch_add(1, std::memory_order_relaxed) % kClosed];
  if (Slab* other = place.exchange(s, std::memory_order_acq_rel)) reopen(other);
}

bool reopen_all() {
  bool any = false;
  for (auto& place : closed) {
    Slab* s = place.exchange(nullptr, std::memory_order_acq_rel);
    if (s == nullptr) continue;
    reopen(s);
    any = true;
  }
  return any;
}

// --- the quarantine

struct Freed {
  char* p;
  size_t bytes;  // with the canary
};

// Whether the first `bytes` and the canary are as free() has left them.
bool is_intact(const Freed& freed, size_t bytes) {
  const auto* words = reinterpret_cast<const uintptr_t*>(freed.p);
  size_t last = freed.bytes / sizeof(uintptr_t) - 1, count = bytes / sizeof(uintptr_t);
  uintptr_t any = 0;
  for (size_t i = 0; i < (count < last ? count : last); ++i) any |= words[i];
  return any == 0 && words[last] == ~canary_of(freed.p);
}

// To the heap. REQUIRES: free() has cleared it.
void give_back(const Freed& freed, const char* call) {
  if (!is_intact(freed, freed.bytes))
    return report_misuse(call, Misuse::kWriteAfterFree, freed.p);  // and is never used again
  memset(freed.p + freed.bytes - Hardened::kRoom, 0, Hardened::kRoom);
  free_fast(freed.p);
}

void on_thread_exit(void*);

struct Key {
  pthread_key_t key = 0;
  bool is_made = false;
};
constinit Key exits;

[[gnu::constructor(102)]] void make_key() {
  exits.is_made = pthread_key_create(&exits.key, on_thread_exit) == 0;
}

class Quarantine {
 public:
  // Within, a signal handler finds it taken, and so does a callback of the program.
  bool enter() {
    if (unlikely(busy_ || state_ == State::kOff)) return false;
    busy_ = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (unlikely(state_ == State::kNew)) begin();
    return true;
  }
  void leave() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    busy_ = false;
  }

  // REQUIRES: entered.
  void add(const Freed& freed) {
    random_ = mixed(random_ + uintptr_t(freed.p));
    latest_ = uint32_t(random_ >> 32) % kQuarantined;
    Freed other = std::exchange(freed_[latest_], freed);
    looked_at_ = latest_;
    bytes_ += freed.bytes - other.bytes;
    if (other.p != nullptr) give_back(other, "free");
    for (uint32_t i = latest_ + 1; bytes_ > kQuarantineBytes; ++i) drop(i % kQuarantined);
  }
  void look_at_one() {
    Freed& freed = freed_[looked_at_];
    looked_at_ = (looked_at_ + 1) % kQuarantined;
    if (freed.p == nullptr || likely(is_intact(freed, kLookedAt))) return;
    bytes_ -= freed.bytes;
    report_misuse("malloc", Misuse::kWriteAfterFree, std::exchange(freed, {}).p);
  }
  bool drop_all() {
    bool any = bytes_ != 0;
    for (uint32_t i = 0; i < kQuarantined; ++i) drop(i);
    return any;
  }
  void end() {
    if (!enter()) return;
    drop_all();
    state_ = State::kOff;
    leave();
  }

 private:
  enum class State : uint8_t { kNew, kOn, kOff };

  void drop(uint32_t i) {
    Freed freed = std::exchange(freed_[i], {});
    bytes_ -= freed.bytes;
    if (freed.p != nullptr) give_back(freed, "free");
  }
  LARDER_SLOW void begin() {
    // libc may allocate for the value: it finds the quarantine taken.
    if (exits.is_made && pthread_setspecific(exits.key, this) != 0) return;
    if (exits.is_made) state_ = State::kOn;
    random_ = canary_of(this);
  }

  Freed freed_[kQuarantined] = {};
  size_t bytes_ = 0;
  uintptr_t random_ = 0;
  uint32_t latest_ = 0, looked_at_ = 0;
  State state_ = State::kNew;
  bool busy_ = false;
};

constinit thread_local Quarantine quarantine __attribute__((tls_model("initial-exec")));

void on_thread_exit(void* of_thread) { static_cast<Quarantine*>(of_thread)->end(); }

// --- the calls

// Kept from overflowing; the heap refuses what is above kMaxSize.
size_t with_room(size_t size_bytes) {
  return size_bytes > kMaxSize ? size_bytes : size_bytes + Hardened::kRoom;
}

// Tries again without what is quarantined. errno is kept if that succeeds.
template <typename Allocate>
LARDER_SLOW void* allocate_again(Allocate allocate, int errno_before) {
  bool any = reopen_all();
  if (quarantine.enter()) {
    any = quarantine.drop_all() || any;
    quarantine.leave();
  }
  void* p = any ? allocate() : nullptr;
  if (p != nullptr) errno = errno_before;
  return p;
}

template <typename Allocate>
void* hand_out(Allocate allocate) {
  int saved_errno = errno;
  void* p = allocate();
  if (unlikely(p == nullptr)) p = allocate_again(allocate, saved_errno);
  if (unlikely(p == nullptr)) return nullptr;
  *end_word(p, page_map.find(p)) = canary_of(p);
  if (likely(quarantine.enter())) {
    quarantine.look_at_one();
    quarantine.leave();
  }
  return p;
}

// Whether an object that is in use begins at p. REQUIRES: p is in Larder's memory.
bool is_in_use(const char* call, Misuse if_free, const void* p, const Slab* s) {
  if (unlikely(is_small(s) ? !at_object(p, s) : p != s->object() || s->kind == Kind::kFree))
    return !misused(call, if_free, p, s);
  uintptr_t word = *end_word(p, s), canary = canary_of(p);
  if (likely(word == canary)) return true;
  bool is_free = word == ~canary || (word == 0 && is_small(s) && has_link(p));
  report_misuse(call, is_free ? if_free : Misuse::kOverflow, p);
  return false;
}

// REQUIRES: in use.
void retire(void* p, Slab* s) {
  if (unlikely(s->kind == Kind::kHuge)) return close_mapping(s);
  if (unlikely(s->kind == Kind::kEmergency)) return free_fast(p);
  Freed freed = {static_cast<char*>(p), usable_size(s)};
  memset(p, 0, freed.bytes - Hardened::kRoom);
  uintptr_t* end = end_word(p, s);
  if (unlikely(freed.bytes > kQuarantineBytes || !quarantine.enter())) {
    *end = 0;
    return free_fast(p);
  }
  *end = ~canary_of(p);
  quarantine.add(freed);
  quarantine.leave();
}

}  // namespace

void* Hardened::allocate(size_t size_bytes) {
  return hand_out([=] { return malloc_fast(with_room(size_bytes)); });
}

void* Hardened::allocate_zeroed(size_t size_bytes) {
  return hand_out([=] { return zeroed_alloc(with_room(size_bytes)); });
}

void* Hardened::allocate_aligned(size_t size_bytes, size_t align) {
  return hand_out([=] { return aligned_alloc_any(with_room(size_bytes), align); });
}

void Hardened::free(void* p) {
  Slab* s = page_map.find(p);
  if (unlikely(s->kind == Kind::kNull)) return free_fast(p);
  if (likely(is_in_use("free", Misuse::kDoubleFree, p, s))) retire(p, s);
}

void* Hardened::resize(void* p, Slab* s, size_t size_bytes) {
  if (unlikely(size_bytes > kMaxSize)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (is_small(s) || size_bytes + kRoom > kSmallMax) {
    *end_word(p, s) = 0;
    void* q = resize_without_copy(p, s, size_bytes + kRoom, false);
    void* at = q != nullptr ? q : p;
    *end_word(at, page_map.find(at)) = canary_of(at);
    if (q != nullptr) return q;
  }
  // One that has grown beyond the small sizes will grow again.
  int saved_errno = errno;
  size_t old = usable(s),
         room = size_bytes > old && size_bytes > kSmallMax ? size_bytes / kGrowShare : 0;
  void* q = allocate(size_bytes + room);
  if (q == nullptr && room != 0) q = allocate(size_bytes);
  if (q == nullptr && size_bytes > old) return nullptr;
  errno = saved_errno;
  if (q == nullptr) return p;
  memcpy(q, p, old < size_bytes ? old : size_bytes);
  retire(p, s);
  return q;
}

size_t Hardened::usable(const Slab* s) { return usable_size(s) - kRoom; }

bool Hardened::may_resize(const void* p, const Slab* s) {
  return is_in_use("realloc", Misuse::kUseOfFree, p, s);
}

bool Hardened::may_measure(const void* p, const Slab* s) {
  return is_in_use("malloc_usable_size", Misuse::kUseOfFree, p, s);
}

}  // namespace larder
