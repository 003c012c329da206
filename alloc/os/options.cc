#include "os/options.h"

#include <string.h>
#include <sys/auxv.h>

#include "base/layout.h"
#include "base/policy.h"
#include "base/size_class.h"
#include "os/environment.h"
#include "os/line.h"
#include "os/memory_size.h"

namespace larder {

namespace {

// A limit is a number, or a percentage of the memory of the process.
enum class Form : uint8_t { kNumber, kSwitch, kRate, kLimit, kOnError };

// The text is in the row: pointers would have to be relocated in every process.
struct Row {
  char name[30];  // after LARDER_
  Form form;
  size_t default_value, min, max;
  char unit[16];
  char default_text[48];     // if the number does not say it
  bool of_tcmalloc = false;  // TCMALLOC_ with the same name means the same
};

// By OnError.
constexpr char kOnErrorNames[][8] = {"abort", "report", "ignore"};

// Rates are stored as bits.
constexpr size_t bits_of(double rate) { return __builtin_bit_cast(size_t, rate); }

constexpr Row kRows[] = {
    // 16 aligns objects of up to 8 bytes to 16, for programs that assume it of every object.
    {"MIN_ALIGN", Form::kNumber, 8, 8, 16, "bytes", ""},
    // Free memory stays warm for this time before it is purged.
    {"PURGE_DECAY_MS", Form::kNumber, 1000, 0, 3600 * 1000, "ms", ""},
    // Bounds the time that one allocation spends on purging.
    {"PURGE_MIB_PER_TICK", Form::kNumber, 64, 1, 1 << 20, "MiB a 100 ms", ""},
    // Further threads share one heap a CPU; 0 means 4 a CPU, at least 64.
    {"MAX_HEAPS", Form::kNumber, 0, 0, 4096, "heaps", "4 a CPU, at least 64"},
    // Empty slabs that a heap caches, so that phases of a program do not meet at the page heap's
    // lock.
    {"HEAP_EMPTY_KIB", Form::kNumber, 512, 0, 1 << 20, "KiB a heap", ""},
    // Freed mappings that are cached for the decay time: a large malloc/free pair takes no system
    // call.
    {"HUGE_KEPT_MIB", Form::kNumber, 256, 0, 1 << 20, "MiB", ""},
    // Offsets large objects by a rotating number of cache lines, so that arrays do not alias.
    {"COLOUR", Form::kSwitch, 1, 0, 1, "switch", ""},
    // 1 starts a thread that purges while the program sleeps; a child of fork has none.
    {"BACKGROUND_PURGE", Form::kSwitch, 0, 0, 1, "switch", ""},
    // 0 keeps free memory for the decay time even when hardly anything is in use.
    {"EARLY_PURGE", Form::kSwitch, 1, 0, 1, "switch", ""},
    // 0 asks for no huge pages.
    {"HUGE_PAGES", Form::kSwitch, 1, 0, 1, "switch", ""},
    // A factor for the speed of purging; 0: nothing is purged by itself.
    {"RELEASE_RATE", Form::kRate, bits_of(1), 0, 1000, "times", "1", true},
    // Bounds what all heaps together cache.
    {"MAX_TOTAL_THREAD_CACHE_BYTES", Form::kNumber, 0, 512 << 10, size_t{1} << 40, "bytes",
     "16 MiB beyond what each heap caches", true},
    // 1 purges free memory at the next opportunity, without a decay.
    {"AGGRESSIVE_DECOMMIT", Form::kSwitch, 0, 0, 1, "switch", "", true},
    // An allocation that would exceed it fails.
    {"HEAP_LIMIT_MB", Form::kLimit, 0, 0, kMaxSize >> 20, "MiB, or N%", "no limit", true},
    // Above it, free memory is purged at once.
    {"SOFT_LIMIT_MIB", Form::kLimit, 0, 0, kMaxSize >> 20, "MiB, or N%", "no limit"},
    // Larger objects are reported on stderr, with their stack.
    {"LARGE_ALLOC_REPORT_THRESHOLD", Form::kNumber, 0, 0, size_t{1} << 62, "bytes", "no reports",
     true},
    // 1 takes memory for objects by sbrk.
    {"SKIP_MMAP", Form::kSwitch, 0, 0, 1, "switch", "", true},
    // 0 takes memory by sbrk when mmap refuses.
    {"SKIP_SBRK", Form::kSwitch, kSbrkInPlaceOfMmap, 0, 1, "switch",
     "sbrk only where LARDER_SKIP_MMAP asks for it", true},
    // Where the usable device memory begins.
    {"DEVMEM_START", Form::kNumber, 0, 0, size_t{1} << 40, "MiB", "no device memory", true},
    // Where it ends.
    {"DEVMEM_LIMIT", Form::kNumber, 0, 0, size_t{1} << 40, "MiB", "no limit", true},
    // Bounds the memory from the file system.
    {"MEMFS_LIMIT_MB", Form::kNumber, 0, 0, size_t{1} << 40, "MiB", "no limit", true},
    // 1 ends the program when the file system is full.
    {"MEMFS_ABORT_ON_FAIL", Form::kSwitch, 0, 0, 1, "switch", "", true},
    // 1 asks the file system again after it refused.
    {"MEMFS_IGNORE_MMAP_FAIL", Form::kSwitch, 0, 0, 1, "switch", "", true},
    // 1 maps the memory privately, which fork need not copy.
    {"MEMFS_MAP_PRIVATE", Form::kSwitch, 0, 0, 1, "switch", "", true},
    // 1 takes memory for objects from nowhere else.
    {"MEMFS_DISABLE_FALLBACK", Form::kSwitch, 0, 0, 1, "switch", "", true},
    // Mean distance of the heap profile's sample points; 0: none.
    {"PROFILE_BYTES", Form::kNumber, 512 * 1024, 0, size_t{1} << 36, "bytes", "", true},
    // 1 puts sampled objects before a guard page, and keeps them unmapped for a time when they are
    // freed.
    {"GUARD", Form::kSwitch, 0, 0, 1, "switch", ""},
    // What follows an error of the program: a report and abort(), the report alone, or nothing. In
    // the latter two the erroneous call has no effect.
    {"ON_ERROR", Form::kOnError, 0, 0, 2, "", "abort"},
    // 1 leaves dlopen its RTLD_DEEPBIND, by which a library finds libc's malloc before ours.
    {"DEEPBIND", Form::kSwitch, 0, 0, 1, "switch", ""},
};
static_assert(sizeof kRows / sizeof kRows[0] == size_t(Option::kCount), "one row an option");

// `variable` is NAME=VALUE.
void warn(const Row& row, const char* variable) {
  Line line;
  line.put(variable, strcspn(variable, "=") + 33);
  if (row.form == Form::kOnError) {
    line.put(" is none of abort, report, ignore");
  } else {
    line.put(" is not a number from ").put_number(row.min).put(" to ").put_number(row.max);
    line.put(" (").put(row.unit).put(")");
  }
  line.put("; using the default, ");
  if (row.default_text[0] != 0)
    line.put(row.default_text);
  else
    line.put_number(row.default_value);
  line.write();
}

// Names with our prefix that other parts of Larder read, or that programs set for themselves.
constexpr const char* kOthers[] = {
    "LIB",           "TRACE_DIR",     "RECORD_",           "FAIL",          "CACHE",
    "OUT",           "DEVMEM_DEVICE", "MEMFS_MALLOC_PATH", "PROFILE=",      "HEAPPROFILE",
    "HEAP_PROFILE_", "HEAPCHECK=",    "HEAP_CHECK_",       "LEAK_REPORTS=", "LEAK_SUPPRESSIONS=",
    "LISTEN=",       "TOKEN="};

// The row of NAME=VALUE, or nullptr.
const Row* find_row(const char* name) {
  size_t length = strcspn(name, "=");
  for (const Row& row : kRows)
    if (strlen(row.name) == length && memcmp(name, row.name, length) == 0) return &row;
  // tcmalloc's name.
  return strncmp(name, "SAMPLE_PARAMETER", length) == 0 && length == strlen("SAMPLE_PARAMETER")
             ? &kRows[size_t(Option::kProfileBytes)]
             : nullptr;
}

bool is_of_others(const char* name) {
  for (const char* other : kOthers)
    if (strncmp(name, other, strlen(other)) == 0) return true;
  return false;
}

// A misspelt option would otherwise be silently ignored.
void warn_unknown(const char* variable) {
  Line()
      .put("no option is called ")
      .put(variable, strcspn(variable, "="))
      .put("; it is ignored")
      .write();
}

// N% of the memory of the process, in MiB, at least 1. False: another form, or the memory is
// unknown.
bool parse_share(const char* text, size_t* mib) {
  char digits[16];
  size_t length = strlen(text);
  if (length < 2 || length > sizeof digits || text[length - 1] != '%') return false;
  memcpy(digits, text, length - 1);
  digits[length - 1] = 0;
  double percent = 0;
  if (!parse_rate(digits, &percent) || percent <= 0 || percent > 100) return false;
  size_t all = memory_size();
  *mib = size_t(double(all) * percent / 100) >> 20;
  if (*mib == 0) *mib = 1;
  return all != 0;
}

// False: no value for this row.
bool take(const Row& row, const char* text, bool of_tcmalloc) {
  size_t value = 0;
  double rate = 0;
  bool on = of_tcmalloc, good = false;
  switch (row.form) {
    case Form::kRate:
      good = parse_rate(text, &rate) && rate >= double(row.min) && rate <= double(row.max);
      value = bits_of(rate);
      break;
    case Form::kSwitch:
      // An empty TCMALLOC_ switch is on.
      good = (of_tcmalloc && *text == 0) || parse_switch(text, &on);
      value = on ? 1 : 0;
      break;
    case Form::kOnError:
      for (size_t i = 0; i <= row.max; ++i)
        if (strcmp(text, kOnErrorNames[i]) == 0) {
          good = true;
          value = i;
        }
      break;
    case Form::kLimit:
    case Form::kNumber:
      int64_t number = 0;
      good = parse_number(text, int64_t(row.min), int64_t(row.max), &number);
      value = size_t(number);
      if (!good && row.form == Form::kLimit) good = parse_share(text, &value);
      break;
  }
  if (!good) return false;
  set_option(Option(&row - kRows), value);
  return true;
}

// Like for getenv, the first of several definitions counts.
void read_with_prefix(const char* prefix, bool of_tcmalloc) {
  static_assert(size_t(Option::kCount) <= 64, "a bit an option");
  uint64_t seen = 0;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (strncmp(*variable, prefix, strlen(prefix)) != 0) continue;
    const char* name = *variable + strlen(prefix);
    const Row* row = find_row(name);
    if (row == nullptr) {
      if (!of_tcmalloc && !is_of_others(name)) warn_unknown(*variable);
      continue;
    }
    uint64_t bit = uint64_t{1} << (row - kRows);
    if ((of_tcmalloc && !row->of_tcmalloc) || (seen & bit) != 0) continue;
    seen |= bit;
    const char* text = strchr(name, '=');
    if (text != nullptr && !take(*row, text + 1, of_tcmalloc)) warn(*row, *variable);
  }
}

}  // namespace

