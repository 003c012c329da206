/* The shortest digits that read back as the same double or float; number.h prints them.
 *
 * Owns nothing. Any thread.
 *
 * A value m * 2^e is read back from every decimal between the middles to its neighbours. In units
 * of 10^k = 10^floor(log10(that distance)), there is at most one multiple of ten between them,
 * which then has fewest digits; otherwise one of the two integers around the value is the nearest
 * (R. Giulietti, "The Schubfach way to render doubles", 2021). Here each comparison is made with a
 * product of which 2^-sh is the unit and two units bound the error; what these cannot decide is
 * compared exactly, in long integers.
 *
 * Invariant of a point: with P the exact weight * 2^(e-2) * 10^-k * 2^sh, product <= P < product
 * + 2.
 */
#ifndef LARDER_KIT_NUMBER_SHORTEST_H
#define LARDER_KIT_NUMBER_SHORTEST_H

#include <stdint.h>
#include <string.h>

#include "memory.h"

__extension__ typedef unsigned __int128 larder_number_wide;

/* digits * 10^exponent */
typedef struct larder_decimal {
  uint64_t digits;
  int exponent;
} larder_decimal;

enum { LARDER_NUMBER_LIMBS = 32 };

/* A long integer below 2^1024, least limb first: all that is compared has less than 900 bits. */
typedef struct larder_number_long {
  uint32_t limbs[LARDER_NUMBER_LIMBS];
} larder_number_long;

/* value * 5^power * 2^shift */
static inline larder_number_long larder_number_make_long(uint64_t value, int power, int shift) {
  larder_number_long made;
  memset(&made, 0, sizeof made);
  made.limbs[shift / 32] = (uint32_t)value;
  made.limbs[shift / 32 + 1] = (uint32_t)(value >> 32);
  for (int left = power; left > 0; left--) {
    uint64_t carry = 0;
    for (int i = shift / 32; i < LARDER_NUMBER_LIMBS; i++) {
      carry += (uint64_t)made.limbs[i] * 5;
      made.limbs[i] = (uint32_t)carry;
      carry >>= 32;
    }
  }
  for (int i = LARDER_NUMBER_LIMBS - 1; i >= 0 && shift % 32 != 0; i--) {
    uint32_t below = i == 0 ? 0 : made.limbs[i - 1];
    made.limbs[i] = made.limbs[i] << (shift % 32) | below >> (32 - shift % 32);
  }
  return made;
}

/* Below, at or above 0 where weight * 2^e is below, at or above count * 10^k. Hardly ever called.
 */
__attribute__((cold, noinline, unused)) static int larder_number_compare(uint64_t weight, int e,
                                                                         uint64_t count, int k) {
  int shift = e - k;
  larder_number_long a = larder_number_make_long(weight, k < 0 ? -k : 0, shift > 0 ? shift : 0);
  larder_number_long b = larder_number_make_long(count, k > 0 ? k : 0, shift < 0 ? -shift : 0);
  for (int i = LARDER_NUMBER_LIMBS - 1; i >= 0; i--) {
    if (a.limbs[i] != b.limbs[i]) {
      return a.limbs[i] < b.limbs[i] ? -1 : 1;
    }
  }
  return 0;
}

/* floor(log2(10^p)), for |p| <= 330. */
static inline int larder_number_log2_pow10(int p) { return (int)(((int64_t)p * 217706) >> 16); }

/* floor(log10(2^e)), or floor(log10(3/4 * 2^e)), for |e| <= 1100. */
static inline int larder_number_log10_pow2(int e, larder_bool three_quarters) {
  return (int)(((int64_t)e * 1292913986 - (three_quarters ? 536607788 : 0)) >> 32);
}

/* 10^p in units of 2^(log2_pow10(p) - 127), for -308 <= p <= 335; too small by less than one part
 * in 2^126. The table has the powers 10^-308, 10^-280 ... 10^308, rounded down. */
