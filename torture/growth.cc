#include "growth.h"

#include <unistd.h>

#include "calls.h"
#include "run.h"

namespace torture {

namespace {

// One figure over the rounds. What an allocator keeps for reuse has an upper bound, which it may
// take some rounds to reach: the maximum of the first rounds plus `slack` is allowed. Above that,
// new maxima must become rare; otherwise it is growth.
class Trend {
 public:
  explicit Trend(size_t slack) : slack_(slack) {}

  // True if it is growth.
  bool add(size_t value) {
    constexpr int kWarmUp = 2;
    constexpr int kTooMany = 4;
    constexpr size_t kStep = 64 * kKiB;
    if (++rounds_ <= kWarmUp) {
      if (value > record_) record_ = value;
      base_ = record_;
      return false;
    }
    if (value > base_ + slack_ && value > record_ + kStep)
      ++records_;
    else if (records_ > 0 && value <= record_)
      --records_;
    if (value > record_) record_ = value;
    return records_ >= kTooMany;
  }
  size_t base() const { return base_; }

 private:
  size_t slack_, base_ = 0, record_ = 0;
  int rounds_ = 0, records_ = 0;
};

// Pairs of malloc and free at sizes with different code paths; large blocks are hardly touched.
void churn() {
  constexpr size_t kSizes[] = {48, 1000, 20000, 100 * kKiB, 700 * kKiB, 5 * kMiB};
  constexpr int kPairs = 4000;
  for (size_t size : kSizes) {
    where->call.store("malloc and free, again and again");
    where->size.store(size);
    where->calls.fetch_add(1);
    for (int i = 0; i < kPairs; ++i) {
      auto* p = static_cast<volatile char*>(family.malloc(size));
      if (p == nullptr)
        fault(Fault::kNoMemory, where, nullptr, nullptr,
              "malloc gives no block of %zu bytes with nothing allocated", size);
      p[0] = 1;
      family.free(const_cast<char*>(p));
    }
  }
}

// The allocator's own count; 0 if it has none.
size_t bytes_in_use() {
  if (family.info == nullptr) return 0;
  struct mallinfo2 info = family.info();
  return info.uordblks + info.hblkhd;
}

// The least that the pairs add to `before`, the bytes in use, in several tries: a leak adds to
// each, but a cache that picks what it holds at random not to all. The bytes in use then are in
// *after.
size_t left_by_churn(size_t before, size_t* after) {
  constexpr int kTries = 3;
  size_t least = SIZE_MAX;
  for (int i = 0; i < kTries; ++i, before = *after) {
    churn();
    *after = bytes_in_use();
    size_t left = *after > before ? *after - before : 0;
    if (left < least) least = left;
  }
  return least;
}

void judge(Trend& trend, size_t value, const char* what) {
  if (!trend.add(value) || is_ignored(Fault::kGrowth)) return;
  where->call.store("comparison of rounds");
  fault(Fault::kGrowth, where, nullptr, nullptr,
        "with nothing allocated, %s %zu KiB, and rises round by round: it was %zu KiB after the "
        "first rounds",
        what, value >> 10, trend.base() >> 10);
}

}  // namespace

void check_growth() {
  // Heaps that threads share, and those of ended threads, may have partial slabs that count as in
  // use; one heap a processor is common.
  static Trend in_use((8 + 8 * size_t(sysconf(_SC_NPROCESSORS_ONLN))) * kMiB);
  [[maybe_unused]] static Trend resident(settings.live_mib * kMiB / 2 + 64 * kMiB);
  [[maybe_unused]] static Trend space(settings.live_mib * kMiB * 2 + 512 * kMiB);
  // Pairs by the only thread leave nothing in use but what its caches hold.
  static Trend by_pairs(2 * kMiB);
  static size_t left_by_pairs = 0;
  size_t after = 0;
  left_by_pairs += left_by_churn(bytes_in_use(), &after);
  judge(by_pairs, left_by_pairs, "pairs of malloc and free have left so much in use:");
  judge(in_use, after, "the allocator's own count of bytes in use is");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A sanitizer's own memory is many times as much.
  judge(resident, resident_bytes(), "the resident set is");
  judge(space, address_space_bytes(), "the address space is");
#endif
}

}  // namespace torture