constexpr OptionValues::OptionValues() : of() {
  for (size_t i = 0; i < size_t(Option::kCount); ++i) of[i] = kRows[i].default_value;
}
constinit OptionValues option_values;

constinit const LimitsLayout limits_layout = {
    .soft_mib = &option_values.of[size_t(Option::kSoftLimitMib)],
    .hard_mib = &option_values.of[size_t(Option::kHeapLimitMib)]};

void set_option(Option o, size_t value) {
  __atomic_store_n(&option_values.of[size_t(o)], value, __ATOMIC_RELAXED);  // as in option()
  if (o == Option::kMinAlign) {
    uint8_t smallest = value > 8 ? 1 : 0;
    small_classes.of[0] = small_classes.of[1] = smallest;
  }
}

void set_release_rate(double rate) {
  if (rate != rate) return;
  if (rate < 0) rate = 0;
  if (rate > kMaxReleaseRate) rate = kMaxReleaseRate;
  set_option(Option::kReleaseRate, bits_of(rate));
}

uint64_t scaled_purge_decay_ms(double rate) {
  uint64_t decay = option(Option::kPurgeDecayMs);
  double slower = rate > 0 ? double(decay) / rate : 1e18;
  return slower < 1e18 ? uint64_t(slower) : uint64_t{1000'000'000'000'000'000};
}

void read_options_from_environment() {
  if (getauxval(AT_SECURE) != 0 || environ == nullptr) return;
  read_with_prefix("TCMALLOC_", true);
  read_with_prefix("LARDER_", false);
}

}  // namespace larder
