#include "statistics/properties.h"

#include <stdio.h>
#include <string.h>

#include "base/stats.h"
#include "core/purge.h"
#include "core/thread_heap.h"
#include "os/options.h"
#include "statistics/heap_walk.h"

namespace larder {

namespace {

size_t count_of(stats::Counter c) { return size_t(stats::get(c)); }

// Only descriptors in use are touched, and take memory.
size_t metadata_bytes(const HeapSnapshot& s) { return s.descriptors * sizeof(Slab); }

size_t committed(const HeapSnapshot& s) { return s.heap_bytes() - s.untouched_bytes(); }

size_t most_in_threads() {
  size_t total = option(Option::kMaxThreadCacheBytes);
  if (total != 0) return total;
  size_t of_each = 2 * (option(Option::kHeapEmptyKib) << 10);
  return kCacheExtraBytes + of_each * count_of(stats::kHeaps);
}

struct Property {
  char name[48];
  size_t (*get)(const HeapSnapshot&);
};

constexpr Property kProperties[] = {
    {"generic.current_allocated_bytes", [](const HeapSnapshot& s) { return s.in_use(); }},
    {"generic.heap_size", [](const HeapSnapshot& s) { return s.heap_bytes(); }},
    {"generic.total_physical_bytes",
     [](const HeapSnapshot& s) { return committed(s) + metadata_bytes(s); }},
    {"tcmalloc.slack_bytes",
     [](const HeapSnapshot& s) { return s.page_heap_free() + s.untouched_bytes(); }},
    {"tcmalloc.central_cache_free_bytes",
     [](const HeapSnapshot& s) { return s.free_in_central(); }},
    // Slabs move between threads, not objects.
    {"tcmalloc.transfer_cache_free_bytes", [](const HeapSnapshot&) { return size_t{0}; }},
    {"tcmalloc.thread_cache_free_bytes", [](const HeapSnapshot& s) { return s.free_in_threads(); }},
    {"tcmalloc.current_total_thread_cache_bytes",
     [](const HeapSnapshot& s) { return s.free_in_threads(); }},
    {"tcmalloc.max_total_thread_cache_bytes",
     [](const HeapSnapshot&) { return most_in_threads(); }},
    {"tcmalloc.pageheap_free_bytes", [](const HeapSnapshot& s) { return s.page_heap_free(); }},
    {"tcmalloc.pageheap_unmapped_bytes", [](const HeapSnapshot& s) { return s.untouched_bytes(); }},
    {"tcmalloc.pageheap_committed_bytes", [](const HeapSnapshot& s) { return committed(s); }},
    {"tcmalloc.pageheap_scavenge_count", [](const HeapSnapshot&) { return purge_passes(); }},
    {"tcmalloc.pageheap_commit_count",
     [](const HeapSnapshot&) {
       return count_of(stats::kMmapCalls) + count_of(stats::kMremapCalls);
     }},
    {"tcmalloc.pageheap_total_commit_bytes",
     [](const HeapSnapshot&) { return count_of(stats::kMappedTotalBytes); }},
    {"tcmalloc.pageheap_decommit_count",
     [](const HeapSnapshot&) {
       return count_of(stats::kMadviseCalls) + count_of(stats::kMunmapCalls);
     }},
    {"tcmalloc.pageheap_total_decommit_bytes",
     [](const HeapSnapshot&) {
       return count_of(stats::kPurgedBytes) + count_of(stats::kMappedTotalBytes) -
              count_of(stats::kMappedBytes);
     }},
    {"tcmalloc.pageheap_reserve_count",
     [](const HeapSnapshot&) { return count_of(stats::kMmapCalls); }},
    {"tcmalloc.pageheap_total_reserve_bytes",
     [](const HeapSnapshot&) { return count_of(stats::kMappedTotalBytes); }},
    {"tcmalloc.aggressive_memory_decommit",
     [](const HeapSnapshot&) { return option(Option::kAggressiveDecommit); }},
    {"tcmalloc.heap_limit_mb", [](const HeapSnapshot&) { return option(Option::kHeapLimitMib); }},
};

struct Setting {
  char name[48];
  Option option;
  size_t least, most;
};

constexpr Setting kSettings[] = {
    {"tcmalloc.max_total_thread_cache_bytes", Option::kMaxThreadCacheBytes, 512 << 10, kMaxSize},
    {"tcmalloc.aggressive_memory_decommit", Option::kAggressiveDecommit, 0, 1},
    {"tcmalloc.heap_limit_mb", Option::kHeapLimitMib, 0, kMaxSize >> 20},
};

// Appends to a fixed text; cuts what does not fit.
class Text {
 public:
  Text(char* text, size_t size_bytes) : at_(text), left_(size_bytes) { *text = 0; }
  template <typename... Values>
  void line(const char* format, Values... values) {
    int n = snprintf(at_, left_, format, values...);
    if (n < 0) return;
    size_t used = size_t(n) < left_ ? size_t(n) : left_ - 1;
    at_ += used;
    left_ -= used;
  }
  void figure(char sign, size_t bytes, const char* what) {
    line("MALLOC: %c %12zu (%7.1f MiB) %s\n", sign, bytes, double(bytes) / (1 << 20), what);
  }
  void rule() { line("MALLOC:   ------------\n"); }

 private:
  char* at_;
  size_t left_;
};

}  // namespace

bool get_property(const char* name, size_t* value) {
  if (name == nullptr || value == nullptr) return false;
  for (const Property& p : kProperties) {
    if (strcmp(p.name, name) != 0) continue;
    HeapSnapshot snapshot;
    walk_heap(&snapshot);
    *value = p.get(snapshot);
    return true;
  }
  return false;
}

bool set_property(const char* name, size_t value) {
  if (name == nullptr) return false;
  for (const Setting& s : kSettings) {
    if (strcmp(s.name, name) != 0) continue;
    set_option(s.option, value < s.least ? s.least : value > s.most ? s.most : value);
    return true;
  }
  return false;
}

void describe_heap(char* text, size_t size_bytes) {
  HeapSnapshot s;
  walk_heap(&s);
  size_t metadata = metadata_bytes(s);
  Text out(text, size_bytes);
  out.line("------------------------------------------------\n");
  out.figure(' ', s.in_use(), "Bytes in use by application");
  out.figure('+', s.page_heap_free(), "Bytes in page heap freelist");
  out.figure('+', s.free_in_central(), "Bytes in central cache freelist");
  out.figure('+', 0, "Bytes in transfer cache freelist");
  out.figure('+', s.free_in_threads(), "Bytes in thread cache freelists");
  out.figure('+', metadata, "Bytes in malloc metadata");
  out.rule();
  out.figure('=', committed(s) + metadata, "Actual memory used (physical + swap)");
  out.figure('+', s.untouched_bytes(), "Bytes released to OS (aka unmapped)");
  out.rule();
  out.figure('=', s.heap_bytes() + metadata, "Virtual address space used");
  out.line("MALLOC:\n");
  out.line("MALLOC:   %12zu              Spans in use\n", s.descriptors);
  out.line("MALLOC:   %12zu              Thread heaps in use\n", count_of(stats::kHeaps));
  out.line("MALLOC:   %12zu              Larder page size\n", kPageBytes);
  out.line("------------------------------------------------\n");
  out.line("Call ReleaseFreeMemory() to release freelist memory to the OS.\n");
}

}  // namespace larder
