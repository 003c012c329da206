#include "sample/profile_growth.h"

#include <initializer_list>

namespace larder {

namespace {

struct Walk {
  Writer out;
  bool header;
  Estimate sum;
};

bool visit(const Site& now, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  Estimate grown = growth_since_mark(now);
  if (grown.bytes < 1) return true;
  if (walk.header) {
    walk.sum.objects += grown.objects;
    walk.sum.bytes += grown.bytes;
  } else {
    profile_put_part(walk.out, now, grown, grown);
  }
  return walk.out.error() == 0;
}

}  // namespace

Estimate growth_since_mark(const Site& now) {
  double objects = now.in_use.objects - now.at_mark.objects;
  double bytes = now.in_use.bytes - now.at_mark.bytes;
  return {objects > 0 ? objects : 0, bytes > 0 ? bytes : 0};
}

int profile_write_growth(TextSink sink, void* context) {
  Walk walk = {Writer(sink, context), true, {}};
  // Twice: the header has the sum.
  for (bool header : {true, false}) {
    walk.header = header;
    if (int error = profile_for_each_site(visit, &walk)) return error;
    if (header) profile_put_sum(walk.out, walk.sum, walk.sum, " growthz\n");
  }
  profile_put_mappings(walk.out);
  walk.out.flush();
  return walk.out.error();
}

}  // namespace larder
