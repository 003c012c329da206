#include "base/stats.h"

namespace larder::stats {

constinit std::atomic<int64_t> counters[kCounters] = {};

}  // namespace larder::stats
