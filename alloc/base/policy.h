// Every constant that could have another value without the allocator being wrong: its unit, its
// reason, and the experiment that chose it (a heading of docs/how/experiments.md, or "not
// measured"). scripts/lint constants finds one that stands elsewhere.
//
// What a user may set is in os/options.cc instead, geometry in base/base.h and base/size_class.h.
#pragma once

#include "base/base.h"

namespace larder {

// --- slabs

// Bytes. Carving links, and so touches, this much of a slab at a time: one system page, so that the
// rest of a slab costs no memory. Not measured.
inline constexpr size_t kCarveBytes = 4096;
// Deferred frees of a class in a heap: this many bytes, but at least and at most this many objects.
// "Full slabs that get one object back".
inline constexpr uint32_t kDeferBytes = 16 * 1024, kMinDeferred = 4, kMaxDeferred = 64;
// Slabs on a heap's full list, and their bytes. The first free in one of them takes no atomic
// operation. "Full slabs that get one object back".
inline constexpr size_t kMaxFull = 128, kMaxFullBytes = 2048 * 1024;
// Slabs that a heap adopts beyond those that the class needed, before it passes slabs on to the
// central list. "Heaps that only free".
inline constexpr unsigned kIdleAdoptions = 4;
// Bytes. An empty slab of objects of more than a cache line, up to this, is carved anew: a list in
// address order is prefetched. "Batches".
inline constexpr uint32_t kCarvedAnewBytes = 1024;
// What a heap does for each new slab: classes whose deferred frees it releases, full slabs that it
// disowns, partial slabs whose remote frees it takes. Not measured.
inline constexpr int kReleasedClasses = 8, kDisownedSlabs = 2, kCollectLooks = 8;
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
// A heap that has emptied this many bytes of slabs more than it has needed since purges its partial
// slabs. It may use one part in kSlabPurgeShare of the process's time, which it saves up: between
// the minimum and the maximum in microseconds. "Small processes".
inline constexpr size_t kSlabPurgeAfterBytes = size_t{4} << 20;
// Bytes of slabs that it empties, then, until it looks at the clock again. Not measured.
inline constexpr size_t kSlabPurgeStepBytes = size_t{256} << 10;
inline constexpr uint64_t kSlabPurgeShare = 32, kSlabPurgeMinUs = 250, kSlabPurgeMaxUs = 20'000;
// Refills of a heap from one look whether there is memory to purge to the next. "Memory back while
// a program works".
inline constexpr uint64_t kRefillsAPurge = 16;
// Partial slabs of a class that such a purge leaves as they are. "Memory back while a program
// works".
inline constexpr size_t kHotSlabs = 4;
// Slabs between two looks at the clock. Not measured.
inline constexpr unsigned kSlabsAClockRead = 16;
// A slab is purged if its objects in use are at most one part in this of its system pages, and
// again once they are less than one part in this of what they were. Not measured.
inline constexpr uint32_t kSparseShare = 2;
// Bytes that a heap may own while it waits for its next thread, and that all waiting heaps may own.
// "Threads that come and go".
inline constexpr size_t kWaitingBytes = 512 * 1024, kAllWaitingBytes = size_t{12} << 20;
// Heaps of threads: this many a processor, and at least kMinHeaps. "A thousand threads" has more;
// these are not measured.
inline constexpr size_t kHeapsPerCpu = 4, kMinHeaps = 64;
// The first frees of a thread without a heap, this many, take none: more than what a thread frees
// at its end of other threads' thread-local storage. "A thousand threads".
inline constexpr uint8_t kFreesWithoutHeap = 16;
// Shared heaps, one a processor. Bounds a table; no machine had more processors. Not measured.
inline constexpr unsigned kMaxShared = 256;
// Objects of a list that are compared with one that may be free. No list is longer: a slab has up
// to 2048 objects, and up to kMaxDeferred are deferred frees. Not measured.
inline constexpr uint32_t kMaxListed = 4096;
// Searches in vain for an object that looks free take up to one part in this of a process's time.
// Not measured.
inline constexpr uint64_t kSearchShare = 32;
// Milliseconds between two searches for leaked heaps: a search takes a system call a thread. Not
// measured.
inline constexpr uint64_t kSearchMs = 100;

// --- remote frees

// Slabs that a heap collects remote frees for. "Frees of other threads' objects".
inline constexpr int kRemoteSlots = 256;
// Bytes of remote frees that a heap collects before it pushes some. Not measured.
inline constexpr size_t kPendingBytes = 256 * 1024;
// Remote frees of one slab that a heap collects: this many bytes, within these counts. Not
// measured.
inline constexpr size_t kPushBytes = 16 * 1024, kMinPushed = 16, kMaxPushed = 128;

// --- guarded samples

// Guarded objects at a time: each splits the range into two more mappings, of which a process may
// have 65,530. Not measured.
inline constexpr uint32_t kMaxGuarded = 4096;
// Freed objects that stay unmapped: at the default rate those of the last 128 MiB. Not measured.
inline constexpr uint32_t kGuardedFreed = 256;
// Frames of the stack of a guarded object's free. Not measured.
inline constexpr unsigned kGuardFrames = 16;
// Behind a guarded object, up to the end of its page: no zero, as most overflows by one byte write
// one, and no part of an address. Not measured.
inline constexpr uint8_t kGuardByte = 0xDB;
// What a guarded sample costs beyond others, in samples: a stack walk, two system calls and a page
// fault. Not measured.
inline constexpr uint32_t kGuardCost = 24;

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
// Cache lines from the colour of one object to the next: odd, so that it reaches every colour, with
// successive ones far apart. Not measured.
inline constexpr uint32_t kColourStride = 11;

// --- spans

// Segments with equal longest spans that are searched for dirty pages, or for an aligned place. Not
// measured.
inline constexpr int kSegmentLooks = 8;

// --- huge pages

// A heap with at least this in use asks for huge pages. A clean segment that it opens is resident
// as a whole: at most one part in 32 more. "Huge pages".
inline constexpr size_t kHugeHeapBytes = size_t{64} << 20;
// Milliseconds. A heap that opened its last clean segment longer ago grows too slowly to fill one
// before it would be purged. Not measured.
inline constexpr uint64_t kHugeGrowthMs = 1000;
// A huge page is split by a purge if at least one part in this is free. No heap of which more is
// free asks for one. Not measured.
inline constexpr size_t kSparseHugeShare = 8;
// Microseconds. A huge page that takes longer to get is slow: to clear one takes 50 to 200. Slow
// ones may take one part in kHugeShare of the time. "Huge pages".
inline constexpr uint64_t kSlowHugeUs = 1000, kHugeShare = 32;
// Segments that may have no huge page. Each may split a mapping, of which a process may have
// 65,530. Not measured.
inline constexpr size_t kMaxForbiddenHuge = 8192;

// --- memory back to the system

// Milliseconds between two purges. Not measured.
inline constexpr uint64_t kTickMs = 100;
// Decays that the oldest free page of a segment in steady use waits for: a steady trickle of frees
// must not keep all of it. Not measured.
inline constexpr uint64_t kStaleDecays = 4;
// Free memory goes back without waiting for the decay from a process with at most kNearlyEmptyBytes
// in use and at least kEarlyMinBytes free, and from one that has kGrowthBytes and one part in
// kGrowthPart more than it has ever had in use. It may fault in again, a system page at a time. So
// it is kEarlyBytesPerMs at most, about 3 % of the time; and at rest the peak once, where there
// were never more than kEarlyMaxThreads heaps. When the last thread but one ends, less is worth it,
// kAfterThreadsMinBytes, and of the peak kAfterThreadsGrant are allowed once. "Small processes",
// "Memory for another use".
inline constexpr size_t kEarlyMinBytes = size_t{8} << 20, kNearlyEmptyBytes = size_t{2} << 20;
inline constexpr int64_t kEarlyMaxThreads = 2;
inline constexpr size_t kAfterThreadsMinBytes = size_t{2} << 20;
inline constexpr size_t kAfterThreadsGrant = size_t{32} << 20;
inline constexpr size_t kGrowthBytes = size_t{1} << 20, kGrowthPart = 16;
inline constexpr size_t kEarlyBytesPerMs = 64 << 10;
// Near a limit, a purge runs as soon as it frees kPressedBytes or kPressedTickMs have passed, down
// to one part in kPressedShare below the limit. Not measured.
inline constexpr uint64_t kPressedTickMs = 10;
inline constexpr size_t kPressedBytes = size_t{1} << 20, kPressedShare = 16;

// --- samples

// Bytes of small objects between two checks of the mean and the budget; the second value while
// nothing is sampled. docs/how/heap-profile.md.
inline constexpr size_t kCheckBytes = size_t{8} << 20, kCheckBytesIfOff = size_t{1} << 20;
// Objects of a MiB or more between two checks of the budget: the cache serves one in 10 ns.
// Not measured.
inline constexpr size_t kCheckObjects = 64;
// The sampling budget of a heap, in samples of about 0.3 us: its growth a millisecond (0.1 % of the
// time), its maximum and its first value. A stack walk costs kStackWalkCost samples.
// docs/how/heap-profile.md.
inline constexpr uint32_t kBudgetPerMs = 4, kMaxBudget = 320, kFirstBudget = 160,
                          kStackWalkCost = 8;
// Bytes. A smaller mean is not paced: the user wants every sample at any cost. Not
// measured.
inline constexpr size_t kPacedMean = 256 * 1024;
// The mean is doubled at a sample below one part in kSlowerShare of the budget, kMaxPace times at
// most. It is halved at one above one part in kFasterShare, and at a check with all of it.
// docs/how/heap-profile.md.
inline constexpr uint32_t kMaxPace = 20, kSlowerShare = 16, kFasterShare = 4;
// Without budget left, a sample point is first dropped with probability 1 / kFirstDropOdds.
// docs/how/heap-profile.md.
inline constexpr uint32_t kFirstDropOdds = 64;
// The sampler counts a large object's growth in steps of one part in this: an object may grow page
// by page. Not measured.
inline constexpr size_t kChargeShare = 32;
// Bytes. The mean where gperftools' HeapProfilerStart turns the sampler on: gperftools' own. Not
// measured.
inline constexpr size_t kProfilerMean = 512 * 1024;
// Frames of a stack, and distinct stacks: 512 bytes a stack and 8 a frame. Not measured.
inline constexpr size_t kMaxFrames = 64, kMaxSites = 64 * 1024;
// Stacks that are recognised without a walk. docs/how/heap-profile.md.
inline constexpr size_t kRecentStacks = 64;
// Places of the first table of stacks, which doubles. Not measured.
inline constexpr size_t kFirstSiteSlots = 512;
// Frames of the allocator above its caller's: a walk that has not met the caller by then ends. Not
// measured.
inline constexpr unsigned kMaxSkippedFrames = 16;
// Bytes. A longer frame counts as a switch of stacks. Not measured.
inline constexpr uintptr_t kMaxFrameBytes = 1 << 20;

// --- where memory comes from

// Segments of the first region; a later one is as long as all before it. "Small processes".
inline constexpr unsigned kFirstSegments = 2;
// Segments of a region in a file, a device or the program's memory, which is scarcer than address
// space. Not measured.
inline constexpr unsigned kMaxWindowSegments = 8;
// The descriptors of a region of up to this many segments share system pages with other
// descriptors. Most processes need no more than the first region, of two. "Small processes".
inline constexpr unsigned kSharedTableSegments = 2;
// Bytes of address space for a file or device: the maximum, halved down to the minimum. Not
// measured.
inline constexpr size_t kMaxWindowBytes = size_t{256} << 30, kMinWindowBytes = size_t{64} << 20;
// Chunks that the program's source is asked for at once, at most: so that windows are few. Not
// measured.
inline constexpr size_t kMaxSourceChunks = 32;
// Bytes that are mapped for descriptors at once. Not measured.
inline constexpr size_t kMetaChunkBytes = 64 * 1024;

// --- waiting

// Looks at a lock before its waiter sleeps: a holder takes well under a microsecond. Not measured.
inline constexpr int kLockSpins = 64;
// Tries to take each lock for a fork whose signal handler interrupted a slow path: a holder may
// wait for that path. Not measured.
inline constexpr unsigned kForkTries = 50;
// Tries to enter the table of own mappings, whose holder may be interrupted code: the first
// kOwnYields yield, each later one sleeps a millisecond. Not measured.
inline constexpr int kOwnYields = 100, kOwnTries = 5000;
// Yields before grow_break() gives up, for the same reason. Not measured.
inline constexpr int kBreakTries = 10'000;
// Looks whether a thread has stopped, and nanoseconds between two: after kShortStopTries the longer
// pause, 5 s in all. Not measured.
inline constexpr int kStopTries = 50'000, kShortStopTries = 100;
inline constexpr long kShortStopPauseNs = 1000, kStopPauseNs = 100'000;
// Nanoseconds between two looks whether the tracer lives. Not measured.
inline constexpr long kTracerLookNs = 200'000'000;

// --- the leak checker

// Words of a stopped thread's registers; what is behind them is not searched. Not measured.
inline constexpr size_t kRegisterWords = 500;
// Bytes of the tracer's stack, and of address space for a stopped thread. Entries for threads that
// start meanwhile. Not measured.
inline constexpr size_t kTracerStackBytes = 64 * 1024, kStoppedThreadBytes = 8192;
inline constexpr size_t kSpareThreads = 64;
// Own mappings in the library's data; more take a mapping. Not measured.
inline constexpr size_t kFirstOwnMappings = 16;
// Mappings that are made while the heap is indexed. Not measured.
inline constexpr size_t kSpareMappings = 1024;
// Bytes at an ended thread's stack's end in which its descriptor is searched. Not measured.
inline constexpr size_t kDescriptorSearchBytes = size_t{4} << 20;
// System pages whose state is read at once. Not measured.
inline constexpr size_t kPagesARead = 512;
// Bytes of a file of suppressions. Not measured.
inline constexpr size_t kMaxSuppressionBytes = size_t{1} << 20;
// Profiles of one name; later ones are not written. Not measured.
inline constexpr unsigned kMaxProfilesOfAName = 1000;
// Sections and segments of an object file with symbols: a damaged one must not be read for long.
// Not measured.
inline constexpr size_t kMaxElfSections = 4096, kMaxElfSegments = 128;

// --- the hardened library

// Freed objects of a thread that stay in quarantine, and their bytes. Not measured.
inline constexpr uint32_t kQuarantined = 32;
inline constexpr size_t kQuarantineBytes = 256 * 1024;
// Up to here free clears an object without memset, which takes some 20 instructions more
// (callgrind). The bound itself is not measured.
inline constexpr size_t kClearedInline = 256;
// Freed mappings that stay unreadable. Not measured.
inline constexpr uint32_t kClosed = 8;

// --- reports

// Frames of a reported stack. Not measured.
inline constexpr unsigned kMaxReportedFrames = 32;
// The threshold for reports of large objects grows by one part in this, so that a program with many
// does not drown in lines. Not measured.
inline constexpr size_t kReportGrowthShare = 8;
// Characters of a text in a line, and of a refused value. Not measured.
inline constexpr size_t kMaxShownText = 200, kMaxShownValue = 60;

// --- others' interfaces

// A faster release counts as this. Not measured.
inline constexpr double kMaxReleaseRate = 1e6;
// Ranges of MallocExtension::Ranges() that the heap may grow by meanwhile. Not measured.
inline constexpr size_t kSpareRanges = 64;

}  // namespace larder
