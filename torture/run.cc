#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

namespace torture {

Settings settings;
Totals totals;
std::atomic<bool> stop;
__thread Where* where = nullptr;

namespace {

std::atomic<bool> reported;

// Exit code of a child of fork after the expected fault; 0 would be a clean end.
constexpr int kExpectedInChild = 3;

const char* fault_name(Fault kind) {
  static constexpr const char* kNames[] = {
      "overlap",      "double-hand-out",  "misaligned",   "lost-content",  "damaged",
      "usable-moves", "usable-too-small", "dirty-calloc", "changed-errno", "no-memory",
      "wrong-result", "growth",           "hang",         "crash",         "aborted",
  };
  static_assert(sizeof kNames / sizeof kNames[0] == size_t(Fault::kCount));
  return kNames[size_t(kind)];
}

// Text in a fixed buffer; it is truncated if it does not fit.
class Text {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_list(format, arguments);
    va_end(arguments);
  }
  void add_list(const char* format, va_list arguments) {
    int n = vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
    if (n > 0) length_ += size_t(n);
    if (length_ > sizeof text_ - 1) length_ = sizeof text_ - 1;
  }
  // As a JSON string, without the quotes.
  void add_escaped(const char* s) {
    for (; *s != 0; ++s) {
      auto c = static_cast<unsigned char>(*s);
      if (c < ' ' || c == '"' || c == '\\')
        add("\\u%04x", c);
      else
        add("%c", c);
    }
  }
  const char* text() const { return text_; }
  // One call, so that lines of several processes do not mix.
  void write_to(int fd) const {
    for (size_t done = 0; done < length_;) {
      ssize_t n = write(fd, text_ + done, length_ - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      done += size_t(n);
    }
  }

 private:
  char text_[4096] = "";
  size_t length_ = 0;
};

void add_block(Text& text, const char* name, const Block& block) {
  text.add(",\"%s\":{\"address\":\"%p\",\"asked\":%zu,\"usable\":%zu,\"align\":%zu,", name,
           static_cast<void*>(block.p), block.asked, block.usable, block.align);
  text.add("\"made_by\":\"%s\",\"stream\":%u,\"round\":%u,\"number\":%u}", make_name(block.make),
           stream_of(block.id), round_of(block.id), number_of(block.id));
}

// The options that repeat the run up to a little beyond the round of the fault.
void add_options(Text& text, const Where* at) {
  uint64_t round = at != nullptr ? at->round.load(std::memory_order_relaxed) : 0;
  text.add("--threads %u --seed 0x%llx --live-mib %zu --seconds %.0f", settings.threads,
           static_cast<unsigned long long>(settings.seed), settings.live_mib,
           settings.seconds < 10 ? 10 : settings.seconds);
  if (round > 1) text.add(" --round %llu", static_cast<unsigned long long>(round));
  if (!settings.forks) text.add(" --no-forks");
  if (!settings.signals) text.add(" --no-signals");
  for (size_t kind = 0; kind < size_t(Fault::kCount); ++kind)
    if (settings.ignored[kind]) text.add(" --ignore %s", fault_name(Fault(kind)));
}

unsigned long long load(const std::atomic<uint64_t>& value) {
  return value.load(std::memory_order_relaxed);
}

// "VmHWM:" and the like in bytes; 0 without it.
size_t status_bytes(const char* path, const char* key, int field) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[4096];
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char* at = key != nullptr ? strstr(text, key) : text;
  if (at == nullptr) return 0;
  if (key != nullptr) at += strlen(key);
  size_t value = 0;
  for (int i = 0; i <= field; ++i) value = strtoul(at, &at, 10);
  return key != nullptr ? value * kKiB : value * size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace

bool ignore(const char* name) {
  for (Fault kind :
       {Fault::kMisaligned, Fault::kChangedErrno, Fault::kWrongResult, Fault::kGrowth}) {
    if (strcmp(name, fault_name(kind)) != 0) continue;
    settings.ignored[size_t(kind)] = true;
    return true;
  }
  return false;
}

void describe_damage(const Damage& damage, char* text, size_t size) {
  size_t n = size_t(snprintf(text, size, "%zu bytes differ, the first at offset %zu: expected",
                             damage.bytes, damage.first));
  for (int what = 0; what < 2; ++what) {
    const unsigned char* bytes = what == 0 ? damage.expected : damage.found;
    if (what == 1 && n < size) n += size_t(snprintf(text + n, size - n, ", found"));
    for (size_t i = 0; i < damage.shown && n < size; ++i)
      n += size_t(snprintf(text + n, size - n, " %02x", bytes[i]));
  }
}

// Whether it is in the list of --expect.
static bool is_expected(const char* name) {
  const size_t length = strlen(name);
  for (const char* at = settings.expect; at != nullptr; at = strchr(at, ',')) {
    if (*at == ',') ++at;
    if (strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ',')) return true;
  }
  return false;
}

void fault(Fault kind, const Where* at, const Block* culprit, const Block* other,
           const char* format, ...) {
  if (reported.exchange(true))
    for (;;) pause();
  Text what;
  va_list arguments;
  va_start(arguments, format);
  what.add_list(format, arguments);
  va_end(arguments);
  Text line;
  line.add("{\"fault\":{\"kind\":\"%s\",\"text\":\"", fault_name(kind));
  line.add_escaped(what.text());
  line.add("\"");
  if (at != nullptr) {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    line.add(",\"at\":{\"call\":\"%s\",\"size\":%zu,\"align\":%zu,\"address\":\"0x%zx\"",
             at->call.load(kRelaxed), at->size.load(kRelaxed), at->align.load(kRelaxed),
             size_t(at->address.load(kRelaxed)));
    line.add(",\"stream\":%u,\"round\":%llu,\"generation\":%llu,\"operation\":%llu", at->stream,
             load(at->round), load(at->generation), load(at->operation));
    line.add(",\"thread\":%d,\"process\":%d,\"forked\":%s}", at->thread.load(kRelaxed), getpid(),
             getpid() == settings.process ? "false" : "true");
  }
  if (culprit != nullptr) add_block(line, "block", *culprit);
  if (other != nullptr) add_block(line, "other", *other);
  line.add(",\"repeat\":\"");
  add_options(line, at);
  line.add("\"}}\n");
  line.write_to(STDOUT_FILENO);
  if (settings.aborts) abort();
  bool expected = is_expected(fault_name(kind));
  bool child = getpid() != settings.process;
  _exit(!expected ? 1 : child ? kExpectedInChild : 0);
}

void end_like_child(int code) {
  reported.store(true);
  _exit(code == kExpectedInChild ? 0 : code);
}

void give_up(const char* format, ...) {
  Text line;
  line.add("larder-torture: ");
  va_list arguments;
  va_start(arguments, format);
  line.add_list(format, arguments);
  va_end(arguments);
  line.add("\n");
  line.write_to(STDERR_FILENO);
  _exit(2);
}

void print_start() {
  Text line;
  line.add("{\"start\":{\"malloc\":\"");
  line.add_escaped(family.object);
  line.add("\",\"missing\":\"%s\",\"seed\":\"0x%llx\",\"repeat\":\"", family.missing,
           static_cast<unsigned long long>(settings.seed));
  add_options(line, nullptr);
  line.add("\"}}\n");
  line.write_to(STDOUT_FILENO);
}

void print_progress(double seconds) {
  Text line;
  line.add("{\"progress\":{\"seconds\":%.1f,\"operations\":%llu,\"live_bytes\":%lld}}\n", seconds,
           load(totals.operations),
           static_cast<long long>(totals.live_bytes.load(std::memory_order_relaxed)));
  line.write_to(STDOUT_FILENO);
}

void print_clean(double seconds) {
  Text line;
  line.add("{\"clean\":{\"seconds\":%.1f,\"operations\":%llu,\"rounds\":%llu,\"threads\":%llu",
           seconds, load(totals.operations), load(totals.rounds), load(totals.threads));
  line.add(",\"forks\":%llu,\"signals\":%llu,\"peak_live_bytes\":%lld,\"peak_rss_bytes\":%zu}}\n",
           load(totals.forks), load(totals.signals),
           static_cast<long long>(totals.live_peak.load()), peak_resident_bytes());
  line.write_to(STDOUT_FILENO);
}

int start_thread_on([[maybe_unused]] void** stack, pthread_t* thread, void* (*function)(void*),
                    void* argument) {
#ifdef __SANITIZE_THREAD__
  constexpr size_t kStack = kMiB;
  if (*stack == nullptr) *stack = map_pages(kStack);
  if (*stack == nullptr) return ENOMEM;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, *stack, kStack);
  int error = pthread_create(thread, &attributes, function, argument);
  pthread_attr_destroy(&attributes);
  return error;
#else
  return pthread_create(thread, nullptr, function, argument);
#endif
}

size_t address_space_bytes() { return status_bytes("/proc/self/statm", nullptr, 0); }
size_t resident_bytes() { return status_bytes("/proc/self/statm", nullptr, 1); }
size_t peak_resident_bytes() { return status_bytes("/proc/self/status", "VmHWM:", 0); }

}  // namespace torture
