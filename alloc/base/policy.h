// Every constant that could be another number without the allocator being wrong: its unit, why it
// is so, and the experiment that chose it (docs/how/experiments.md, by heading; "not measured"
// where there was none). What a user may set is in os/options.cc instead; what the structures are
// made of, in base/base.h and base/size_class.h.
#pragma once

#include "base/base.h"

namespace larder {

// --- slabs

// Bytes: a slab is carved, and touched, by so much at a time. A page: what is not carved costs no
// memory. Not measured.
inline constexpr size_t kCarveBytes = 4096;
// Objects that a class without a slab borrows from the next larger classes before it gets one, so
// that a program that uses many classes a little touches few pages. "Small processes".
inline constexpr uint8_t kMaxFallbackObjects = 32;
// Freed objects of a class that a heap holds for the next malloc, while their slabs count them as
// in use: so many bytes of them, within these counts. "Full slabs that get one object back".
inline constexpr uint32_t kDeferBytes = 16 * 1024, kMinDeferred = 4, kMaxDeferred = 64;
// Slabs that became full and that a heap still counts as its own, so that the first free in one
// takes no atomic operation; and their bytes. "Full slabs that get one object back".
inline constexpr size_t kMaxFull = 64, kMaxFullBytes = 512 * 1024;
// Slabs adopted beyond those that the class needed, after which slabs are passed on to those who
// allocate. "Heaps that only free".
inline constexpr unsigned kIdleAdoptions = 8;
// A shrink by realloc stays in place unless it saves more than this share: a copy is dearer. Not
// measured.
inline constexpr size_t kShrinkShare = 4;

// --- what heaps keep

// Pages: longer spans go to the page heap at once. "Large blocks".
inline constexpr unsigned kMaxCachedSpanPages = 32;
// A kept span serves a request that is shorter by this share at most: what is kept for one size
// must not add to the peak of another. Not measured.
inline constexpr unsigned kSpanFitShare = 4;
// Bytes that all heaps may keep beyond LARDER_HEAP_EMPTY_KIB each: as much as they turn over.
// "What a heap keeps".
inline constexpr size_t kCacheExtraBytes = size_t{16} << 20;
// Bytes of slabs that a heap has emptied without needing one, after which it gives back pages of
// its partial slabs; for one part in kSlabPurgeShare of the process's time, of which so much is
// done at once and so much saved up, in microseconds. "Small processes".
inline constexpr size_t kSlabPurgeAfterBytes = size_t{4} << 20;
inline constexpr uint64_t kSlabPurgeShare = 32, kSlabPurgeMinUs = 250, kSlabPurgeMaxUs = 20'000;
// Heaps that wait for a thread keep what they own: bytes each, and all together. "Threads that come
// and go".
inline constexpr size_t kWaitingBytes = 512 * 1024, kAllWaitingBytes = size_t{12} << 20;
// Heaps that threads share, one a processor. Bounds a table; no machine had more when it was
// chosen.
inline constexpr unsigned kMaxShared = 256;
// Milliseconds between two searches for heaps of threads that have ended unnoticed: a system call a
// thread. Not measured.
inline constexpr uint64_t kSearchMs = 100;

// --- frees of other threads' objects

// Bytes that a heap collects for other owners before it hands some over. Not measured; how many
// slabs at a time (RemoteCache::kSlots) is: "Frees of other threads' objects".
inline constexpr size_t kPendingBytes = 256 * 1024;
// Of one slab: so many bytes, within these counts of objects. Not measured.
inline constexpr size_t kPushBytes = 16 * 1024, kMinPushed = 16, kMaxPushed = 128;

// --- large objects

// Freed mappings that are kept, and bytes below which a piece is not worth a place among them.
// "Large blocks" chose that they are kept; these numbers are not measured.
inline constexpr int kMaxCachedMappings = 128;
inline constexpr size_t kMinCachedBytes = 64 * 1024;
// Mapped may be so many halves of the most that was ever in use. "Large blocks": 5/4 faults more, 2
// no less.
inline constexpr size_t kMappedHalves = 3;
// A block that had to move is given one part in this of room, as it will grow again: small steps
// then cost O(log size) copies. "Large blocks".
inline constexpr size_t kGrowShare = 8;
// The mapping freed last serves a request that leaves at most one part in this unused. Not
// measured.
inline constexpr size_t kLastFreedFitShare = 8;
// A tail is cut off a block that shrinks if it is more than one part in this: it may grow again.
// Not measured.
inline constexpr size_t kTailShare = 4;

// --- memory back to the system

// Milliseconds between two looks at what has been free for long enough. Not measured.
inline constexpr uint64_t kTickMs = 100;
// When at most kNearlyEmptyBytes bytes are in use, of a process whose heaps were never more than
// kEarlyMaxThreads and which has at least kEarlyMinBytes free, memory goes without waiting for its
// decay. What goes early may have to come back at a page fault a page: no more goes than the
// process ever had in use, plus so many bytes a millisecond, which bounds the time for it to about
// two hundredths. "Small processes".
inline constexpr size_t kEarlyMinBytes = size_t{8} << 20, kNearlyEmptyBytes = size_t{2} << 20;
inline constexpr int64_t kEarlyMaxThreads = 2;
inline constexpr size_t kEarlyBytesPerMs = 32 << 10;
// Near a limit: work is done as soon as it gives back so many bytes, or so many milliseconds have
// passed; and down to a part in kPressedShare below the limit. Not measured.
inline constexpr uint64_t kPressedTickMs = 10;
inline constexpr size_t kPressedBytes = size_t{1} << 20, kPressedShare = 16;

// --- samples

// Bytes from one look at the mean, and at the budget, to the next; and where nothing is sampled.
// docs/how/heap-profile.md.
inline constexpr size_t kCheckBytes = size_t{8} << 20, kCheckBytesIfOff = size_t{1} << 20;
// The budget of a heap in samples, each of about 0.3 us: so many a millisecond, so many saved up,
// so many to begin with, are a thousandth of its time; a walk of the stack counts as kStackWalkCost
// of them. docs/how/heap-profile.md.
inline constexpr uint32_t kBudgetPerMs = 4, kMaxBudget = 320, kFirstBudget = 160,
                          kStackWalkCost = 8;
// Bytes: who asks for a smaller mean wants every sample, whatever it costs.
inline constexpr size_t kPacedMean = 256 * 1024;
// The mean is so many times as large when less than a quarter of the budget is left, and a
// sixteenth.
inline constexpr uint32_t kPaceLow = 4, kPaceEmpty = 32;
// A mark is first lost with a chance of one to so many where the budget is spent.
// docs/how/heap-profile.md.
inline constexpr uint32_t kFirstDropOdds = 64;
// Frames of a stack, and stacks that are told apart: 512 bytes a stack and 8 a frame.
inline constexpr size_t kMaxFrames = 64, kMaxSites = 64 * 1024;
// Stacks that a walk may be spared by: those of the last callers. docs/how/heap-profile.md.
inline constexpr size_t kRecentStacks = 64;

// --- where memory comes from

// Blocks of a region whose table shares pages with other descriptors: most processes need no more
// than the first region, of two. "Small processes".
inline constexpr unsigned kSharedTableSegments = 2;
// Bytes of address space that a file or device is mapped to: as much as there is, down to the
// least.
inline constexpr size_t kMaxWindowBytes = size_t{256} << 30, kMinWindowBytes = size_t{64} << 20;

}  // namespace larder
