/* Numbers to text, without printf, its format strings and the locale.
 *
 *   char text[LARDER_NUMBER_BYTES];
 *   size_t size = larder_number_write_double(text, 0.1);    "0.1"
 *
 * Each function writes at most LARDER_NUMBER_BYTES, with a zero behind the last, and returns the
 * size without it. Owns nothing, allocates nothing, does not fail. Any thread. O(1). Floating point
 * is IEEE's, in its default rounding mode.
 */
#ifndef LARDER_KIT_NUMBER_H
#define LARDER_KIT_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "number_shortest.h"

enum { LARDER_NUMBER_BYTES = 48, LARDER_NUMBER_MOST_DECIMALS = 19 };

/* 10^n, n <= 19. */
static inline uint64_t larder_number_ten_to(unsigned n) {
  static const uint64_t powers[20] = {1U,
                                      10U,
                                      100U,
                                      1000U,
                                      10000U,
                                      100000U,
                                      1000000U,
                                      10000000U,
                                      100000000U,
                                      1000000000U,
                                      10000000000U,
                                      100000000000U,
                                      1000000000000U,
                                      10000000000000U,
                                      100000000000000U,
                                      1000000000000000U,
                                      10000000000000000U,
                                      100000000000000000U,
                                      1000000000000000000U,
                                      10000000000000000000U};
  return powers[n];
}

/* The number of decimal digits; 1 of 0. */
static inline unsigned larder_number_digits(uint64_t value) {
  unsigned bits = 64U - (unsigned)__builtin_clzll(value | 1);
  unsigned least = bits * 1233U >> 12; /* floor(bits * log10(2)) */
  return least + (least < 20 && value >= larder_number_ten_to(least) ? 1 : 0) + (value == 0);
}

/* So many digits of `value`, with leading zeros. */
static inline void larder_number_write_digits(char* to, uint64_t value, unsigned digits) {
  static const char pairs[] =
      "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445"
      "46"
      "47484950515253545556575859606162636465666768697071727374757677787980818283848586878889909192"
      "93"
      "949596979899";
  for (; digits >= 2; digits -= 2, value /= 100) {
    memcpy(to + digits - 2, pairs + value % 100 * 2, 2);
  }
  if (digits == 1) {
    to[0] = (char)('0' + value % 10);
  }
}

/* In decimal, as is the next. */
static inline size_t larder_number_write_uint64(char* to, uint64_t value) {
  unsigned digits = larder_number_digits(value);
  larder_number_write_digits(to, value, digits);
  to[digits] = 0;
  return digits;
}

