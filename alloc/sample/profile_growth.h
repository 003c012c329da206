// What has grown since profile_mark(), in the form of gperftools' growth profile.
//
// Thread safety: any thread.
#pragma once

#include "sample/profile.h"

namespace larder {

// In bytes and objects, none below 0.
Estimate growth_since_mark(const Site& now);
// As profile_write.
int profile_write_growth(TextSink sink, void* context);

}  // namespace larder
