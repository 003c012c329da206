#include "core/misuse.h"

#include <gtest/gtest.h>
#include <string.h>

#include <thread>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "larder/larder_malloc.h"
#include "tests/clock.h"

namespace larder {
namespace {

// So that the object is not the one that malloc returned last.
void* object_of(size_t bytes) {
  void* p = larder_malloc(bytes);
  larder_free(larder_malloc(bytes * 2));
  return p;
}

TEST(Misuse, ADoubleFreeIsReportedWhereverTheObjectWaits) {
  EXPECT_DEATH(
      {
        void* p = object_of(48);
        larder_free(p);
        larder_free(p);
      },
      "larder: free\\(0x[0-9a-f]+\\): double free, an object of 48 bytes \\(thread [0-9]+\\)");
  EXPECT_DEATH(
      {
        void* last = larder_malloc(48);
        larder_free(last);
        larder_free(last);
      },
      "double free");
  EXPECT_DEATH(
      {
        void* p = object_of(48);
        std::thread([p] { larder_free(p); }).join();
        larder_free(p);
      },
      "double free");
  EXPECT_DEATH(
      {
        void* p = object_of(48);
        larder_free(p);
        std::thread([p] { larder_free(p); }).join();
      },
      "double free");
}

bool is_sampled(const void* p) { return page_map.find(p)->kind == Kind::kSampled; }

// A list ends before a free slot with a sample point, and continues behind it.
TEST(Misuse, ADoubleFreeIsReportedBehindASamplePoint) {
  EXPECT_DEATH(
      {
        set_sample_mean(4096);
        void* p = larder_malloc(3000);
        void* sampled = larder_malloc(3000);
        while (is_sampled(p) || !is_sampled(sampled))
          p = std::exchange(sampled, larder_malloc(3000));
        larder_free(p);
        larder_free(sampled);
        std::thread([p] { larder_free(p); }).join();
      },
      "double free, an object of 3072 bytes");
}

TEST(Misuse, AnAddressWithinAnObjectIsReported) {
  for (size_t bytes : {8, 48, 3000, 100'000, 4'000'000}) {
    auto* p = static_cast<char*>(object_of(bytes));
    EXPECT_DEATH(larder_free(p + 1), "invalid pointer, no object begins there") << bytes;
    EXPECT_DEATH((void)!larder_realloc(p + 1, 10), "invalid pointer") << bytes;
    larder_free(p);
  }
}

// Whatever an object in use has in its first word, it is freed.
TEST(Misuse, ContentThatLooksLikeALinkIsNone) {
  std::vector<void*> objects;
  for (int i = 0; i < 100; ++i) objects.push_back(larder_malloc(64));
  void* free_object = objects.back();
  objects.pop_back();
  larder_free(free_object);
  for (size_t i = 0; i < objects.size(); ++i) {
    set_next(objects[i], i % 3 == 0   ? nullptr
                         : i % 3 == 1 ? free_object
                                      : objects[(i + 1) % objects.size()]);
    ASSERT_TRUE(has_link(objects[i]));
  }
  Slab* s = page_map.find(objects[0]);
  EXPECT_TRUE(looks_misused(objects[0], s));
  EXPECT_FALSE(misused("free", Misuse::kDoubleFree, objects[0], s));
  std::thread([&] {
    for (size_t i = 0; i < objects.size(); i += 2) larder_free(objects[i]);
  }).join();
  for (size_t i = 1; i < objects.size(); i += 2) larder_free(objects[i]);
}

TEST(Misuse, ASearchInVainDelaysTheNext) {
  test_clock::stop();
  test_clock::pass_ms(60'000);  // what a search of another test delays
  void* in_use = object_of(48);
  set_next(in_use, nullptr);
  void* freed = object_of(48);
  larder_free(freed);
  EXPECT_FALSE(misused("free", Misuse::kDoubleFree, in_use, page_map.find(in_use)));
  EXPECT_FALSE(misused("free", Misuse::kDoubleFree, freed, page_map.find(freed)));
  test_clock::pass_ms(1);
  EXPECT_DEATH(misused("free", Misuse::kDoubleFree, freed, page_map.find(freed)), "double free");
  larder_free(in_use);
}

TEST(Misuse, WhatMallocReturnsHasNoLink) {
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<void*> objects;
    for (int i = 0; i < 2000; ++i) {
      objects.push_back(larder_malloc(32));
      ASSERT_FALSE(has_link(objects.back()));
    }
    std::thread([&] {
      for (size_t i = 0; i < objects.size(); i += 2) larder_free(objects[i]);
    }).join();
    for (size_t i = 1; i < objects.size(); i += 2) larder_free(objects[i]);
  }
}

// A class's size is that of several requests.
TEST(Misuse, EachSizeFitsItsOwnAllocation) {
  for (size_t bytes = 1; bytes <= size_t{4} << 20; bytes += 1 + bytes / 7) {
    void* p = larder_malloc(bytes);
    const Slab* s = page_map.find(p);
    EXPECT_TRUE(has_class_of(s, bytes) || size_fits(s, bytes)) << bytes;
    EXPECT_FALSE(has_class_of(s, bytes * 3 + 64) || size_fits(s, bytes * 3 + 64)) << bytes;
    larder_free(p);
  }
}

}  // namespace
}  // namespace larder
