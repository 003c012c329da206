// Every row of the table of options, and the readers of other parts' variables, with arbitrary
// bytes as the value: what is taken is what the row allows, computed here in another way; all else
// is reported in one line, and changes nothing.
//
// The input is a row of these, each up to a 0: which row, which prefix, the value.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

// For the table.
#include "os/options.cc"

namespace larder {
namespace {

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (false)

constexpr size_t kOptions = size_t(Option::kCount);

// What is written to stderr by `act`.
template <typename Act>
std::string reported(Act act) {
  static int screen = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
  CHECK(screen >= 0 && file >= 0);
  CHECK(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
  CHECK(dup2(file, STDERR_FILENO) == STDERR_FILENO);
  act();
  CHECK(dup2(screen, STDERR_FILENO) == STDERR_FILENO);
  char text[4096];
  ssize_t length = pread(file, text, sizeof text, 0);
  CHECK(length >= 0 && size_t(length) < sizeof text);
  return std::string(text, size_t(length));
}

bool is_one_line_with(const std::string& text, const std::string& name) {
  for (size_t i = 0; i + 1 < text.size(); ++i)
    if (text[i] < ' ' || text[i] > '~') return false;
  return text.compare(0, 8, "larder: ") == 0 && text.back() == '\n' &&
         text.find(name) != std::string::npos;
}

bool are_digits(const std::string& text, const char* also = "") {
  return text.find_first_not_of(std::string("0123456789") + also) == std::string::npos;
}

bool is_rate(const std::string& text, double* rate) {
  size_t points = 0;
  for (char c : text) points += c == '.';
  *rate = atof(text.c_str());
  return text.size() <= 12 && points <= 1 && text.size() > points && are_digits(text, ".");
}

bool is_number(const std::string& text, size_t min, size_t max, size_t* value) {
  if (text.empty() || text.size() > 18 || !are_digits(text)) return false;
  *value = strtoull(text.c_str(), nullptr, 10);
  return *value >= min && *value <= max;
}

bool is_switch(const std::string& text, size_t* value) {
  for (const char* word : {"0", "f", "false", "n", "no", "1", "t", "true", "y", "yes"}) {
    if (strcasecmp(word, text.c_str()) != 0) continue;
    *value = strchr("0fn", word[0]) == nullptr;
    return true;
  }
  return false;
}

// Whether the row allows the text, and what it means.
bool allows(const Row& row, const std::string& text, bool of_tcmalloc, size_t* value) {
  double rate = 0;
  switch (row.form) {
    case Form::kSwitch:
      *value = 1;
      return (text.empty() && of_tcmalloc) || is_switch(text, value);
    case Form::kRate:
      if (!is_rate(text, &rate) || rate > double(row.max)) return false;
      memcpy(value, &rate, sizeof rate);
      return true;
    case Form::kOnError:
      for (*value = 0; *value < 3; ++*value)
        if (text == kOnErrorNames[*value]) return true;
      return false;
    case Form::kLimit:
      if (text.size() > 1 && text.back() == '%' &&
          is_rate(text.substr(0, text.size() - 1), &rate) && rate > 0 && rate <= 100) {
        *value = size_t(double(memory_size()) * rate / 100) >> 20;
        if (*value == 0) *value = 1;
        return true;
      }
      [[fallthrough]];
    case Form::kNumber:
      return is_number(text, row.min, row.max, value);
  }
  return false;
}

void read_environment(const std::string& variable, OptionValues* after, std::string* text) {
  char* variables[] = {const_cast<char*>(variable.c_str()), nullptr};
  char** saved = environ;
  environ = variables;
  *text = reported([] { read_options_from_environment(); });
  environ = saved;
  *after = option_values;
  static const OptionValues defaults;
  for (size_t i = 0; i < kOptions; ++i) set_option(Option(i), defaults.of[i]);
}

void try_row(const Row& row, const std::string& text, bool of_tcmalloc) {
  std::string name = (of_tcmalloc ? "TCMALLOC_" : "LARDER_") + std::string(row.name);
  OptionValues expected, after;
  std::string said;
  read_environment(name + "=" + text, &after, &said);
  size_t value = 0;
  bool is_read = !of_tcmalloc || row.of_tcmalloc;
  bool good = !is_read || allows(row, text, of_tcmalloc, &value);
  if (is_read && good) expected.of[&row - kRows] = value;
  CHECK(good ? said.empty() : is_one_line_with(said, name + "="));
  CHECK(memcmp(&expected, &after, sizeof after) == 0);
}

// A name that may be that of a row, or of anything else.
void try_name(const std::string& variable) {
  OptionValues after;
  std::string said;
  read_environment("LARDER_" + variable, &after, &said);
  CHECK(said.empty() || is_one_line_with(said, ""));
}

void try_readers(const std::string& text) {
  setenv("LARDER_FUZZED", text.c_str(), 1);
  int64_t number = 7;
  bool taken = false, on = true;
  std::string said = reported([&] { taken = read_number("FUZZED", -100, 100, &number); });
  size_t least = text[0] == '-' ? 1 : 0, value = 0;
  bool good = is_number(text.substr(least), 0, 100, &value);
  CHECK(taken == good && number == (good ? (least ? -int64_t(value) : int64_t(value)) : 7));
  CHECK(taken || text.empty() ? said.empty() : is_one_line_with(said, "FUZZED="));
  said = reported([&] { taken = read_switch("FUZZED", &on); });
  good = is_switch(text, &value);
  CHECK(taken == good && on == (good ? value != 0 : true));
  CHECK(taken || text.empty() ? said.empty() : is_one_line_with(said, "FUZZED="));
}

}  // namespace
}  // namespace larder

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace larder;
  const std::string input(reinterpret_cast<const char*>(bytes), size);
  for (size_t at = 0, end = 0; at + 2 <= size; at = end + 1) {
    end = std::min(input.find('\0', at + 2), size);
    unsigned which = uint8_t(input[at]) % (kOptions + 2);
    std::string text = input.substr(at + 2, end - at - 2);
    if (which < kOptions)
      try_row(kRows[which], text, input[at + 1] % 2 != 0);
    else if (which == kOptions)
      try_name(text);
    else
      try_readers(text);
  }
  return 0;
}
