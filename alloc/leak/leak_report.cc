#include "leak/leak_report.h"

#include <string.h>

#include "base/writer.h"
#include "leak/leak_names.h"

// From the linker: this library's code.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace larder {

namespace {

class Text {
 public:
  ~Text() { out_.flush(); }
  Text& put(const char* text) {
    out_.put(text);
    return *this;
  }
  Text& number(size_t value, unsigned base = 10) { return put(Digits(value, base).text()); }
  // N bytes in M objects
  Text& sum(size_t bytes, size_t objects) {
    return number(bytes).put(" bytes in ").number(objects).put(" objects");
  }

 private:
  static int to_stderr(void*, const char* text, size_t bytes) {
    os::write_stderr(text, bytes);
    return 0;
  }
  Writer out_{to_stderr, nullptr};
};

// Skips the allocator's own frames. In a static program their names identify them.
bool is_allocator(uintptr_t address, const Symbol* symbol) {
  constexpr const char* kNames[] = {"malloc",       "calloc",        "realloc",
                                    "reallocarray", "aligned_alloc", "posix_memalign",
                                    "memalign",     "valloc",        "pvalloc"};
  if (symbol == nullptr) return false;
  if (strncmp(symbol->name, "_Znw", 4) == 0 || strncmp(symbol->name, "_Zna", 4) == 0 ||
      strncmp(symbol->name, "_ZN6larder", 10) == 0 || strncmp(symbol->name, "tc_", 3) == 0)
    return true;
  for (const char* name : kNames)
    if (strcmp(symbol->name, name) == 0) return true;
  bool is_own = address > uintptr_t(&__ehdr_start) && address <= uintptr_t(&_end);
  return is_own && strstr(symbol->module_name, "liblarder") != nullptr;
}

void put_frame(Text& out, uintptr_t address, const Symbol* symbol) {
  out.put("\t@ ").number(address, 16).put(" ");
  if (symbol == nullptr || symbol->name[0] == 0) {
    if (symbol != nullptr && symbol->module >= 0)
      out.put("(").put(symbol->module_name).put("+0x").number(symbol->in_file, 16).put(")");
  } else {
    out.put(PlainName(*symbol).get());
  }
  out.put("\n");
}

void put_stack(Text& out, const Site& site, const LeakNames& names) {
  bool inside = true;
  for (uint32_t i = 0; i < site.depth; ++i) {
    const Symbol* symbol = names.find(site.frames[i]);
    inside = inside && i + 1 < site.depth && is_allocator(site.frames[i], symbol);
    if (!inside) put_frame(out, site.frames[i], symbol);
  }
  if (site.depth == 0) out.put("\t(too many different stacks: this one was not stored)\n");
}

void put_objects(Text& out, const LeakList& list, const LeakSum& sum) {
  for (size_t i = 0; i < sum.objects; ++i) {
    const LeakedObject& object = list.objects()[sum.first + i];
    out.put("\t0x").number(object.address, 16).put(": ").number(object.bytes);
    out.put(object.indirect ? " bytes, indirectly\n" : " bytes\n");
  }
}

}  // namespace

void report_leaks(const char* name, const LeakList& list, const LeakOptions& options) {
  size_t count = list.sum_count() < options.max_leaks ? list.sum_count() : options.max_leaks;
  LeakNames names(list.sums(), count);
  Text out;
  out.put("Leak check ").put(name).put(" detected leaks of ");
  out.sum(list.total.bytes, list.total.objects).put("\n");
  if (list.total.indirect_objects != 0)
    out.put("Of these, ")
        .sum(list.total.indirect_bytes, list.total.indirect_objects)
        .put(" are lost with others that lead to them\n");
  out.put("The ").number(count).put(" largest leaks:\n");
  for (size_t i = 0; i < count; ++i) {
    const LeakSum& sum = list.sums()[i];
    out.put("Leak of ").sum(sum.bytes, sum.objects).put(" allocated from:\n");
    put_stack(out, *sum.site, names);
    if (sum.indirect_objects != 0)
      out.put("\t(").sum(sum.indirect_bytes, sum.indirect_objects).put(" of them indirectly)\n");
    if (options.identify) put_objects(out, list, sum);
  }
  out.put("\n");
}

void report_no_leaks(const char* name, const LeakList& list) {
  Text out;
  out.put("No leaks found for check \"").put(name);
  out.put("\" (but no 100% guarantee that there aren't any): found ");
  out.number(list.reachable.objects).put(" reachable heap objects of ");
  out.number(list.reachable.bytes).put(" bytes\n");
}

}  // namespace larder
