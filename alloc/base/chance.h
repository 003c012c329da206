// Random numbers for the sampler, and the two functions of them that it needs: no libm.
//
// Each Chance belongs to one thread, or to a lock's holder. Chances are seeded apart from each
// other, from what the kernel gave the process at its start.
#pragma once

#include "base/base.h"

namespace larder {

// Nothing is sampled while it is zero; seeds itself when it is first asked.
struct Chance {
  uint64_t state;

  uint64_t next();
  // In (0, 1].
  double unit() { return double((next() >> 11) + 1) * 0x1p-53; }
  // Exponentially distributed, of mean 1: the distance to the next event of a Poisson process.
  double exponential();
};

// Chances that begin from now on are those of this seed: for tests.
void seed_chances(uint64_t seed);

// Natural logarithm of x > 0; exp(x) - 1 of x >= 0. To 1e-12, relatively.
double natural_log(double x);
double exp_minus_one(double x);

}  // namespace larder
