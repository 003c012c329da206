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

struct Secret {
  uintptr_t offset, factor;
};
// A factor of 0: not drawn yet. Each thread draws the same. Relaxed: the factor orders.
constinit std::atomic<uintptr_t> secret_offset{0}, secret_factor{0};

uintptr_t mixed(uintptr_t word) {
  word ^= word >> 29;
  word *= 0x9E3779B97F4A7C15u;
  word ^= word >> 32;
  return word * 0xD6E8FEB86659FD93u;
}

// The kernel's random bytes of the process need no system call, which a sandbox may forbid; libc's
// canaries, which are some of them, do not show through.
LARDER_SLOW Secret draw_secret() {
  uintptr_t random[2] = {};
  const void* given = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (given != nullptr) memcpy(random, given, sizeof random);
  Secret secret = {mixed(mixed(random[0]) ^ random[1]), mixed(mixed(random[1]) ^ random[0]) | 1};
  secret_offset.store(secret.offset, std::memory_order_relaxed);
  secret_factor.store(secret.factor, std::memory_order_release);
  return secret;
}

LARDER_FAST uintptr_t canary_of(const void* p) {
  uintptr_t factor = secret_factor.load(std::memory_order_acquire);
  Secret secret = {secret_offset.load(std::memory_order_relaxed), factor};
  if (unlikely(factor == 0)) secret = draw_secret();
  // The first byte is none that most overflows by one byte write: no zero, no ASCII, not odd.
  return (((uintptr_t(p) ^ secret.offset) * secret.factor) & ~uintptr_t{1}) | 0x80;
}

// The content and the canary.
LARDER_FAST size_t object_bytes(const Slab* s) {
  return likely(is_small(s)) ? kSizeClasses.size[s->size_class] : usable_size(s);
}

// REQUIRES: an object of `bytes` begins at p.
LARDER_FAST uintptr_t* end_word(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t*>(uintptr_t(p) + bytes - Hardened::kRoom);
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
  Slab* slab;
};

// All objects but those of 8 bytes are of whole pairs.
using Pair = uintptr_t __attribute__((vector_size(16), may_alias));

// As free() leaves an object.
LARDER_FAST void clear(char* p, size_t bytes) {
  if (bytes > kClearedInline) {
    memset(p, 0, bytes);
  } else {
    for (char* at = p; at + sizeof(Pair) <= p + bytes; at += sizeof(Pair)) {
      *reinterpret_cast<Pair*>(at) = Pair{};
      __asm__("" : "+r"(at));  // not a call of memset
    }
  }
  *end_word(p, bytes) = ~canary_of(p);
}

// REQUIRES: 8 bytes, or whole pairs.
LARDER_FAST bool is_zero(const char* p, size_t bytes) {
  Pair any = {};
  for (const char* at = p; at + sizeof(Pair) <= p + bytes; at += sizeof(Pair))
    any |= *reinterpret_cast<const Pair*>(at);
  return (any[0] | any[1]) == 0;
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
  LARDER_FAST bool enter() {
    if (unlikely(state_ != State::kOn) && !begin()) return false;
    state_ = State::kBusy;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  }
  LARDER_FAST void leave() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    state_ = State::kOn;
  }

  // REQUIRES: entered; it was cleared.
  LARDER_FAST void add(const Freed& freed, size_t bytes) {
    random_ = (random_ ^ uintptr_t(freed.p)) * 0x9E3779B97F4A7C15u;
    uint32_t latest = uint32_t(random_ >> 32) % kQuarantined;
    looked_at_ = latest;
    bytes_ += bytes;
    Freed other = std::exchange(freed_[latest], freed);
    if (likely(other.p != nullptr)) release(other, is_small(other.slab));
    for (uint32_t i = latest + 1; unlikely(bytes_ > kQuarantineBytes); ++i) drop(i % kQuarantined);
  }
  // What is listed is clear, also while a call is interrupted.
  LARDER_FAST void look_at_one() {
    const char* p = freed_[looked_at_].p;
    if (p != nullptr && unlikely(*reinterpret_cast<const uintptr_t*>(p) != 0)) examine(looked_at_);
    looked_at_ = (looked_at_ + 1) % kQuarantined;
  }
  uintptr_t draw() { return random_ = mixed(random_ + canary_of(this)); }
  // REQUIRES: entered.
  bool drop_all() {
    bool any = bytes_ != 0;
    for (uint32_t i = 0; i < kQuarantined; ++i) drop(i);
    return any;
  }
  void end() {
    if (!enter()) return;
    drop_all();
    state_ = State::kOff;
  }

 private:
  enum class State : uint8_t { kNew, kOn, kBusy, kOff };

  // To the heap. What malloc will check when it hands it out need not be checked here.
  LARDER_FAST void release(const Freed& freed, bool is_checked_later) {
    size_t bytes = object_bytes(freed.slab);
    bytes_ -= bytes;
    uintptr_t* end = end_word(freed.p, bytes);
    bool is_intact = std::exchange(*end, 0) == ~canary_of(freed.p);
    if (unlikely(!is_intact || (!is_checked_later && !is_zero(freed.p, bytes))))
      return report_misuse("free", Misuse::kWriteAfterFree, freed.p);  // and is never used again
    free_in_use(freed.p, freed.slab);
  }
  LARDER_SLOW void drop(uint32_t i) {
    Freed freed = std::exchange(freed_[i], {});
    if (freed.p != nullptr) release(freed, false);
  }
  // The word is not zero: it was written to, or is the canary of an object without content.
  LARDER_SLOW void examine(uint32_t i) {
    if (!enter()) return;
    if (object_bytes(freed_[i].slab) > Hardened::kRoom) drop(i);
    leave();
  }
  LARDER_SLOW bool begin() {
    if (state_ != State::kNew || !exits.is_made) return false;
    // libc may allocate for the value: it finds the quarantine taken.
    state_ = State::kBusy;
    if (pthread_setspecific(exits.key, this) == 0) {
      random_ = canary_of(this);
      return true;
    }
    state_ = State::kNew;
    return false;
  }

  Freed freed_[kQuarantined] = {};
  size_t bytes_ = 0;
  uintptr_t random_ = 0;
  uint32_t looked_at_ = 0;
  State state_ = State::kNew;
};

