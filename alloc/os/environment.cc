#include "os/environment.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <initializer_list>

#include "base/policy.h"
#include "os/line.h"

namespace larder {

namespace {

void put_signed(Line& line, int64_t value) {
  if (value < 0) line.put("-");
  line.put_number(size_t(value < 0 ? -value : value));
}

}  // namespace

const char* variable(const char* name, const char* prefix) {
  for (const char* before : {"LARDER_", prefix}) {
    char whole[64];
    TextBuffer(whole, sizeof whole).put(before).put(name);
    const char* value = secure_getenv(whole);
    if (value != nullptr && *value != 0) return value;
  }
  return nullptr;
}

bool parse_number(const char* text, int64_t low, int64_t high, int64_t* value) {
  bool negative = low < 0 && *text == '-';
  if (negative) ++text;
  if (*text == 0 || strlen(text) > 18) return false;
  int64_t sum = 0;
  for (; *text != 0; ++text) {
    if (*text < '0' || *text > '9') return false;
    sum = sum * 10 + (*text - '0');
  }
  *value = negative ? -sum : sum;
  return *value >= low && *value <= high;
}

bool parse_switch(const char* text, bool* on) {
  for (const char* word : {"1", "t", "y", "true", "yes", "0", "f", "n", "false", "no"}) {
    if (strcasecmp(text, word) != 0) continue;
    *on = strchr("1ty", *word) != nullptr;
    return true;
  }
  return false;
}

bool parse_rate(const char* text, double* rate) {
  if (*text == 0 || strlen(text) > 12) return false;
  double v = 0, unit = 1;
  bool point = false, digit = false;
  for (; *text != 0; ++text) {
    if (*text == '.' && !point) {
      point = true;
      continue;
    }
    if (*text < '0' || *text > '9') return false;
    digit = true;
    v = v * 10 + (*text - '0');
    if (point) unit *= 10;
  }
  *rate = v / unit;
  return digit;
}

bool read_number(const char* name, int64_t low, int64_t high, int64_t* to) {
  const char* text = variable(name);
  if (text == nullptr) return false;
  int64_t value;
  if (parse_number(text, low, high, &value)) {
    *to = value;
    return true;
  }
  Line line;
  line.put(name).put("=").put(text, kMaxShownValue).put(" is not a number from ");
  put_signed(line, low);
  line.put(" to ");
  put_signed(line, high);
  line.put("; using the default, ");
  put_signed(line, *to);
  line.write();
  return false;
}

bool read_switch(const char* name, bool* to) {
  const char* text = variable(name);
  if (text == nullptr) return false;
  if (parse_switch(text, to)) return true;
  complain_of(name, text, "true or false; the default stays");
  return false;
}

void complain_of(const char* name, const char* value, const char* wanted) {
  Line().put(name).put("=").put(value, kMaxShownValue).put(" is not ").put(wanted).write();
}

}  // namespace larder
