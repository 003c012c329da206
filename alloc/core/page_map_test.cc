#include "core/page_map.h"

#include <gtest/gtest.h>

#include <memory>

namespace larder {
namespace {

char* page_address(uintptr_t page) { return reinterpret_cast<char*>(page << kPageShift); }

template <typename Map>
class PageMapTest : public testing::Test {
 protected:
  std::unique_ptr<Map> map = std::make_unique<Map>();
};
using Maps = testing::Types<PageMap<36, 1>, PageMap<48, 2>, PageMap<57, 3>>;
TYPED_TEST_SUITE(PageMapTest, Maps);

TYPED_TEST(PageMapTest, AbsentAddressesLeadToTheNullSlab) {
  EXPECT_EQ(this->map->find(nullptr), this->map->null_slab());
  EXPECT_EQ(this->map->find(page_address(TypeParam::kRootSize - 1)), this->map->null_slab());
  EXPECT_EQ(this->map->find_any(reinterpret_cast<void*>(~uintptr_t{0})), this->map->null_slab());
  EXPECT_EQ(this->map->null_slab()->owner(), kUnowned);
}

// If another variable on its page were written, free(NULL) on other processors would miss the
// cache.
TYPED_TEST(PageMapTest, TheNullSlabIsAloneInItsPages) {
  auto begin = reinterpret_cast<uintptr_t>(this->map->null_slab());
  EXPECT_EQ(begin % kLargestSystemPage, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(this->map.get() + 1) - begin, kLargestSystemPage);
}

TYPED_TEST(PageMapTest, EveryByteOfASpanLeadsToItsSlab) {
  auto slab = std::make_unique<Slab>();
  // Across the border of a leaf, if there are several.
  char* base = page_address(TypeParam::kLeafSize * (TypeParam::kRootBits == 0 ? 0 : 1) / 2);
  ASSERT_TRUE(this->map->make_tables(base, 5));
  this->map->set(base, 5, slab.get());
  EXPECT_EQ(this->map->find(base), slab.get());
  EXPECT_EQ(this->map->find(base + 5 * kPageBytes - 1), slab.get());
  EXPECT_EQ(this->map->find(base - 1), this->map->null_slab());
  EXPECT_EQ(this->map->find(base + 5 * kPageBytes), this->map->null_slab());
  this->map->set(base, 5, nullptr);
  EXPECT_EQ(this->map->find(base), this->map->null_slab());
}

TEST(PageMap, ARangeOverTwoLeavesHasBothTables) {
  using Map = PageMap<48, 2>;
  auto map = std::make_unique<Map>();
  auto slab = std::make_unique<Slab>();
  char* base = page_address(3 * Map::kLeafSize - 2);
  ASSERT_TRUE(map->make_tables(base, 4));
  map->set(base, 4, slab.get());
  EXPECT_EQ(map->find(base + 3 * kPageBytes), slab.get());
}

TEST(PageMap, AddressesBeyondItsWidthHaveNoTables) {
  auto map = std::make_unique<PageMap<36, 1>>();
  EXPECT_FALSE(map->make_tables(reinterpret_cast<void*>(uintptr_t{1} << 36), 1));
}

}  // namespace
}  // namespace larder
