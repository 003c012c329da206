// Every constant that could have another value without the allocator being wrong: its unit, its
// reason, and the experiment that chose it (a heading of docs/how/experiments.md, or "not
// measured"). Some still stand where they are used.
//
// What a user may set is in os/options.cc instead, geometry in base/base.h and base/size_class.h.
#pragma once

#include "base/base.h"

namespace larder {

// --- slabs

// Bytes. Carving links, and so touches, this much of a slab at a time: one system page, so that the
// rest of a slab costs no memory. Not measured.
inline constexpr size_t kCarveBytes = 4096;
// Objects that a class without a slab takes from the next larger classes before it gets a slab: a
// program that uses many classes a little touches fewer system pages. "Small processes".
inline constexpr uint8_t kMaxFallbackObjects = 32;
// Deferred frees of a class in a heap: this many bytes, but at least and at most this many objects.
// "Full slabs that get one object back".
inline constexpr uint32_t kDeferBytes = 16 * 1024, kMinDeferred = 4, kMaxDeferred = 64;
// Slabs on a heap's full list, and their bytes. The first free in one of them takes no atomic
// operation. "Full slabs that get one object back".
inline constexpr size_t kMaxFull = 64, kMaxFullBytes = 512 * 1024;
// Slabs that a heap adopts beyond those that the class needed, before it passes slabs on to the
// central list. "Heaps that only free".
inline constexpr unsigned kIdleAdoptions = 8;
// A shrinking realloc stays in place unless it saves more than one part in this: a copy costs more.
// Not measured.
inline constexpr size_t kShrinkShare = 4;

// --- what heaps cache

// Pages. Of longer spans only the one freed last is cached. "Large blocks".
inline constexpr unsigned kMaxCachedSpanPages = 32;
// A cached span serves a request unless it is longer by more than one part in this: the cache for
// one size must not raise the peak of another. Not measured.
inline constexpr unsigned kSpanFitShare = 4;
// Bytes that all heaps together may cache beyond LARDER_HEAP_EMPTY_KIB each. "What a heap keeps".
inline constexpr size_t kCacheExtraBytes = size_t{16} << 20;
// A heap that has emptied this many bytes of slabs, and needed none meanwhile, purges its partial
// slabs. It may use one part in kSlabPurgeShare of the process's time, which it saves up: between
// the minimum and the maximum in microseconds. "Small processes".
inline constexpr size_t kSlabPurgeAfterBytes = size_t{4} << 20;
inline constexpr uint64_t kSlabPurgeShare = 32, kSlabPurgeMinUs = 250, kSlabPurgeMaxUs = 20'000;
// Bytes that a heap may own while it waits for its next thread, and that all waiting heaps may own.
// "Threads that come and go".
inline constexpr size_t kWaitingBytes = 512 * 1024, kAllWaitingBytes = size_t{12} << 20;
// Shared heaps, one a processor. Bounds a table; no machine had more processors.
inline constexpr unsigned kMaxShared = 256;
// Objects of a list that are compared with one that may be free. No list is longer: a slab has up
// to 2048 objects, and up to kMaxDeferred are deferred frees.
inline constexpr uint32_t kMaxListed = 4096;
// Searches in vain for an object that looks free take up to one part in this of a process's time.
// Not measured.
inline constexpr uint64_t kSearchShare = 32;
// Milliseconds between two searches for leaked heaps: a search takes a system call a thread. Not
// measured.
inline constexpr uint64_t kSearchMs = 100;

// --- remote frees

// Bytes of remote frees that a heap collects before it pushes some. Not measured.
// RemoteCache::kSlots, the slabs that it collects for, is: "Frees of other threads' objects".
inline constexpr size_t kPendingBytes = 256 * 1024;
// Remote frees of one slab that a heap collects: this many bytes, within these counts. Not
// measured.
inline constexpr size_t kPushBytes = 16 * 1024, kMinPushed = 16, kMaxPushed = 128;

// --- large objects

// Cached mappings, and the bytes below which a piece of one is not split off. "Large blocks" chose
// to cache them; these two are not measured.
inline constexpr int kMaxCachedMappings = 128;
inline constexpr size_t kMinCachedBytes = 64 * 1024;
// Halves: mapped <= kMappedHalves / 2 * the peak of what was in use. "Large blocks": 5/4 causes
// more page faults, 2 causes no fewer.
inline constexpr size_t kMappedHalves = 3;
// An object that realloc moves gets one part in this of extra room, because it will grow again:
// growth by small steps then copies O(log size) times. "Large blocks".
inline constexpr size_t kGrowShare = 8;
// The mapping freed last serves a request that leaves at most one part in this unused. Not
// measured.
inline constexpr size_t kLastFreedFitShare = 8;
// Bytes that a mapping which is moved by pieces holds twice. Not measured.
inline constexpr size_t kMovedPieceBytes = size_t{1} << 20;
// A shrinking mapping keeps a tail of up to one part in this: it may grow again. Not measured.
inline constexpr size_t kTailShare = 4;

// --- memory back to the system

// Milliseconds between two purges. Not measured.
inline constexpr uint64_t kTickMs = 100;
// A process with at most kNearlyEmptyBytes in use, at least kEarlyMinBytes free, and never more
// than kEarlyMaxThreads heaps purges without waiting for the decay. What it purges may fault in
// again, a system page at a time. So it purges no more early than its peak, plus kEarlyBytesPerMs:
// about 2 % of its time. "Small processes".
inline constexpr size_t kEarlyMinBytes = size_t{8} << 20, kNearlyEmptyBytes = size_t{2} << 20;
inline constexpr int64_t kEarlyMaxThreads = 2;
inline constexpr size_t kEarlyBytesPerMs = 32 << 10;
// Near a limit, a purge runs as soon as it frees kPressedBytes or kPressedTickMs have passed, down
// to one part in kPressedShare below the limit. Not measured.
inline constexpr uint64_t kPressedTickMs = 10;
inline constexpr size_t kPressedBytes = size_t{1} << 20, kPressedShare = 16;

// --- samples

// Bytes of small objects between two checks of the mean and the budget; the second value while
// nothing is sampled. docs/how/heap-profile.md.
inline constexpr size_t kCheckBytes = size_t{8} << 20, kCheckBytesIfOff = size_t{1} << 20;
// Objects of a MiB or more between two checks of the budget: the cache serves one in 10 ns.
inline constexpr size_t kCheckObjects = 64;
// The sampling budget of a heap, in samples of about 0.3 us: its growth a millisecond (0.1 % of the
// time), its maximum and its first value. A stack walk costs kStackWalkCost samples.
// docs/how/heap-profile.md.
inline constexpr uint32_t kBudgetPerMs = 4, kMaxBudget = 320, kFirstBudget = 160,
                          kStackWalkCost = 8;
// Bytes. A smaller mean is not paced: the user wants every sample at any cost.
inline constexpr size_t kPacedMean = 256 * 1024;
// The mean is doubled at a sample below a sixteenth of the budget, this often at most. It is halved
// at one above a quarter, and at a check with all of it. docs/how/heap-profile.md.
inline constexpr uint32_t kMaxPace = 20;
// Without budget left, a sample point is first dropped with probability 1 / kFirstDropOdds.
// docs/how/heap-profile.md.
inline constexpr uint32_t kFirstDropOdds = 64;
// Frames of a stack, and distinct stacks: 512 bytes a stack and 8 a frame.
inline constexpr size_t kMaxFrames = 64, kMaxSites = 64 * 1024;
// Stacks that are recognised without a walk. docs/how/heap-profile.md.
inline constexpr size_t kRecentStacks = 64;

// --- where memory comes from

// The descriptors of a region of up to this many segments share system pages with other
// descriptors. Most processes need no more than the first region, of two. "Small processes".
inline constexpr unsigned kSharedTableSegments = 2;
// Bytes of address space for a file or device: the maximum, halved down to the minimum.
inline constexpr size_t kMaxWindowBytes = size_t{256} << 30, kMinWindowBytes = size_t{64} << 20;

}  // namespace larder
