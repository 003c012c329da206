#include "statistics/statistics.h"

#include <errno.h>

#include "base/stats.h"
#include "core/large.h"
#include "core/page_heap.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "larder/larder.h"
#include "sample/site.h"
#include "statistics/heap_walk.h"

namespace larder {

namespace {

uint64_t count_of(stats::Counter c) { return uint64_t(stats::get(c)); }

// A kind's name in JSON, and its fields in the structure.
struct Kind {
  char name[16];
  uint64_t larder_stats::* bytes;
  uint64_t larder_stats::* resident;
};
constexpr Kind kKinds[] = {
    {"in_use", &larder_stats::in_use, &larder_stats::resident_in_use},
    {"slab_free", &larder_stats::slab_free, &larder_stats::resident_slab_free},
    {"slab_uncarved", &larder_stats::slab_uncarved, &larder_stats::resident_slab_uncarved},
    {"slab_tail", &larder_stats::slab_tail, &larder_stats::resident_slab_tail},
    {"sample_slabs", &larder_stats::sample_slabs, &larder_stats::resident_sample_slabs},
    {"heap_runs", &larder_stats::heap_runs, &larder_stats::resident_heap_runs},
    {"page_heap_dirty", &larder_stats::page_heap_dirty, &larder_stats::resident_page_heap_dirty},
    {"page_heap_clean", &larder_stats::page_heap_clean, &larder_stats::resident_page_heap_clean},
    {"kept_mappings", &larder_stats::kept_mappings, &larder_stats::resident_kept_mappings},
    {"metadata", &larder_stats::metadata, &larder_stats::resident_metadata}};
static_assert(sizeof kKinds / sizeof kKinds[0] == kParts, "each part has a name, in their order");

void fill(larder_stats& s, const HeapSnapshot& snapshot) {
  const HeapCounts& heaps = snapshot.heaps;
  s.mapped = snapshot.mapped;
  for (int i = 0; i < kParts; ++i) {
    s.*kKinds[i].bytes = snapshot.parts[i].bytes;
    s.*kKinds[i].resident = snapshot.resident_known ? snapshot.parts[i].resident : 0;
    s.resident += s.*kKinds[i].resident;
  }
  s.free_dirty = snapshot.free_dirty();
  s.free_clean = snapshot.untouched_bytes();
  s.purged_total = count_of(stats::kPurgedBytes);
  s.realloc_copied_bytes = count_of(stats::kReallocCopiedBytes);
  s.realloc_copied_huge_bytes = count_of(stats::kReallocCopiedHugeBytes);
  s.thread_heaps = heaps.in_use;
  s.shared_heaps = heaps.shared;
  s.refills = heaps.refills;
  s.fresh_slabs = heaps.fresh_slabs;
  s.remote_frees = heaps.remote_frees;
  s.remote_pushes = heaps.remote_pushes;
  s.system_calls = count_of(stats::kMmapCalls) + count_of(stats::kMunmapCalls) +
                   count_of(stats::kMremapCalls) + count_of(stats::kMadviseCalls);
  s.objects = snapshot.objects;
  s.slabs = snapshot.slabs;
  s.rounding_most = snapshot.rounding_most;
  s.reused_total = page_heap.reused_bytes() + large_reused_bytes();
  s.sample_mean = sample_mean();
  s.sites = sites_count();
  s.sampled_in_use = uint64_t(sites_bytes());
}

// Members of a JSON object.
class Members {
 public:
  explicit Members(Writer& out) : out_(out) { out_.put("{"); }
  Members& name(const char* name) {
    if (!first_) out_.put(", ");
    first_ = false;
    out_.put("\"");
    out_.put(name);
    out_.put("\": ");
    return *this;
  }
  Members& member(const char* of, uint64_t value) {
    name(of);
    out_.whole(value);
    return *this;
  }
  void end() { out_.put("}"); }

 private:
  Writer& out_;
  bool first_ = true;
};

void write_kinds(Writer& out, const larder_stats& s) {
  Members kinds(out);
  for (const Kind& kind : kKinds) {
    kinds.name(kind.name);
    Members(out).member("bytes", s.*kind.bytes).member("resident", s.*kind.resident).end();
  }
  kinds.end();
}

void write_classes(Writer& out, const HeapSnapshot& snapshot) {
  out.put("[");
  const char* between = "\n    ";
  for (int c = 0; c < kClasses; ++c) {
    const ClassSnapshot& of = snapshot.of_class[c];
    if (of.slabs == 0) continue;
    out.put(between);
    between = ",\n    ";
    Members(out)
        .member("size", kSizeClasses.size[c])
        .member("objects", of.objects)
        .member("slabs", of.slabs)
        .member("free_objects", of.free_objects)
        .end();
  }
  out.put("]");
}

}  // namespace

void fill_statistics(larder_stats* out) {
  HeapSnapshot snapshot;
  walk_heap(&snapshot, Residence::kAsked);
  *out = {};
  fill(*out, snapshot);
}

int write_statistics(TextSink sink, void* context) {
  HeapSnapshot snapshot;
  walk_heap(&snapshot, Residence::kAsked);
  if (!snapshot.complete) return EBUSY;
  larder_stats s = {};
  fill(s, snapshot);
  Writer out(sink, context);
  Members all(out);
  all.member("mapped", s.mapped).member("resident", s.resident).name("kinds");
  write_kinds(out, s);
  all.member("objects", s.objects)
      .member("slabs", s.slabs)
      .member("runs", snapshot.spans)
      .member("mappings", snapshot.mappings)
      .member("rounding_most", s.rounding_most)
      .member("thread_heaps", s.thread_heaps)
      .member("shared_heaps", s.shared_heaps)
      .member("purged_total", s.purged_total)
      .member("reused_total", s.reused_total)
      .member("realloc_copied_bytes", s.realloc_copied_bytes)
      .member("refills", s.refills)
      .member("fresh_slabs", s.fresh_slabs)
      .member("remote_frees", s.remote_frees)
      .member("remote_pushes", s.remote_pushes)
      .member("system_calls", s.system_calls)
      .member("sample_mean", s.sample_mean)
      .member("sites", s.sites)
      .member("sampled_in_use", s.sampled_in_use)
      .name("classes");
  write_classes(out, snapshot);
  all.end();
  out.put("\n");
  out.flush();
  return out.error();
}

}  // namespace larder
