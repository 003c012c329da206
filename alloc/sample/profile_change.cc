#include "sample/profile_change.h"

#include <errno.h>

#include <initializer_list>

namespace larder {

namespace {

Estimate less(const Estimate& a, const Estimate& b) {
  return {a.objects - b.objects, a.bytes - b.bytes};
}

void add(Estimate& sum, const Estimate& more) {
  sum.objects += more.objects;
  sum.bytes += more.bytes;
}

Estimate not_below_zero(const Estimate& e) {
  return {e.objects > 0 ? e.objects : 0, e.bytes > 0 ? e.bytes : 0};
}

struct Change {
  Estimate in_use, allocated;
};

// `change` says what of the site at this place in their list; what is nothing is left out.
template <typename Of>
int write(TextSink sink, void* context, const char* kind, Of change) {
  struct Walk {
    Of change;
    Writer out;
    bool header;
    size_t site;
    Change sum;
  } walk = {change, Writer(sink, context), true, 0, {}};
  auto visit = [](const Site& now, void* argument) {
    auto& w = *static_cast<Walk*>(argument);
    Change c = w.change(now, w.site++);
    if (__builtin_fabs(c.in_use.bytes) < 1 && c.allocated.bytes < 1) return true;
    if (w.header) {
      add(w.sum.in_use, c.in_use);
      add(w.sum.allocated, c.allocated);
    } else {
      profile_put_part(w.out, now, c.in_use, c.allocated);
    }
    return w.out.error() == 0;
  };
  // Twice: the header has the sum.
  for (bool header : {true, false}) {
    walk.header = header;
    walk.site = 0;
    if (int error = profile_for_each_site(visit, &walk)) return error;
    // pprof knows no sum below zero.
    if (header)
      profile_put_sum(walk.out, not_below_zero(walk.sum.in_use), walk.sum.allocated, kind);
  }
  profile_put_mappings(walk.out);
  walk.out.flush();
  return walk.out.error();
}

constexpr char kGrowth[] = " growthz\n";

Change growth(const Estimate& now, const Estimate& then) {
  Estimate grown = not_below_zero(less(now, then));
  return {grown, grown};
}

}  // namespace

Estimate growth_since_mark(const Site& now) { return growth(now.in_use, now.at_mark).in_use; }

int profile_write_growth(TextSink sink, void* context) {
  return write(sink, context, kGrowth,
               [](const Site& now, size_t) { return growth(now.in_use, now.at_mark); });
}

int ProfileLook::take() {
  forget();
  // Those that are made meanwhile had nothing.
  size_t most = sites_count() + 1;
  bytes_ = round_up(most * sizeof(Then), os::page_size());
  sites_ = static_cast<Then*>(os::map(bytes_));
  if (sites_ == nullptr) return ENOMEM;
  auto visit = [](const Site& now, void* argument) {
    auto* look = static_cast<ProfileLook*>(argument);
    if ((look->count_ + 1) * sizeof(Then) > look->bytes_) return false;
    look->sites_[look->count_++] = {now.in_use, now.allocated};
    return true;
  };
  return profile_for_each_site(visit, this);
}

int ProfileLook::write_change(TextSink sink, void* context) const {
  return write(sink, context, " heapprofile\n", [this](const Site& now, size_t site) {
    Then before = then(site);
    return Change{less(now.in_use, before.in_use), less(now.allocated, before.allocated)};
  });
}

int ProfileLook::write_growth(TextSink sink, void* context) const {
  return write(sink, context, kGrowth, [this](const Site& now, size_t site) {
    return growth(now.in_use, then(site).in_use);
  });
}

void ProfileLook::forget() {
  if (sites_ != nullptr) os::unmap(sites_, bytes_);
  sites_ = nullptr;
  count_ = bytes_ = 0;
}

}  // namespace larder
