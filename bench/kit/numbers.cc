// Numbers to text beside others.
#include <larder/kit/number.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compare.h"

#if HAVE_ABSL
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#endif
#if HAVE_GLIB
#include <glib.h>
#endif

namespace {

constexpr size_t kNumbers = 1000;

// Writes all numbers. That they are right is what tests/kit shows.
template <typename Number, typename Write>
Contestant writer(const char* name, const std::vector<Number>& numbers, Write write) {
  return {name, [numbers, write] {
            char text[400];
            for (Number number : numbers) {
              write(text, number);
              keep(text);
            }
            return uint64_t{kNumbers};
          }};
}

Task integer_task() {
  std::vector<int64_t> numbers;
  uint64_t state = 1;
  for (size_t i = 0; i < kNumbers; i++) {
    numbers.push_back(int64_t(random_number(&state) >> (random_number(&state) % 64)));
  }
  Task task{"number", "integer of any size", kNumbers};
  task.contestants.push_back(writer("kit", numbers, larder_number_write_int64));
  task.contestants.push_back(writer("std::to_chars", numbers, [](char* to, int64_t number) {
    *std::to_chars(to, to + 32, number).ptr = 0;
  }));
  task.contestants.push_back(writer("snprintf", numbers, [](char* to, int64_t number) {
    std::snprintf(to, 32, "%lld", static_cast<long long>(number));
  }));
#if HAVE_ABSL
  task.contestants.push_back(writer("absl::AlphaNum", numbers, [](char* to, int64_t number) {
    absl::AlphaNum text(number);
    std::memcpy(to, text.data(), text.size());
  }));
#endif
  return task;
}

Task double_task(const char* what, const std::vector<double>& numbers) {
  Task task{"number", what, kNumbers};
  task.contestants.push_back(writer("kit", numbers, larder_number_write_double));
  task.contestants.push_back(writer("std::to_chars", numbers, [](char* to, double number) {
    *std::to_chars(to, to + 400, number).ptr = 0;
  }));
  task.contestants.push_back(writer("snprintf %.17g", numbers, [](char* to, double number) {
    std::snprintf(to, 32, "%.17g", number);
  }));
#if HAVE_GLIB
  task.contestants.push_back(writer(
      "g_ascii_dtostr", numbers, [](char* to, double number) { g_ascii_dtostr(to, 40, number); }));
#endif
  return task;
}

Task fixed_task(const std::vector<double>& numbers) {
  Task task{"number", "double with 2 decimals", kNumbers};
  task.contestants.push_back(writer(
      "kit", numbers, [](char* to, double number) { larder_number_write_fixed(to, number, 2); }));
  task.contestants.push_back(writer("std::to_chars", numbers, [](char* to, double number) {
    *std::to_chars(to, to + 400, number, std::chars_format::fixed, 2).ptr = 0;
  }));
  task.contestants.push_back(writer("snprintf %.2f", numbers, [](char* to, double number) {
    std::snprintf(to, 400, "%.2f", number);
  }));
  return task;
}

}  // namespace

std::vector<Task> number_tasks() {
  std::vector<double> prices, fractions, any;
  uint64_t state = 1;
  for (size_t i = 0; i < kNumbers; i++) {
    prices.push_back(double(random_number(&state) % 1000000) / 100);
    fractions.push_back(double(random_number(&state) >> 11) * 0x1p-53);
    double value = 0;
    do {
      uint64_t bits = random_number(&state);
      std::memcpy(&value, &bits, sizeof value);
    } while (!std::isfinite(value));
    any.push_back(value);
  }
  return {integer_task(), double_task("double of few digits, shortest", prices),
          double_task("double of 16 or 17 digits, shortest", fractions),
          double_task("double of any exponent, shortest", any), fixed_task(prices)};
}
