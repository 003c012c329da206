#include "leak/roots.h"

#include <string.h>
#include <sys/auxv.h>

#include "base/policy.h"
#include "os/mappings.h"

// From the linker: this library, or the program that it is linked into.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace larder {

namespace {

// Below the stack pointer, and still in use by a leaf function.
constexpr size_t kRedZone = 128;

class Roots {
 public:
  Roots(const StoppedWorld& world, const CallingThread& me, RootsWanted wanted,
        void (*visit)(uintptr_t, uintptr_t, void*), void* context)
      : world_(world),
        me_(me),
        wanted_(wanted),
        visit_(visit),
        context_(context),
        pages_(os::open("/proc/self/pagemap")),
        my_thread_pointer_(uintptr_t(__builtin_thread_pointer())) {
    Range tables[2];
    os::own_tables(tables);
    for (const Range& table : tables) exclude(table);
    auto image = uintptr_t(&__ehdr_start);
    uintptr_t program = getauxval(AT_PHDR);
    // In a static program Larder's variables are among the program's.
    if (program < image || program - image > 4096) exclude({image, uintptr_t(&_end)});
  }
  ~Roots() {
    if (pages_ >= 0) os::close(pages_);
  }
  Roots(const Roots&) = delete;
  Roots& operator=(const Roots&) = delete;

  bool visit_all() {
    Mappings mappings;
    if (!mappings.opened()) return false;
    Mapping m = {};
    while (mappings.next(&m)) visit_mapping(m);
    if (wanted_.of_threads) visit_registers();
    return true;
  }

 private:
  using Range = os::Range;
  enum class Stack { kNone, kOfThread, kLeft };

  void exclude(Range range) { excluded_[excluded_count_++] = range; }

  void visit_registers() {
    for (size_t i = 0; i < world_.size(); ++i)
      visit_(uintptr_t(world_[i].word), uintptr_t(world_[i].word + world_[i].words), context_);
    visit_(uintptr_t(me_.registers), uintptr_t(me_.registers + me_.count), context_);
  }

  static bool holds(const Mapping& m, uintptr_t address) {
    return address >= m.begin && address < m.end;
  }

  // Calls visit(stack pointer, thread pointer) for each thread.
  template <typename Visit>
  void for_each_thread(Visit visit) const {
    visit(me_.stack_pointer, my_thread_pointer_);
    for (size_t i = 0; i < world_.size(); ++i)
      visit(world_[i].stack_pointer, world_[i].thread_pointer);
  }

  void visit_mapping(const Mapping& m) {
    if (!m.readable || m.shared || is_device(m) || is_kernels(m)) return;
    uintptr_t begin = m.begin;
    bool of_thread = false;
    bool first = true;
    for_each_thread([&](uintptr_t stack, uintptr_t thread) {
      bool is_main = strcmp(m.name, "[stack]") == 0;
      if (holds(m, stack) || holds(m, thread)) of_thread = true;
      // A thread may run on memory of the program's, which holds more than its stack.
      if (!holds(m, stack) || !(is_main || holds(m, thread))) return;
      uintptr_t live = stack - kRedZone > m.begin ? stack - kRedZone : m.begin;
      begin = first || live < begin ? live : begin;
      first = false;
    });
    if (!of_thread && m.guarded && m.writable) begin = behind_left_stack(m);
    if (of_thread ? wanted_.of_threads || (wanted_.of_globals && !is_stack_alone(m))
                  : wanted_.of_globals)
      visit_parts(begin, m.end, m.writable);
  }

  // The main thread's thread-local storage lies among the loader's data.
  bool is_stack_alone(const Mapping& m) const {
    return m.guarded || strcmp(m.name, "[stack]") == 0;
  }
  static bool is_device(const Mapping& m) {
    return strncmp(m.name, "/dev/", 5) == 0 && strncmp(m.name, "/dev/zero", 9) != 0;
  }
  static bool is_kernels(const Mapping& m) {
    return strcmp(m.name, "[vdso]") == 0 || strncmp(m.name, "[vvar", 5) == 0 ||
           strcmp(m.name, "[vsyscall]") == 0;
  }

