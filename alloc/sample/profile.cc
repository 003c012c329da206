#include "sample/profile.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/writer.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "os/options.h"
#include "os/os.h"
#include "os/os_file.h"
#include "sample/site.h"

namespace larder {

namespace {

char path_wanted[PATH_MAX];
int process_of_path;

// objects: bytes
void put(Writer& out, const Estimate& e) {
  out.number(e.objects);
  out.put(": ");
  out.number(e.bytes);
}

// in use [allocated] @
void put(Writer& out, const Estimate& in_use, const Estimate& allocated) {
  put(out, in_use);
  out.put(" [");
  put(out, allocated);
  out.put("] @");
}

// The site as it is now.
Site copy_of(const Site* site) {
  LockGuard guard(sample_lock());
  Site copy = *site;
  copy.at_peak = peak_of(copy);
  return copy;
}

Site* next_site(const Site* site) { return __atomic_load_n(&site->next, __ATOMIC_ACQUIRE); }

void add(Estimate& sum, const Estimate& more) {
  sum.objects += more.objects;
  sum.bytes += more.bytes;
}

void write_details(Writer& out, const Site& site) {
  Interval interval =
      interval_of(site.in_use.bytes, site.variance, site.heaviest, double(site.sampled_bytes));
  out.put("95 % in use: ");
  out.number(interval.low);
  out.put(" to ");
  out.number(interval.high);
  // For intervals of sums of sites.
  out.put("; deviation ");
  out.number(__builtin_sqrt(site.variance));
  out.put(" heaviest ");
  out.number(site.heaviest);
  out.put(" sampled ");
  out.number(double(site.sampled_bytes));
  out.put("; samples ");
  out.number(double(site.samples));
  out.put("; peak ");
  put(out, site.at_peak);
  out.put("; at mark ");
  put(out, site.at_mark);
}

void write_header(Writer& out) {
  Site sum = {};
  for (Site* site = first_site(); site != nullptr; site = next_site(site)) {
    Site now = copy_of(site);
    add(sum.in_use, now.in_use);
    add(sum.allocated, now.allocated);
    add(sum.at_peak, now.at_peak);
    add(sum.at_mark, now.at_mark);
    sum.variance += now.variance;
    sum.sampled_bytes += now.sampled_bytes;
    sum.samples += now.samples;
    if (sum.heaviest < now.heaviest) sum.heaviest = now.heaviest;
  }
  profile_put_sum(out, sum.in_use, sum.allocated, " heapprofile\n# larder 1; mean ");
  out.number(double(sample_mean()));
  out.put("; process ");
  out.number(os::process_id());
  out.put("; ");
  write_details(out, sum);
  out.put("\n");
}

void write_lifetimes(Writer& out, const Site& site) {
  bool any = false;
  for (int i = 0; i < kLifetimes; ++i) {
    if (site.lifetimes[i] == 0) continue;
    if (!any) out.put("; lifetimes");
    any = true;
    out.put(" ");
    out.number(double(uint64_t{1} << i));
    out.put(":");
    out.number(double(site.lifetimes[i]));
  }
}

void write_frames(Writer& out, const Site& site) {
  for (uint32_t i = 0; i < site.depth; ++i) {
    out.put(" ");
    out.address(site.frames[i]);
  }
  if (site.depth == 0) out.put(" 0x0");
}

void write_site(Writer& out, const Site& site) {
  if (site.allocated.objects == 0) return;
  put(out, site.in_use, site.allocated);
  write_frames(out, site);
  out.put(site.depth == 0 ? "\n# other stacks; " : "\n# ");
  if (site.truncated) out.put("truncated; ");
  write_details(out, site);
  write_lifetimes(out, site);
  out.put("\n");
}

// `pattern` with %p as the process's id; the id is appended if `with_id`. False: too long.
bool expand(const char* pattern, bool with_id, char (&path)[PATH_MAX]) {
  TextBuffer out(path, PATH_MAX);
  auto id = unsigned(os::process_id());
  out.put_pattern(pattern, id);
  if (with_id) out.put(".").put_number(id);
  return out.fits();
}

[[gnu::destructor(101)]] void write_at_exit() {
  if (path_wanted[0] == 0 || torn_by_fork) return;
  char path[PATH_MAX];
  bool is_child = os::process_id() != process_of_path;
  bool fits = expand(path_wanted, is_child && strstr(path_wanted, "%p") == nullptr, path);
  int file = fits ? os::create(path) : -ENAMETOOLONG;
  // Perhaps written by a program that has executed this one.
  if (file == -EEXIST && expand(path_wanted, true, path)) file = os::create(path);
  if (file < 0) return profile_complain(path, -file);
  if (int error = profile_write(file)) profile_complain(path, error);
  os::close(file);
}

}  // namespace

void profile_put_sum(Writer& out, const Estimate& in_use, const Estimate& allocated,
                     const char* kind) {
  out.put("heap profile: ");
  put(out, in_use, allocated);
  out.put(kind);
}

void profile_put_part(Writer& out, const Site& site, const Estimate& in_use,
                      const Estimate& allocated) {
  put(out, in_use, allocated);
  write_frames(out, site);
  out.put("\n");
}

void profile_put_mappings(Writer& out) {
  out.put("\nMAPPED_LIBRARIES:\n");
  int maps = os::open("/proc/self/maps");
  if (maps < 0) return;
  char text[1024];
  for (long n; (n = os::read(maps, text, sizeof text)) > 0;) out.put(text, size_t(n));
  os::close(maps);
}

int profile_put_into_file(void* file, const char* text, size_t bytes) {
  return -os::write(*static_cast<int*>(file), text, bytes);
}

Interval interval_of(double estimate, double variance, double deviation, double at_least) {
  constexpr double kQuantile = 1.959964;
  // Wilson and Hilferty's quantile of the gamma distribution with this mean and variance.
  auto quantile = [](double mean, double spread, double z) {
    if (mean <= 0 || spread <= 0) return mean;
    double ninth = spread / (9 * mean * mean);
    double root = 1 - ninth + z * __builtin_sqrt(ninth);
    return root <= 0 ? 0 : mean * root * root * root;
  };
  double low = quantile(estimate, variance, -kQuantile);
  double high = quantile(estimate + deviation, variance + deviation * deviation, kQuantile);
  return {low > at_least ? low : at_least, high > estimate ? high : estimate};
}

void profile_init() {
  set_sample_mean(option(Option::kProfileBytes));
  const char* path = secure_getenv("LARDER_PROFILE");
  if (path == nullptr || *path == 0) return;
  if (strlen(path) >= PATH_MAX) return profile_complain(path, ENAMETOOLONG);
  memcpy(path_wanted, path, strlen(path) + 1);
  process_of_path = os::process_id();
}

void profile_complain(const char* path, int error) {
  char line[PATH_MAX + 100];
  size_t used = 0;
  auto put = [&](const char* text) {
    for (; *text != 0 && used < sizeof line - 20; ++text)
      line[used++] = *text >= ' ' && *text < 127 ? *text : '?';
  };
  put("larder: cannot write the heap profile to ");
  put(path);
  put(": ");
  const char* name = os::error_text(error);
  put(name != nullptr ? name : "unknown error");
  line[used++] = '\n';
  os::write_stderr(line, used);
}

namespace {

int write_entered(TextSink sink, void* context) {
  if (!can_capture()) return ENOSYS;
  Writer out(sink, context);
  write_header(out);
  for (Site* site = first_site(); site != nullptr && out.error() == 0; site = next_site(site))
    write_site(out, copy_of(site));
  profile_put_mappings(out);
  out.flush();
  return out.error();
}

}  // namespace

int profile_write(TextSink sink, void* context) {
  SlowPath path;
  return path.entered() ? write_entered(sink, context) : EBUSY;
}

int profile_write(int file) { return profile_write(profile_put_into_file, &file); }
int profile_write_entered(int file) { return write_entered(profile_put_into_file, &file); }

int profile_for_each_site(bool (*visit)(const Site& now, void* context), void* context) {
  if (!can_capture()) return ENOSYS;
  SlowPath path;
  if (!path.entered()) return EBUSY;
  for (Site* site = first_site(); site != nullptr && visit(copy_of(site), context);)
    site = next_site(site);
  return 0;
}

int profile_mark() {
  SlowPath path;
  if (!path.entered()) return EBUSY;
  LockGuard guard(sample_lock());
  sites_mark();
  return 0;
}

}  // namespace larder
