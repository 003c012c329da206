#include "growth.h"

#include "calls.h"
#include "run.h"

namespace torture {

namespace {

// One figure over the rounds. What an allocator keeps for reuse has an upper bound, though it may
// take some rounds to reach it: so the first rounds, and what they came to and as much as `slack`
// on top, are free. Beyond that, new records must become rare. Where they do not, it is growth.
class Trend {
 public:
  explicit Trend(size_t slack) : slack_(slack) {}

  // True when it is growth.
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

// Pairs of malloc and free at sizes that go different ways, the large ones barely touched.
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
  static Trend in_use(2 * kMiB);
  static Trend resident(settings.live_mib * kMiB / 2 + 64 * kMiB);
  static Trend space(settings.live_mib * kMiB * 2 + 512 * kMiB);
  churn();
  if (family.info != nullptr) {
    struct mallinfo2 info = family.info();
    judge(in_use, info.uordblks + info.hblkhd, "the allocator's own count of bytes in use is");
  }
  judge(resident, resident_bytes(), "the resident set is");
  judge(space, address_space_bytes(), "the address space is");
}

}  // namespace torture