  // glibc caches an ended thread's stack for the next. Only its table of thread-local storage is
  // still in use. Returns that table's end, or the mapping's beginning.
  uintptr_t behind_left_stack(const Mapping& m) {
#if defined(__x86_64__) && defined(__GLIBC__)
    constexpr size_t kThreadBytes = 0x900;
    if (world_.outcome() != StoppedWorld::Outcome::kStopped) return m.begin;
    uintptr_t lowest =
        m.end - m.begin > kDescriptorSearchBytes ? m.end - kDescriptorSearchBytes : m.begin;
    // The thread's descriptor begins with its own address, and repeats it after the table's.
    for (uintptr_t at = m.end - 64; at >= lowest; at -= 64) {
      if ((at & (os::page_size() - 1)) == os::page_size() - 64 && !is_touched(at)) {
        at &= ~(os::page_size() - 1);
        continue;
      }
      auto* word = reinterpret_cast<const uintptr_t*>(at);
      if (word[0] != at || word[2] != at) continue;
      if (wanted_.of_threads) visit_(at + 8, at + 16, context_);
      return m.end - at > kThreadBytes ? at + kThreadBytes : m.end;
    }
#endif
    return m.begin;
  }

  void visit_parts(uintptr_t begin, uintptr_t end, bool writable) {
    while (begin < end) {
      uintptr_t until = end, own_until;
      bool skipped = os::is_own(begin, &own_until);
      if (own_until < until) until = own_until;
      for (int i = 0; i < excluded_count_; ++i) {
        const Range& range = excluded_[i];
        if (begin >= range.begin && begin < range.end) {
          skipped = true;
          until = range.end;
        } else if (range.begin > begin && range.begin < until) {
          until = range.begin;
        }
      }
      if (until > end) until = end;
      if (!skipped) visit_pages(begin, until, writable);
      begin = until;
    }
  }

  // Whether the page is private and was ever written.
  static bool is_written(uint64_t entry) {
    constexpr uint64_t kPresent = uint64_t{1} << 63, kSwapped = uint64_t{1} << 62;
    constexpr uint64_t kOfFile = uint64_t{1} << 61;
    return (entry & (kPresent | kSwapped)) != 0 && (entry & kOfFile) == 0;
  }
  bool is_touched(uintptr_t at) const {
    uint64_t entry = 0;
    if (pages_ < 0 ||
        os::read_at(pages_, &entry, sizeof entry, at / os::page_size() * sizeof entry) != 8)
      return true;
    return is_written(entry);
  }

  void visit_pages(uintptr_t begin, uintptr_t end, bool writable) {
    size_t page = os::page_size();
    uintptr_t first_written = 0;  // begin of the pages that are visited together
    for (uintptr_t at = round_down(begin, page); at < end;) {
      size_t count = (end - at + page - 1) / page;
      if (count > kPagesARead) count = kPagesARead;
      long bytes = pages_ < 0 ? 0 : os::read_at(pages_, entries_, count * 8, at / page * 8);
      if (bytes < 8) {
        if (writable) visit_(at > begin ? at : begin, end, context_);
        return;
      }
      for (size_t i = 0; i < size_t(bytes) / 8; ++i, at += page) {
        bool written = is_written(entries_[i]);
        if (written && first_written == 0) first_written = at;
        if (!written && first_written != 0) {
          visit_(first_written > begin ? first_written : begin, at, context_);
          first_written = 0;
        }
      }
    }
    if (first_written != 0) visit_(first_written > begin ? first_written : begin, end, context_);
  }

  const StoppedWorld& world_;
  const CallingThread& me_;
  RootsWanted wanted_;
  void (*visit_)(uintptr_t, uintptr_t, void*);
  void* context_;
  int pages_;
  uintptr_t my_thread_pointer_;
  Range excluded_[3];
  int excluded_count_ = 0;
  uint64_t entries_[kPagesARead];
};

}  // namespace

bool for_each_root(const StoppedWorld& world, const CallingThread& me, RootsWanted wanted,
                   void (*visit)(uintptr_t, uintptr_t, void*), void* context) {
  return Roots(world, me, wanted, visit, context).visit_all();
}

}  // namespace larder
