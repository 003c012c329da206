#include "statistics/metrics.h"

#include <errno.h>
#include <stdio.h>

#include "base/stats.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/page_heap.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "larder/larder.h"
#include "sample/site.h"
#include "statistics/survey.h"

namespace larder {

namespace {

class Metrics {
 public:
  Metrics(TextSink sink, void* context) : sink_(sink), context_(context) {}
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    line("# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
  }
  void value(size_t value) { line("%s %zu\n", name_, value); }
  void value(const char* label, const char* of, size_t value) {
    line("%s{%s=\"%s\"} %zu\n", name_, label, of, value);
  }
  void one(const char* name, const char* type, const char* help, size_t value) {
    family(name, type, help);
    this->value(value);
  }
  int error() const { return error_; }

 private:
  template <typename... Values>
  [[gnu::noinline]] void line(const char* format, Values... values) {
    char text[512];
    int n = snprintf(text, sizeof text, format, values...);
    if (error_ == 0 && n > 0 && size_t(n) < sizeof text) error_ = sink_(context_, text, size_t(n));
  }

  TextSink sink_;
  void* context_;
  const char* name_ = nullptr;
  int error_ = 0;
};

size_t count_of(stats::Counter c) { return size_t(stats::get(c)); }

void write_heap(Metrics& out, const Survey& survey) {
  out.family("larder_build_info", "gauge", "Larder's version.");
  out.value("version", larder_version(), 1);
  out.one("larder_in_use_bytes", "gauge", "In allocated objects, by the size of their class.",
          survey.in_use());
  out.one("larder_in_use_objects", "gauge", "Allocated objects.", survey.objects);
  out.one("larder_mapped_bytes", "gauge", "Mapped from the system, descriptors included.",
          survey.mapped);
  out.one("larder_held_bytes", "gauge", "Of these, what may be in memory; limits are for it.",
          limit::held_bytes());
  out.family("larder_limit_bytes", "gauge", "Limits on what is held; 0: none.");
  out.value("kind", "soft", limit::soft());
  out.value("kind", "hard", limit::hard());
  out.family("larder_free_bytes", "gauge", "Mapped for objects and not in use, by kind.");
  out.value("kind", "slab", survey.part(Part::kSlabFree));
  out.value("kind", "uncarved", survey.part(Part::kUncarved));
  out.value("kind", "tail", survey.part(Part::kTail));
  out.value("kind", "heap_run", survey.part(Part::kHeapRuns));
  out.value("kind", "page_heap_dirty", survey.part(Part::kPageDirty));
  out.value("kind", "page_heap_clean", survey.part(Part::kPageClean));
  out.value("kind", "kept_mapping", survey.part(Part::kKeptMappings));
  out.one("larder_metadata_bytes", "gauge", "Descriptors and the page map.",
          survey.part(Part::kMetadata));
  out.family("larder_large_objects", "gauge", "Allocated objects beyond 32 KiB.");
  out.value("kind", "run", survey.runs);
  out.value("kind", "mapping", survey.mappings);
  out.family("larder_thread_heaps", "gauge", "Heaps of threads, by state.");
  out.value("state", "assigned", survey.heaps.in_use);
  out.value("state", "waiting", survey.heaps.unused);
  out.value("state", "shared", survey.heaps.shared);
  out.value("state", "dead", survey.heaps.dead);
}

void write_classes(Metrics& out, const Survey& survey) {
  auto all = [&](auto value_of) {
    for (int c = 0; c < kClasses; ++c) {
      char size[24];
      snprintf(size, sizeof size, "%u", unsigned(kSizeClasses.size[c]));
      if (survey.of_class[c].slabs != 0) out.value("size", size, value_of(survey.of_class[c], c));
    }
  };
  out.family("larder_class_objects", "gauge", "Allocated objects, by the size of their class.");
  all([](const ClassSurvey& of, int) { return of.objects; });
  out.family("larder_class_slabs", "gauge", "Slabs, by the size of their class.");
  all([](const ClassSurvey& of, int) { return of.slabs; });
  out.family("larder_class_free_bytes", "gauge", "Freed objects, by the size of their class.");
  all([](const ClassSurvey& of, int c) { return of.free_objects * kSizeClasses.size[c]; });
}

void write_samples(Metrics& out) {
  double in_use = 0, allocated = 0;
  size_t sites = 0, samples = 0;
  for (Site* site = first_site(); site != nullptr;
       site = __atomic_load_n(&site->next, __ATOMIC_ACQUIRE)) {
    LockGuard guard(sample_lock());
    in_use += site->in_use.bytes;
    allocated += site->allocated.bytes;
    samples += site->samples;
    sites += site->allocated.objects > 0 ? 1 : 0;
  }
  out.one("larder_sampled_mean_bytes", "gauge", "Mean distance of samples; 0: none.",
          sample_mean());
  out.one("larder_sampled_sites", "gauge", "Stacks that were sampled.", sites);
  out.one("larder_sampled_in_use_samples", "gauge", "Samples that are in use.", samples);
  out.one("larder_sampled_in_use_bytes", "gauge", "The heap profile's estimate of what is in use.",
          size_t(in_use));
  out.one("larder_sampled_allocated_bytes_total", "counter",
          "The heap profile's estimate of all that was allocated.", size_t(allocated));
}

void write_counters(Metrics& out, const Survey& survey) {
  out.one("larder_purged_bytes_total", "counter", "Given back to the system by madvise.",
          count_of(stats::kPurgedBytes));
  out.one("larder_mapped_bytes_total", "counter", "Mapped since the start.",
          count_of(stats::kMappedTotalBytes));
  out.family("larder_system_calls_total", "counter", "System calls for memory.");
  out.value("call", "mmap", count_of(stats::kMmapCalls));
  out.value("call", "munmap", count_of(stats::kMunmapCalls));
  out.value("call", "mremap", count_of(stats::kMremapCalls));
  out.value("call", "madvise", count_of(stats::kMadviseCalls));
  out.one("larder_reused_bytes_total", "counter",
          "Free memory handed out again that may have been in memory still.",
          page_heap.reused_bytes() + large_reused_bytes());
  out.one("larder_realloc_copied_bytes_total", "counter", "Copied by realloc, blocks beyond slabs.",
          count_of(stats::kReallocCopiedBytes));
  out.one("larder_refills_total", "counter", "Entries into malloc's slow path.",
          survey.heaps.refills);
  out.one("larder_fresh_slabs_total", "counter", "Slabs taken from the page heap.",
          survey.heaps.fresh_slabs);
  out.one("larder_remote_frees_total", "counter", "Objects freed in another thread's slab.",
          survey.heaps.remote_frees);
}

}  // namespace

int metrics_write(TextSink sink, void* context) {
  Survey survey;
  survey_heap(&survey);
  if (!survey.complete) return EBUSY;
  Metrics out(sink, context);
  write_heap(out, survey);
  write_classes(out, survey);
  write_samples(out);
  write_counters(out, survey);
  return out.error();
}

}  // namespace larder
