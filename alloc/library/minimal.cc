// liblarder_minimal.so: stubs for what the allocator calls of the profiler and the leak checker.
// Nothing is sampled.
#include <errno.h>
#include <stdlib.h>

#include <initializer_list>

#include "base/layout.h"
#include "core/guard.h"
#include "core/sampler.h"
#include "leak/leak.h"
#include "os/line.h"
#include "sample/profile.h"
#include "sample/profile_growth.h"
#include "sample/site.h"

namespace larder {

namespace {

constinit Lock unused;

[[noreturn]] void never() { fail("a sample in a library without the sampler", "sample", 0); }

}  // namespace

// Empty layouts tell readers outside the process that there are no sites.
constinit const ProfileLayout profile_layout = {};
constinit const SamplerLayout sampler_layout = {};
size_t sites_count() { return 0; }
double sites_bytes() { return 0; }
void sites_table(FunctionRef<void(const void*, size_t)>) {}

constinit std::atomic<size_t> sample_mean_bytes{0};
void set_sample_mean(size_t) {}
Lock& sample_lock() { return unused; }

// A heap's countdown still runs out, rarely.
void Countdown::draw() {
  bytes = SIZE_MAX / 2;
  check_only = true;
  mean = 0;
}
bool Countdown::hits_slowly(size_t, float* expected) {
  large_bytes = SIZE_MAX / 2;
  *expected = 0;
  return false;
}
uint32_t Countdown::budget_left() { return 0; }
uint64_t Chance::next() { return 0; }
double Chance::exponential() { return 1; }
double objects_of_sample(double) { return 0; }
bool sample_hits(size_t, float* expected) {
  *expected = 0;
  return false;
}

SamplePoint* sample_point_new(void*, double) { return nullptr; }
void sample_point_drop(SamplePoint*) { never(); }
constinit bool sample_all = false;
void* sample_exact(int, size_t, void*) { never(); }
void* sample_small(SamplePoint*, int, size_t, void*, Countdown*) { never(); }
const char* guard_init() { return "liblarder_minimal.so takes no samples"; }
void guard_report_origin(const void*) {}
void guard_for_each(FunctionRef<void(const char*, size_t)>) {}
SamplePoint* sample_free(Slab*, void*) { never(); }
void sample_large(SamplePoint*, Slab*, size_t, void*, Countdown*) { never(); }
void sample_end(SamplePoint*) { never(); }
void sample_correct(SamplePoint*, size_t) { never(); }
void sample_resize(SamplePoint*, size_t, double) { never(); }
void sample_free_in_signal(void*) { never(); }
void* sample_take_freed_in_signal() { return nullptr; }

void profile_init() {
  for (const char* variable : {"LARDER_PROFILE", "LARDER_HEAPPROFILE", "HEAPPROFILE"})
    if (secure_getenv(variable) != nullptr)
      Line().put(variable).put(": this library has no profiler; take liblarder.so").write();
}
void leak_init() {
  Line().put("HEAPCHECK: this library has no leak checker; take liblarder.so").write();
  os::forget_own_mappings();
}
int profile_write(TextSink, void*) { return ENOSYS; }
int profile_write(int) { return ENOSYS; }
int profile_write_growth(TextSink, void*) { return ENOSYS; }
int profile_for_each_site(bool (*)(const Site&, void*), void*) { return ENOSYS; }
Estimate growth_since_mark(const Site&) { return {}; }
int profile_mark() { return ENOSYS; }

}  // namespace larder
