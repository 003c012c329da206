#include "base/chance.h"

#include <string.h>
#include <sys/auxv.h>

#include <atomic>

namespace larder {

namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15ull;  // splitmix64's constant

constinit std::atomic<uint64_t> seeds{0};  // relaxed: only that they differ matters

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

uint64_t new_seed() {
  if (seeds.load(std::memory_order_relaxed) == 0) {
    uint64_t random = kStep;
    if (const void* given = reinterpret_cast<const void*>(getauxval(AT_RANDOM)))
      memcpy(&random, given, sizeof random);
    uint64_t none = 0;
    seeds.compare_exchange_strong(none, random | 1, std::memory_order_relaxed);
  }
  return mixed(seeds.fetch_add(2, std::memory_order_relaxed) * kStep) | 1;
}

}  // namespace

void seed_chances(uint64_t seed) { seeds.store(seed * 2 + 1, std::memory_order_relaxed); }

uint64_t Chance::next() {
  if (unlikely(state == 0)) state = new_seed();
  return mixed(state += kStep);
}

double Chance::exponential() { return -natural_log(unit()); }

double natural_log(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  auto bits = __builtin_bit_cast(uint64_t, x);
  auto exponent = int(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1023} << 52);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  // ln m = 2 artanh t, |t| < 0.172.
  double t = (m - 1) / (m + 1), square = t * t, sum = 0;
  for (int k = 17; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * t * sum + exponent * kLn2;
}

double exp_minus_one(double x) {
  if (x > 700) x = 700;
  int halvings = 0;
  while (x > 0.125) {
    x /= 2;
    ++halvings;
  }
  double sum = 0;
  for (int k = 10; k > 0; --k) sum = (1 + sum) * x / k;
  for (; halvings > 0; --halvings) sum *= sum + 2;
  return sum;
}

}  // namespace larder