static inline size_t larder_number_write_int64(char* to, int64_t value) {
  *to = '-';
  size_t sign = value < 0;
  return sign + larder_number_write_uint64(to + sign, sign ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Moves so many zeros, power == 10^zeros, from the digits to the exponent, if there are as many.
 * Both are selected rather than branched on: how many zeros a number has is hard to predict. */
static inline void larder_number_drop(larder_decimal* value, uint64_t power, int zeros) {
  uint64_t rest = value->digits / power;
  larder_bool whole = rest * power == value->digits;
  value->digits = whole ? rest : value->digits;
  value->exponent += whole ? zeros : 0;
}

/* All zeros at the end of at most 19 digits; digits > 0. */
static inline void larder_number_drop_zeros(larder_decimal* value) {
  if (value->digits % 10 == 0) {
    larder_number_drop(value, 100000000, 8);
    larder_number_drop(value, 100000000, 8);
    larder_number_drop(value, 10000, 4);
    larder_number_drop(value, 100, 2);
    larder_number_drop(value, 10, 1);
  }
}

/* digits * 10^exponent as JavaScript prints it: 120, 1.2, 0.0012, and from 1e21 on and below 1e-6
 * with an exponent, 1.2e-7. */
static inline size_t larder_number_layout(char* to, larder_decimal value) {
  larder_number_drop_zeros(&value);
  char digits[24];
  int count = (int)larder_number_write_uint64(digits, value.digits);
  int point = count + value.exponent; /* digits before the point */
  if (point > 21 || point <= -6) {
    to[0] = digits[0];
    size_t size = 1;
    if (count > 1) {
      to[1] = '.';
      memcpy(to + 2, digits + 1, (size_t)count - 1);
      size = (size_t)count + 1;
    }
    to[size] = 'e';
    to[size + 1] = point > 0 ? '+' : '-';
    size += 2;
    return size +
           larder_number_write_uint64(to + size, (uint64_t)(point > 0 ? point - 1 : 1 - point));
  }
  size_t size = 0;
  if (point <= 0) {
    memset(to, '0', (size_t)(2 - point));
    to[1] = '.';
    memcpy(to + 2 - point, digits, (size_t)count);
    size = (size_t)(2 - point + count);
  } else if (point >= count) {
    memcpy(to, digits, (size_t)count);
    memset(to + count, '0', (size_t)(point - count));
    size = (size_t)point;
  } else {
    memcpy(to, digits, (size_t)point);
    to[point] = '.';
    memcpy(to + point + 1, digits + point, (size_t)(count - point));
    size = (size_t)count + 1;
  }
  to[size] = 0;
  return size;
}

/* Sign, and what has no digits: true if all of it is written. */
static inline larder_bool larder_number_write_special(char* to, larder_bool negative,
                                                      larder_bool is_nan, larder_bool is_inf,
                                                      larder_bool is_zero, size_t* size) {
  *to = '-';
  *size = negative && !is_nan;
  if (is_nan || is_inf) {
    memcpy(to + *size, is_nan ? "nan" : "inf", 4);
    *size += 3;
  } else if (is_zero) {
    memcpy(to + *size, "0", 2);
    *size += 1;
  }
  return is_nan || is_inf || is_zero;
}

/* The digits, if there are at most 15 and the powers of ten are exact. Then no other decimal of 15
 * digits reads back as the same double, so none of fewer digits does. `e` as in value = m * 2^e. */
static inline larder_bool larder_number_short(double value, int e, larder_decimal* found) {
#ifdef __FAST_MATH__
  /* The check needs a division that is rounded correctly. */
  (void)value, (void)e, (void)found;
  return 0;
#else
  static const double powers[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  int k = 14 - larder_number_log10_pow2(e + 52, 0);
  if (k < -22 || k > 22) {
    return 0;
  }
  double scaled = k >= 0 ? value * powers[k] : value / powers[-k];
  if (scaled >= 999999999999999.5) {
    k--;
    if (k < -22) {
      return 0;
    }
    scaled = k >= 0 ? value * powers[k] : value / powers[-k];
  }
  found->digits = (uint64_t)(scaled + 0.5);
  found->exponent = -k;
  double back = (double)found->digits;
  return (k >= 0 ? back / powers[k] : back * powers[-k]) == value;
#endif
}

/* The fewest digits that read back as the same double, and of these the nearest to it: what
 * strtod() reads is `value`. "nan", "inf" and "-inf" have none; "-0" keeps its sign. */
static inline size_t larder_number_write_double(char* to, double value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
  int exponent = (int)(bits >> 52 & 0x7FF);
  size_t size = 0;
  if (larder_number_write_special(to, bits >> 63 != 0, exponent == 0x7FF && fraction != 0,
                                  exponent == 0x7FF, bits << 1 == 0, &size)) {
    return size;
  }
  larder_decimal found;
  uint64_t m = exponent == 0 ? fraction : fraction | UINT64_C(1) << 52;
  int e = exponent == 0 ? -1074 : exponent - 1075;
  if (exponent == 0 || !larder_number_short(size > 0 ? -value : value, e, &found)) {
    found = larder_number_shortest(m, e, fraction == 0 && exponent > 1);
  }
  return size + larder_number_layout(to + size, found);
}

/* The same for a float and strtof(), in at most 9 digits. */
static inline size_t larder_number_write_float(char* to, float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  uint32_t fraction = bits & ((UINT32_C(1) << 23) - 1);
  int exponent = (int)(bits >> 23 & 0xFF);
  size_t size = 0;
  if (larder_number_write_special(to, bits >> 31 != 0, exponent == 0xFF && fraction != 0,
                                  exponent == 0xFF, bits << 1 == 0, &size)) {
    return size;
  }
  uint64_t m = exponent == 0 ? fraction : fraction | UINT32_C(1) << 23;
  int e = exponent == 0 ? -149 : exponent - 150;
  return size + larder_number_layout(to + size,
                                     larder_number_shortest(m, e, fraction == 0 && exponent > 1));
}

/* With so many decimals, at most 19, like printf("%.*f"): the exact value is rounded, a tie to the
 * even digit. A value of 2^64 or more, which has no decimals, is written as by
 * larder_number_write_double(). */
static inline size_t larder_number_write_fixed(char* to, double value, unsigned decimals) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
  int exponent = (int)(bits >> 52 & 0x7FF);
  uint64_t m = exponent == 0 ? fraction : fraction | UINT64_C(1) << 52;
  int e = exponent == 0 ? -1074 : exponent - 1075;
  if (e > 11) {
    return larder_number_write_double(to, value);
  }
  if (decimals > LARDER_NUMBER_MOST_DECIMALS) {
    decimals = LARDER_NUMBER_MOST_DECIMALS;
  }
  uint64_t whole = e >= 0 ? m << e : e > -64 ? m >> -e : 0;
  uint64_t part = 0;
  if (e < 0) {
    larder_number_wide one = (larder_number_wide)1 << (e > -127 ? -e : 127);
    larder_number_wide scaled =
        (larder_number_wide)(e > -64 ? m - (whole << -e) : m) * larder_number_ten_to(decimals);
    /* Below 2^-74 all decimals are 0, and scaled < 2^117 is below half of `one`. */
    part = (uint64_t)(scaled / one);
    larder_number_wide rest = scaled % one;
    uint64_t last = decimals > 0 ? part : whole;
    part += rest > one / 2 || (rest == one / 2 && last % 2 == 1);
    if (part == larder_number_ten_to(decimals)) {
      part = 0;
      whole++;
    }
  }
  size_t size = bits >> 63 != 0;
  *to = '-';
  size += larder_number_write_uint64(to + size, whole);
  if (decimals > 0) {
    to[size] = '.';
    larder_number_write_digits(to + size + 1, part, decimals);
    size += 1 + decimals;
    to[size] = 0;
  }
  return size;
}

#endif
