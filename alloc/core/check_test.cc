// The checks find every violation, and no other.
#include "core/check.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/registry.h"
#include "larder/larder_malloc.h"

extern "C" void larder_check(void);

namespace larder {
namespace {

// A heap with current, partial and cached slabs, deferred frees, spans, and unowned slabs.
class Check : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 20000; ++i) objects_.push_back(larder_malloc(size_t(i) * 7 % 3000));
    for (size_t i = 0; i < objects_.size(); i += 2) larder_free(objects_[i]);
    larder_free(larder_malloc(100000));
    std::thread([this] {
      for (size_t i = 1; i < objects_.size(); i += 4) larder_free(objects_[i]);
      larder_check();
    }).join();
  }
  void TearDown() override {
    for (size_t i = 3; i < objects_.size(); i += 4) larder_free(objects_[i]);
    larder_check();
  }
  Slab* partial() {
    for (Bin& bin : thread_state.heap->bins)
      for (Slab* s = bin.partial.front(); s != nullptr; s = s->next)
        if (s->free != nullptr && next_of(s->free) != nullptr) return s;
    return nullptr;
  }

 private:
  std::vector<void*> objects_;
};

TEST_F(Check, AWholeHeapPasses) {
  ASSERT_NE(partial(), nullptr);
  larder_check();
}

TEST_F(Check, AWrongCountIsFound) { EXPECT_DEATH((++partial()->used, larder_check()), "used"); }

TEST_F(Check, AnObjectThatIsFreeTwiceIsFound) {
  EXPECT_DEATH((set_next(next_of(partial()->free), partial()->free), larder_check()), "word & bit");
}

TEST_F(Check, AnAddressWithinAnObjectIsFound) {
  EXPECT_DEATH((partial()->free = static_cast<char*>(static_cast<void*>(partial()->free)) + 4,
                larder_check()),
               "at % size_");
}

TEST_F(Check, AWrongSumOfCachedBytesIsFound) {
  EXPECT_DEATH((thread_state.heap->cache.empty_bytes += kPageBytes, larder_check()), "empty_bytes");
}

TEST_F(Check, ASlabThatNoListHasIsFound) {
  auto lose = [] {
    for (Bin& bin : thread_state.heap->bins) bin.partial = {};
    larder_check();
  };
  EXPECT_DEATH(lose(), "owned_known");
}

}  // namespace
}  // namespace larder
