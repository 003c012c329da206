// Each freed object is in one place, and none in use is in any.
#include "core/free_memory.h"

#include <gtest/gtest.h>

#include <thread>
#include <unordered_map>
#include <vector>

#include "larder/larder_malloc.h"

namespace larder {
namespace {

// How often each object of a slab was met, in which place last.
struct Walk {
  struct Met {
    int times;
    Place place;
  };
  std::unordered_map<const void*, Met> objects;
  size_t of[int(Place::kMapping) + 1] = {};  // bytes

  Walk() {
    for_each_free([this](const void* at, size_t bytes, Place place) {
      of[int(place)] += bytes;
      if (place < Place::kCachedPages) objects[at] = {objects[at].times + 1, place};
    });
  }
  int times(const void* p) const {
    auto met = objects.find(p);
    return met == objects.end() ? 0 : met->second.times;
  }
};

std::vector<void*> allocate(size_t size, int count) {
  std::vector<void*> objects;
  for (int i = 0; i < count; ++i) objects.push_back(larder_malloc(size));
  return objects;
}

TEST(FreeMemory, EachFreedObjectIsInOnePlaceAndNoneInUseIsInAny) {
  std::vector<void*> freed, in_use;
  for (size_t size : {8, 64, 200, 3000, 20000}) {
    std::vector<void*> objects = allocate(size, 3000);
    // Frees of the current slab, of partial ones, and by another thread. The rest stays in use.
    for (size_t i = 0; i < objects.size(); ++i) (i % 3 != 0 ? freed : in_use).push_back(objects[i]);
  }
  std::thread other([&] {
    for (size_t i = 1; i < freed.size(); i += 2) larder_free(freed[i]);
    void* mine = larder_malloc(64);
    Walk walk;
    EXPECT_GT(walk.of[int(Place::kPending)] + walk.of[int(Place::kRemote)], 0u);
    larder_free(mine);
  });
  other.join();
  for (size_t i = 0; i < freed.size(); i += 2) larder_free(freed[i]);
  Walk walk;
  size_t elsewhere = 0;  // whose slabs are empty, and gone
  for (void* p : freed) {
    ASSERT_LE(walk.times(p), 1);
    if (walk.times(p) == 1) continue;
    const Slab* s = page_map.find(p);
    ASSERT_TRUE(s->kind != Kind::kSlab ||
                p >= s->base + s->carved * kSizeClasses.size[s->size_class]);
    ++elsewhere;
  }
  EXPECT_LT(elsewhere, freed.size() / 2);
  for (void* p : in_use) ASSERT_EQ(walk.times(p), 0);
  for (void* p : in_use) larder_free(p);
}

TEST(FreeMemory, AnObjectMovesFromPlaceToPlace) {
  void* p = larder_malloc(48);
  EXPECT_EQ(Walk().times(p), 0);
  larder_free(p);
  EXPECT_EQ(Walk().objects[p].place, Place::kHeads);
  EXPECT_EQ(larder_malloc(48), p);
  std::thread([p] {
    larder_free(larder_malloc(48));
    larder_free(p);
    EXPECT_EQ(Walk().objects[p].place, Place::kPending);
  }).join();
  EXPECT_EQ(Walk().objects[p].place, Place::kRemote);
}

TEST(FreeMemory, PagesAndMappingsAreFoundByTheirState) {
  constexpr size_t kSpan = 200'000, kHuge = 5'000'000;
  void *span = larder_malloc(kSpan), *huge = larder_malloc(kHuge);
  Walk before;
  larder_free(span);
  larder_free(larder_malloc(2 * kSpan));
  EXPECT_GE(Walk().of[int(Place::kCachedPages)], before.of[int(Place::kCachedPages)] + kSpan);
  larder_free(huge);
  larder_free(larder_malloc(kHuge / 2));
  larder_free(larder_malloc(3 * kHuge));
  EXPECT_GE(Walk().of[int(Place::kMapping)], before.of[int(Place::kMapping)] + kHuge / 2);
  larder_release_free_memory();
  Walk after;
  EXPECT_EQ(after.of[int(Place::kMapping)] + after.of[int(Place::kDirtyPages)], 0u);
  EXPECT_GT(after.of[int(Place::kCleanPages)], before.of[int(Place::kCleanPages)]);
}

}  // namespace
}  // namespace larder
