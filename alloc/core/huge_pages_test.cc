// Which segments the page heap wants huge pages for. What the kernel was told is read from its list
// of mappings.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/policy.h"
#include "core/page_heap_test.h"
#include "os/options.h"
#include "tests/clock.h"

namespace larder {
namespace {

constexpr unsigned kSpanPages = 16;
constexpr size_t kSpanBytes = kSpanPages * kPageBytes;
constexpr int kSpansOfSegment = kPagesPerSegment / kSpanPages;

// The kernel's flags for the mapping at `at`: "hg" asked for huge pages, "nh" forbade them.
bool kernel_was_told(const char* flag, const void* at) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream head(line);
    if (head >> std::hex >> begin >> dash >> end && dash == '-')
      here = begin <= uintptr_t(at) && uintptr_t(at) < end;
    if (here && line.rfind("VmFlags:", 0) == 0)
      return (line + " ").find(" " + std::string(flag) + " ") != std::string::npos;
  }
  return false;
}

// Not one without transparent huge pages.
bool kernel_takes_requests() {
  void* memory = os::map_aligned(kSegmentBytes, kSegmentBytes);
  bool takes = os::ask_for_huge_pages(memory, kSegmentBytes);
  os::unmap(memory, kSegmentBytes);
  return takes;
}

class HugePages : public PageHeapTest {
 protected:
  std::vector<Slab*> spans;
  const bool system_has_them = kernel_takes_requests();

  void SetUp() override { test_clock::stop(); }
  void TearDown() override {
    for (Slab* span : spans) heap->free_span(span, span->bytes);
    purge(UINT64_MAX);
    heap->check();
    set_option(Option::kHugePages, 1);
    test_clock::go_on();
  }

  // Spans of slabs.
  void grow(size_t bytes) {
    for (size_t grown = 0; grown < bytes; grown += kSpanBytes) {
      Slab* span = heap->alloc_span(kSpanPages, 1, Kind::kSlab);
      ASSERT_NE(span, nullptr);
      spans.push_back(span);
    }
  }

  // `count` of its spans.
  void free_spans(Segment* segment, int count) {
    for (size_t i = 0; i < spans.size() && count > 0;) {
      if (spans[i]->segment != segment) {
        ++i;
        continue;
      }
      heap->free_span(spans[i], kSpanBytes);
      spans.erase(spans.begin() + long(i));
      --count;
    }
    ASSERT_EQ(count, 0);
  }

  size_t asked() {
    size_t count = 0;
    heap->for_each([&](const PageRange& pages) {
      bool begins = pages.base == pages.segment->base;
      if (begins && pages.segment->huge == Huge::kAsked) ++count;
    });
    return count;
  }
};

TEST_F(HugePages, AHeapThatGrowsFastHasThemOnceItIsLarge) {
  grow(kHugeHeapBytes - kSpanBytes);
  EXPECT_EQ(asked(), 0u);
  grow(kSpanBytes + 16 * kSegmentBytes);  // the first of them is full
  EXPECT_EQ(asked(), system_has_them ? 17u : 0u);
  EXPECT_EQ(kernel_was_told("hg", spans.back()->base), system_has_them);
  EXPECT_FALSE(kernel_was_told("hg", spans.front()->base));
  heap->check();
}

TEST_F(HugePages, NoneIfTheOptionSaysSo) {
  set_option(Option::kHugePages, 0);
  grow(kHugeHeapBytes + 16 * kSegmentBytes);
  EXPECT_EQ(asked(), 0u);
}

TEST_F(HugePages, OfAHeapThatGrowsSlowlyOnlyFullSegments) {
  grow(kHugeHeapBytes - kSpanBytes);
  test_clock::pass_ms(kHugeGrowthMs);
  grow(kSegmentBytes);
  EXPECT_EQ(asked(), system_has_them ? 1u : 0u) << "what is full by now";
  EXPECT_EQ(spans.back()->segment->huge, Huge::kUnasked);
  grow(kSpanBytes);
  EXPECT_EQ(spans.back()->segment->huge, system_has_them ? Huge::kAsked : Huge::kUnasked);
}

TEST_F(HugePages, ALongSpanOpensNone) {
  grow(kHugeHeapBytes);
  Slab* span = heap->alloc_span(100, 1, Kind::kSpan);
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(span->segment->huge, Huge::kUnasked);
  heap->free_span(span, 0);
}

TEST_F(HugePages, WhereTheyAreSlowTheyWait) {
  grow(kHugeHeapBytes + kSegmentBytes);
  // Each takes this long, as the clock is read before and after.
  test_clock::stop(2 * kSlowHugeUs);
  grow(kSegmentBytes);
  EXPECT_EQ(spans.back()->segment->huge, system_has_them ? Huge::kAsked : Huge::kUnasked);
  grow(kSpanBytes);
  EXPECT_EQ(spans.back()->segment->huge, Huge::kUnasked);
  test_clock::pass_ms(2 * kSlowHugeUs * kHugeShare / 1000);
  grow(kSegmentBytes);
  EXPECT_EQ(spans.back()->segment->huge, system_has_them ? Huge::kAsked : Huge::kUnasked);
}

TEST_F(HugePages, ADenseOneIsNotSplitASparseOneIs) {
  if (!system_has_them) set_option(Option::kHugePages, 0);
  grow(kHugeHeapBytes + 2 * kSegmentBytes);
  Segment* segment = spans.back()->segment;
  ASSERT_EQ(segment->huge, system_has_them ? Huge::kAsked : Huge::kUnasked);
  // Less than one part in eight.
  Slab* last = spans.back();
  heap->shrink_span(last, kSpanPages / 2);
  test_clock::pass_ms(60'000);
  EXPECT_EQ(purge(os::now_ms() - 1000), system_has_them ? 0u : kSpanPages / 2);
  EXPECT_EQ(segment->huge, system_has_them ? Huge::kAsked : Huge::kUnasked);

  free_spans(segment, kSpansOfSegment - 1);
  test_clock::pass_ms(60'000);
  EXPECT_GE(purge(os::now_ms() - 1000), size_t(kSpansOfSegment - 1) * kSpanPages);
  EXPECT_EQ(segment->huge, system_has_them ? Huge::kForbidden : Huge::kUnasked);
  EXPECT_EQ(kernel_was_told("nh", segment->base), system_has_them);
  EXPECT_FALSE(kernel_was_told("hg", segment->base));
}

TEST_F(HugePages, ADenseOneIsSplitIfAllMemoryIsWanted) {
  grow(kHugeHeapBytes + 2 * kSegmentBytes);
  heap->shrink_span(spans.back(), kSpanPages / 2);
  EXPECT_EQ(purge(UINT64_MAX), kSpanPages / 2);
}

TEST_F(HugePages, PartsOfASpanAreDiscardedFromSmallPages) {
  grow(kHugeHeapBytes + 2 * kSegmentBytes);
  Slab* last = spans.back();
  heap->forbid_huge_pages(last->segment);
  EXPECT_EQ(last->segment->huge, system_has_them ? Huge::kForbidden : Huge::kUnasked);
  EXPECT_EQ(kernel_was_told("nh", last->base), system_has_them);
  heap->check();
}

}  // namespace
}  // namespace larder