static inline larder_number_wide larder_number_pow10(int p) {
  static const uint64_t powers[23][2] = {
      {0xE61ACF033D1A45DF, 0x6FB92487298E33BD}, {0xE858AD248F5C22C9, 0xD1B3400F8F9CFF68},
      {0xEA9C227723EE8BCB, 0x465E15A979C1CADC}, {0xECE53CEC4A314EBD, 0xA4F8BF5635246428},
      {0xEF340A98172AACE4, 0x86FB897116C87C34}, {0xF18899B1BC3F8CA1, 0xDC44E6C3CB279AC1},
      {0xF3E2F893DEC3F126, 0x5A89DBA3C3EFCCFA}, {0xF64335BCF065D37D, 0x4D4617B5FF4A16D5},
      {0xF8A95FCF88747D94, 0x75A44C6397CE912A}, {0xFB158592BE068D2E, 0xEED6E2F0F0D56712},
      {0xFD87B5F28300CA0D, 0x8BCA9D6E188853FC}, {0x8000000000000000, 0x0000000000000000},
      {0x813F3978F8940984, 0x4000000000000000}, {0x82818F1281ED449F, 0xBFF8F10E7A8921A4},
      {0x83C7088E1AAB65DB, 0x792667C6DA79E0FA}, {0x850FADC09923329E, 0x03E2CF6BC604DDB0},
      {0x865B86925B9BC5C2, 0x0B8A2392BA45A9B2}, {0x87AA9AFF79042286, 0x90FB44D2F05D0842},
      {0x88FCF317F22241E2, 0x441FECE3BDF81F03}, {0x8A5296FFE33CC92F, 0x82BD6B70D99AAA6F},
      {0x8BAB8EEFB6409C1A, 0x1AD089B6C2F7548E}, {0x8D07E33455637EB2, 0xDB0B487B6423E1E8},
      {0x8E679C2F5E44FF8F, 0x570F09EAA7EA7648},
  };
  static const uint64_t fives[28] = {1U,
                                     5U,
                                     25U,
                                     125U,
                                     625U,
                                     3125U,
                                     15625U,
                                     78125U,
                                     390625U,
                                     1953125U,
                                     9765625U,
                                     48828125U,
                                     244140625U,
                                     1220703125U,
                                     6103515625U,
                                     30517578125U,
                                     152587890625U,
                                     762939453125U,
                                     3814697265625U,
                                     19073486328125U,
                                     95367431640625U,
                                     476837158203125U,
                                     2384185791015625U,
                                     11920928955078125U,
                                     59604644775390625U,
                                     298023223876953125U,
                                     1490116119384765625U,
                                     7450580596923828125U};
  int index = (p + 308) / 28;
  uint64_t five = fives[(p + 308) % 28];
  larder_number_wide low = (larder_number_wide)powers[index][1] * five;
  larder_number_wide high = (larder_number_wide)powers[index][0] * five + (uint64_t)(low >> 64);
  uint64_t top = (uint64_t)(high >> 64);
  int zeros = top != 0 ? __builtin_clzll(top) : 64;
  if (zeros == 0) {
    return high;
  }
  return high << zeros | (uint64_t)low >> (64 - zeros);
}

/* The units that a value's digits are counted in. */
typedef struct larder_number_scale {
  larder_number_wide factor; /* 10^-k */
  int sh;
  int e;
  int k;
} larder_number_scale;

/* A number of quarters of 2^e, and that as the scale counts it. */
typedef struct larder_number_point {
  uint64_t weight;
  larder_number_wide product;
} larder_number_point;

static inline larder_number_point larder_number_make_point(const larder_number_scale* scale,
                                                           uint64_t weight) {
  larder_number_wide low = (larder_number_wide)weight * (uint64_t)scale->factor;
  larder_number_wide high = (larder_number_wide)weight * (uint64_t)(scale->factor >> 64);
  larder_number_point point = {weight, high + (uint64_t)(low >> 64)};
  return point;
}

/* Below, at or above 0 where the point is below, at or above halves / 2 * 10^k. */
static inline int larder_number_order(const larder_number_scale* scale,
                                      const larder_number_point* point, uint64_t halves) {
  larder_number_wide wanted = (larder_number_wide)halves << (scale->sh - 1);
  if (point->product > wanted) {
    return 1;
  }
  if (point->product + 2 <= wanted) {
    return -1;
  }
  return larder_number_compare(point->weight, scale->e - 1, halves, scale->k);
}

/* Of m * 2^e, m > 0. narrow_below: the next smaller value is half as far as the next larger one. */
static inline larder_decimal larder_number_shortest(uint64_t m, int e, larder_bool narrow_below) {
  larder_number_scale scale;
  scale.e = e;
  scale.k = larder_number_log10_pow2(e, narrow_below);
  scale.factor = larder_number_pow10(-scale.k);
  scale.sh = 65 - e - larder_number_log2_pow10(-scale.k);
  larder_number_point low = larder_number_make_point(&scale, 4 * m - (narrow_below ? 1 : 2));
  larder_number_point middle = larder_number_make_point(&scale, 4 * m);
  larder_number_point high = larder_number_make_point(&scale, 4 * m + 2);
  /* The middle to a neighbour is read back as the even one of the two. */
  int reach = m % 2 == 0 ? 1 : 0;
  uint64_t floor = (uint64_t)(middle.product >> scale.sh);
  uint64_t candidates[4] = {floor - floor % 10, floor - floor % 10 + 10, floor, floor + 1};
  larder_bool inside[4];
  for (int i = 0; i < 4; i++) {
    inside[i] = larder_number_order(&scale, &low, 2 * candidates[i]) < reach &&
                larder_number_order(&scale, &high, 2 * candidates[i]) > -reach;
    if (i < 2 && inside[i]) {
      larder_decimal found = {candidates[i], scale.k};
      return found;
    }
  }
  larder_bool up = inside[3];
  if (inside[2] && inside[3]) {
    int nearer = larder_number_order(&scale, &middle, 2 * floor + 1);
    up = nearer > 0 || (nearer == 0 && floor % 2 == 1);
  }
  larder_decimal found = {floor + (up ? 1 : 0), scale.k};
  return found;
}

#endif
