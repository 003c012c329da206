// Random numbers for the sampler, with the logarithm and exponential that it needs: no libm.
//
// A Chance belongs to one thread, or to a lock's holder. Chances have different seeds, derived from
// AT_RANDOM.
#pragma once

#include "base/base.h"

namespace larder {

// A zero state is seeded by the first next().
struct Chance {
  uint64_t state;

  uint64_t next();
  // In (0, 1].
  double unit() { return double((next() >> 11) + 1) * 0x1p-53; }
  // Exponentially distributed with mean 1: the distance to the next event of a Poisson process.
  double exponential();
};

// Seeds all later Chances: for tests.
void seed_chances(uint64_t seed);

// log(x) for x > 0; exp(x) - 1 for x >= 0. Relative error <= 1e-12.
double natural_log(double x);
double exp_minus_one(double x);

}  // namespace larder
