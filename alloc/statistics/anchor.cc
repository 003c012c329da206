#include "statistics/anchor.h"

#include "base/size_class.h"
#include "base/stats.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "larder/larder.h"

#define LARDER_STRING_(x) #x
#define LARDER_STRING(x) LARDER_STRING_(x)

using namespace larder;

// Kept in a static program, too, where nothing refers to it.
[[gnu::used, gnu::retain]] constinit const Anchor larder_anchor = {
    .magic = {'l', 'a', 'r', 'd', 'e', 'r', ' ', 'a', 'n', 'c', 'h', 'o', 'r', 0, '\r', '\n'},
    .version = Anchor::kVersion,
    .bytes = sizeof(Anchor),
    .library = LARDER_STRING(LARDER_VERSION_MAJOR) "." LARDER_STRING(
        LARDER_VERSION_MINOR) "." LARDER_STRING(LARDER_VERSION_PATCH),
    .profile = &profile_layout,
    .sampler = &sampler_layout,
    .pages = &PageHeap::layout,
    .large = &large_layout,
    .heaps = &heaps_layout,
    .meta = &meta_layout,
    .own = &own_layout,
    .limits = &limits_layout,
    .counters = &stats::counters,
    .class_sizes = &kSizeClasses.size,
    .class_capacity = &kSizeClasses.capacity,
    .page_map = &page_map,
    .page_map_bytes = sizeof(page_map),
    .page_map_leaf_entries = ProcessPageMap::kLeafSize,
    .page_map_leaf_offset = ProcessPageMap::kNullLeafOffset,
    .counter_count = stats::kCounters,
    .class_count = kClasses,
    .page_shift = kPageShift,
    .segment_shift = kSegmentShift};