constinit thread_local Quarantine quarantine __attribute__((tls_model("initial-exec")));

void on_thread_exit(void* of_thread) { static_cast<Quarantine*>(of_thread)->end(); }

[[gnu::destructor]] void at_exit() { quarantine.end(); }

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
LARDER_FAST void* hand_out(Allocate allocate) {
  int saved_errno = errno;
  void* p = allocate();
  if (unlikely(p == nullptr)) p = allocate_again(allocate, saved_errno);
  if (unlikely(p == nullptr)) return nullptr;
  const Slab* s = page_map.find(p);
  size_t bytes = object_bytes(s);
  if (likely(is_small(s)) && unlikely(!is_zero(static_cast<char*>(p), bytes))) {
    report_misuse("malloc", Misuse::kWriteAfterFree, p);
    memset(p, 0, bytes);
  }
  *end_word(p, bytes) = canary_of(p);
  quarantine.look_at_one();
  return p;
}

// Whether an object begins there, in use or free. REQUIRES: p is in Larder's memory.
LARDER_FAST bool begins_object(const void* p, const Slab* s) {
  return likely(is_small(s)) ? at_object(p, s) : p == s->object() && s->kind != Kind::kFree;
}

// Of an address where no object in use begins: reports what it is. Whether the call may go on.
LARDER_SLOW bool refuse(const char* call, Misuse if_free, const void* p, const Slab* s) {
  if (!begins_object(p, s)) return !misused(call, if_free, p, s);
  uintptr_t word = *end_word(p, object_bytes(s));
  bool is_free = word == ~canary_of(p) || (word == 0 && is_small(s) && has_link(p));
  report_misuse(call, is_free ? if_free : Misuse::kOverflow, p);
  return false;
}

// Whether an object that is in use begins at p. REQUIRES: p is in Larder's memory.
LARDER_FAST bool is_in_use(const char* call, Misuse if_free, const void* p, const Slab* s) {
  if (likely(begins_object(p, s)) && likely(*end_word(p, object_bytes(s)) == canary_of(p)))
    return true;
  return refuse(call, if_free, p, s);
}

// What is not quarantined. REQUIRES: in use.
LARDER_WARM void retire_now(void* p, Slab* s) {
  if (s->kind == Kind::kHuge) return close_mapping(s);
  if (s->kind != Kind::kEmergency) memset(p, 0, object_bytes(s));
  free_fast(p);
}

// REQUIRES: in use.
LARDER_FAST void retire(void* p, Slab* s) {
  size_t bytes = object_bytes(s);
  if (unlikely(s->kind == Kind::kEmergency || bytes > kQuarantineBytes || !quarantine.enter()))
    return retire_now(p, s);
  clear(static_cast<char*>(p), bytes);
  quarantine.add({static_cast<char*>(p), s}, bytes);
  quarantine.leave();
}

}  // namespace

void* Hardened::allocate(size_t size_bytes) {
  return hand_out([=] { return malloc_fast(with_room(size_bytes)); });
}

void* Hardened::allocate_zeroed(size_t size_bytes) {
  if (size_bytes > kSmallMax - kRoom)
    return hand_out([=] { return zeroed_alloc(with_room(size_bytes)); });
  void* p = allocate(size_bytes);
  // What a signal handler got is no small object.
  if (p != nullptr && unlikely(!is_small(page_map.find(p)))) memset(p, 0, size_bytes);
  return p;
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
  if (is_small(s)) {
    if (void* q = resize_without_copy(p, s, size_bytes + kRoom, false)) return q;
  } else if (size_bytes + kRoom > kSmallMax) {
    *end_word(p, object_bytes(s)) = 0;
    void* q = resize_without_copy(p, s, size_bytes + kRoom, false);
    void* at = q != nullptr ? q : p;
    *end_word(at, object_bytes(page_map.find(at))) = canary_of(at);
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

void* Hardened::link_carved(Slab* s, char* first, uint32_t count) {
  const size_t size = kSizeClasses.size[s->size_class];
  const char *end = first + count * size, *touched_end = s->base + s->touched;
  const char* dirty_end = s->zero && touched_end < end ? touched_end : end;
  if (first < dirty_end) memset(first, 0, size_t(dirty_end - first));
  // Sattolo's shuffle: each object leads to another, and all are on one cycle, which is cut.
  auto at = [=](uint32_t i) { return first + i * size; };
  for (uint32_t i = 0; i < count; ++i) set_next(at(i), at(i));
  for (uint32_t i = count - 1; i > 0; --i)
    std::swap(link_of(at(i)),
              link_of(at(uint32_t(uint64_t{uint32_t(quarantine.draw())} * i >> 32))));
  void* head = next_of(first);
  set_next(first, nullptr);
  return head;
}

size_t Hardened::usable(const Slab* s) { return object_bytes(s) - kRoom; }

bool Hardened::may_resize(const void* p, const Slab* s) {
  return is_in_use("realloc", Misuse::kUseOfFree, p, s);
}

bool Hardened::may_measure(const void* p, const Slab* s) {
  return is_in_use("malloc_usable_size", Misuse::kUseOfFree, p, s);
}

}  // namespace larder
