#include "options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "os.h"
#include "size_class.h"

namespace larder {

namespace {

struct Row {
  const char* name;
  size_t default_value, min, max;
  const char* unit;
  const char* default_text;  // where the number does not say it
  const char* why;
};

constexpr Row kRows[] = {
    {"LARDER_MIN_ALIGN", 8, 8, 16, "bytes", nullptr,
     "16 aligns blocks of up to 8 bytes to 16, for programs that assume it of every block"},
    {"LARDER_PURGE_DECAY_MS", 1000, 0, 3600 * 1000, "ms", nullptr,
     "free memory stays warm this long before it goes back to the system"},
    {"LARDER_PURGE_MIB_PER_TICK", 64, 1, 1 << 20, "MiB a 100 ms", nullptr,
     "bounds what one allocation can spend on giving memory back"},
    {"LARDER_MAX_HEAPS", 0, 0, 4096, "heaps", "4 a CPU, at least 64",
     "threads beyond it share one heap a CPU; 0 means 4 a CPU, at least 64"},
    {"LARDER_HEAP_EMPTY_KIB", 512, 0, 1 << 20, "KiB a heap", nullptr,
     "wholly free slabs a thread keeps, so that phases do not meet at the page heap's lock"},
    {"LARDER_HUGE_KEPT_MIB", 256, 0, 1 << 20, "MiB", nullptr,
     "freed mappings kept for the decay time, so that a large malloc/free pair needs no system "
     "call"},
    {"LARDER_COLOUR", 1, 0, 1, "switch", nullptr,
     "offsets large blocks by a rotating number of cache lines, so that arrays do not alias"},
    {"LARDER_BACKGROUND_PURGE", 0, 0, 1, "switch", nullptr,
     "1 starts a thread that gives memory back while the program sleeps; a child of fork has none"},
    {"LARDER_EARLY_PURGE", 1, 0, 1, "switch", nullptr,
     "0 keeps free memory for the decay time even when hardly anything is in use any more"},
};
static_assert(sizeof kRows / sizeof kRows[0] == size_t(Option::kCount), "one row an option");

constinit std::atomic<size_t> values[size_t(Option::kCount)] = {
    kRows[0].default_value, kRows[1].default_value, kRows[2].default_value,
    kRows[3].default_value, kRows[4].default_value, kRows[5].default_value,
    kRows[6].default_value, kRows[7].default_value, kRows[8].default_value,
};

void warn(const Row& row, const char* text) {
  char line[256];
  size_t n = 0;
  auto put = [&](const char* s, size_t limit) {
    for (size_t i = 0; s[i] != 0 && i < limit && n < sizeof line - 1; ++i)
      line[n++] = s[i] >= ' ' && s[i] < 127 ? s[i] : '?';
  };
  auto put_number = [&](size_t v) {
    char digits[24];
    int d = 24;
    digits[--d] = 0;
    do digits[--d] = char('0' + v % 10);
    while ((v /= 10) != 0);
    put(digits + d, 24);
  };
  put("larder: ", 99);
  put(row.name, 99);
  put("=", 99);
  put(text, 32);
  put(" is not a number from ", 99);
  put_number(row.min);
  put(" to ", 99);
  put_number(row.max);
  put(" (", 99);
  put(row.unit, 99);
  put("); using the default, ", 99);
  if (row.default_text != nullptr)
    put(row.default_text, 99);
  else
    put_number(row.default_value);
  line[n++] = '\n';
  os::write_stderr(line, n);
}

// Names with our prefix that other parts of Larder read, or that programs may set for themselves.
constexpr const char* kOthers[] = {"LARDER_LIB",  "LARDER_TRACE_DIR", "LARDER_RECORD_",
                                   "LARDER_FAIL", "LARDER_CACHE",     "LARDER_OUT"};

bool is_known(const char* variable) {
  size_t length = strcspn(variable, "=");
  for (const Row& row : kRows)
    if (strlen(row.name) == length && memcmp(variable, row.name, length) == 0) return true;
  for (const char* other : kOthers)
    if (strncmp(variable, other, strlen(other)) == 0) return true;
  return false;
}

// A misspelt option would otherwise be no option at all, in silence.
void warn_unknown(const char* variable) {
  char line[160] = "larder: no option is called ";
  size_t n = strlen(line);
  for (size_t i = 0; variable[i] != '=' && variable[i] != 0 && n < sizeof line - 40; ++i)
    line[n++] = variable[i] >= ' ' && variable[i] < 127 ? variable[i] : '?';
  static constexpr char kEnd[] = "; it is ignored\n";
  memcpy(line + n, kEnd, sizeof kEnd - 1);
  os::write_stderr(line, n + sizeof kEnd - 1);
}

// Decimal digits only, no overflow.
bool parse(const char* text, size_t* value) {
  if (*text == 0 || strlen(text) > 12) return false;
  size_t v = 0;
  for (; *text != 0; ++text) {
    if (*text < '0' || *text > '9') return false;
    v = v * 10 + size_t(*text - '0');
  }
  *value = v;
  return true;
}

}  // namespace

size_t option(Option o) { return values[size_t(o)].load(std::memory_order_relaxed); }

void set_option(Option o, size_t value) {
  values[size_t(o)].store(value, std::memory_order_relaxed);
  if (o == Option::kMinAlign) {
    uint8_t smallest = value > 8 ? 1 : 0;
    small_classes.of[0] = small_classes.of[1] = smallest;
  }
}

void read_options_from_environment() {
  for (size_t i = 0; i < size_t(Option::kCount); ++i) {
    const char* text = secure_getenv(kRows[i].name);
    if (text == nullptr) continue;
    size_t value = 0;
    if (parse(text, &value) && value >= kRows[i].min && value <= kRows[i].max)
      set_option(Option(i), value);
    else
      warn(kRows[i], text);
  }
  if (getauxval(AT_SECURE) != 0 || environ == nullptr) return;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (strncmp(*variable, "LARDER_", 7) == 0 && !is_known(*variable)) warn_unknown(*variable);
}

}  // namespace larder
