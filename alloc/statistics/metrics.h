// The allocator's figures as Prometheus reads them (docs/reference/endpoint.md).
//
// Thread safety: any thread. It walks all slabs, as larder_get_stats() does.
#pragma once

#include "base/writer.h"

namespace larder {

// 0, or an error of errno.h, as profile_write().
int metrics_write(TextSink sink, void* context);

}  // namespace larder
