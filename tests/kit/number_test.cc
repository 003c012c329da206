// Numbers beside std::to_chars, snprintf, strtod and strtof.
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "kit.h"

const char* const kPart = "number";

namespace {

// Small numbers and those of few bits are as likely as all others.
uint64_t some_word(Choices& choices) {
  uint64_t word = choices.word();
  switch (choices.below(4)) {
    case 0:
      return word >> choices.below(64);
    case 1:
      return word & choices.word() & choices.word() & choices.word();
    default:
      return word;
  }
}

double power_of_ten(int exponent) {
  return std::strtod(("1e" + std::to_string(exponent)).c_str(), nullptr);
}

double some_double(Choices& choices) {
  uint64_t bits = some_word(choices);
  double value = 0;
  switch (choices.below(8)) {
    case 0:  // decimals of few digits
      return double(int64_t(choices.below(1000000))) / std::pow(10, double(choices.below(12)));
    case 1:  // integers
      return double(int64_t(bits));
    case 2: {  // powers of ten and their neighbours
      value = power_of_ten(int(choices.below(632)) - 323);
      return choices.below(2) == 0 ? value : std::nextafter(value, choices.below(2) ? 1e308 : 0);
    }
    case 3:  // powers of two and their neighbours
      value = std::ldexp(1, int(choices.below(2098)) - 1074);
      return choices.below(2) == 0 ? value : std::nextafter(value, choices.below(2) ? 1e308 : 0);
    case 4:  // ties of write_fixed
      return std::ldexp(double(bits >> 30), -int(choices.below(60)));
    default:
      std::memcpy(&value, &bits, sizeof value);
      return value;
  }
}

// The digits of a number, without leading and trailing zeros.
std::string digits_of(const std::string& text) {
  std::string digits;
  for (char c : text.substr(0, text.find('e'))) {
    if (c >= '0' && c <= '9' && !(digits.empty() && c == '0')) {
      digits += c;
    }
  }
  return digits.substr(0, digits.find_last_not_of('0') + 1);
}

// No zero behind the last digit behind the point.
bool is_tidy(const std::string& text) {
  size_t end = text.find('e');
  return text.find('.') == std::string::npos || text.substr(0, end).back() != '0';
}

template <typename Number>
std::string shortest(Number value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr};
}

template <typename Number>
bool same(Number a, Number b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

void check_double(double value) {
  char text[LARDER_NUMBER_BYTES];
  size_t size = larder_number_write_double(text, value);
  CHECK(size == std::strlen(text) && size < sizeof text && is_tidy(text));
  CHECK(std::isnan(value) ? std::string(text) == "nan" : same(std::strtod(text, nullptr), value));
  CHECK(!std::isfinite(value) || digits_of(text) == digits_of(shortest(value)));
}

void check_float(float value) {
  char text[LARDER_NUMBER_BYTES];
  size_t size = larder_number_write_float(text, value);
  CHECK(size == std::strlen(text) && size < sizeof text && is_tidy(text));
  CHECK(std::isnan(value) ? std::string(text) == "nan" : same(std::strtof(text, nullptr), value));
  CHECK(!std::isfinite(value) || digits_of(text) == digits_of(shortest(value)));
}

void check_fixed(double value, unsigned decimals) {
  char text[LARDER_NUMBER_BYTES], expected[64];
  size_t size = larder_number_write_fixed(text, value, decimals);
  CHECK(size == std::strlen(text) && size < sizeof text);
  if (std::fabs(value) < 0x1p64) {
    std::snprintf(expected, sizeof expected, "%.*f", int(decimals), value);
    CHECK(std::strcmp(text, expected) == 0);
  } else {
    CHECK(std::isnan(value) || same(std::strtod(text, nullptr), value));
  }
}

void check_integers(uint64_t value) {
  char text[LARDER_NUMBER_BYTES];
  CHECK(larder_number_write_uint64(text, value) == std::strlen(text));
  CHECK(text == std::to_string(value));
  CHECK(larder_number_write_int64(text, int64_t(value)) == std::strlen(text));
  CHECK(text == std::to_string(int64_t(value)));
}

// What the comparison by products decides, the exact one decides, too.
void check_exact(uint64_t m, int e, bool narrow_below) {
  larder_decimal found = larder_number_shortest(m, e, narrow_below);
  int even = m % 2 == 0 ? 1 : 0;
  CHECK(larder_number_compare(4 * m - (narrow_below ? 1 : 2), e - 2, found.digits, found.exponent) <
        even);
  CHECK(larder_number_compare(4 * m + 2, e - 2, found.digits, found.exponent) > -even);
}

void check_layout() {
  const std::pair<double, const char*> cases[] = {
      {0, "0"},
      {-0.0, "-0"},
      {1, "1"},
      {-120, "-120"},
      {1.5, "1.5"},
      {0.001, "0.001"},
      {1e-6, "0.000001"},
      {1e-7, "1e-7"},
      {1.25e-7, "1.25e-7"},
      {1e20, "100000000000000000000"},
      {1e21, "1e+21"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {INFINITY, "inf"},
      {-INFINITY, "-inf"}};
  for (auto [value, expected] : cases) {
    char text[LARDER_NUMBER_BYTES];
    larder_number_write_double(text, value);
    CHECK(std::strcmp(text, expected) == 0);
  }
}

}  // namespace

void run(Choices& choices) {
  check_layout();
  while (choices.more()) {
    uint64_t word = some_word(choices);
    switch (choices.below(5)) {
      case 0:
        check_integers(word);
        check_exact(1 + (word >> 11), int(choices.below(2045)) - 1074, choices.below(2) == 0);
        break;
      case 1: {
        float value;
        std::memcpy(&value, &word, sizeof value);
        check_float(choices.below(4) == 0 ? float(some_double(choices)) : value);
        break;
      }
      case 2:
        check_fixed(some_double(choices), unsigned(choices.below(20)));
        break;
      default:
        check_double(some_double(choices));
    }
  }
}
