// Every call of gperftools' interface to its malloc, from C++, checked by what it does to the heap.
// Compiled against Debian's own headers and against Larder's; run preloaded and linked.

#include <gperftools/malloc_extension.h>
#include <gperftools/nallocx.h>
#include <gperftools/tcmalloc.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../alloc/support.h"

using namespace alloctest;

namespace {

MallocExtension* extension() { return MallocExtension::instance(); }

size_t property(const char* name) {
  size_t value = SIZE_MAX;
  CHECK_MSG(extension()->GetNumericProperty(name, &value), "no property %s", name);
  return value;
}

// Blocks that are allocated here and freed at the end.
class Blocks {
 public:
  Blocks(size_t count, size_t size) : blocks_(count), bytes_(count * size) {
    for (auto& block : blocks_) {
      block = malloc(size);
      CHECK(block != nullptr);
      memset(block, 1, size);
    }
  }
  ~Blocks() { drop(); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  void drop() {
    for (auto& block : blocks_) free(block);
    std::vector<void*>().swap(blocks_);
  }
  size_t bytes() const { return bytes_; }
  void* operator[](size_t i) const { return blocks_[i]; }

 private:
  std::vector<void*> blocks_;
  size_t bytes_;
};

void check_between(const char* what, size_t value, size_t least, size_t most) {
  CHECK_MSG(value >= least && value <= most, "%s is %zu, not from %zu to %zu", what, value, least,
            most);
}

void check_instance(const char* owner_part) {
  CHECK(extension() != nullptr && extension() == MallocExtension::instance());
  MallocExtension::Initialize();
  // The class has its type: this asks the run time for it.
  CHECK(dynamic_cast<void*>(extension()) == extension());
  Dl_info owner = {};
  CHECK(dladdr(*reinterpret_cast<void**>(extension()), &owner) != 0);
  CHECK_MSG(strstr(owner.dli_fname, owner_part) != nullptr, "the instance belongs to %s",
            owner.dli_fname);
}

// In-use bytes follow the program's allocations, for small, large and huge blocks.
void check_in_use() {
  for (size_t size : {size_t{100}, size_t{100'000}, size_t{3} << 20}) {
    size_t count = (size_t{24} << 20) / size;
    const size_t before = property("generic.current_allocated_bytes");
    Blocks blocks(count, size);
    const size_t with = property("generic.current_allocated_bytes") - before;
    check_between("growth of generic.current_allocated_bytes", with, blocks.bytes(),
                  blocks.bytes() * 5 / 4);
    check_between("generic.heap_size", property("generic.heap_size"), before + blocks.bytes(),
                  size_t{1} << 40);
    check_between("generic.total_physical_bytes", property("generic.total_physical_bytes"),
                  before + blocks.bytes(), property("generic.heap_size") * 2);
    blocks.drop();
    const size_t after = property("generic.current_allocated_bytes");
    check_between("generic.current_allocated_bytes afterwards", after, 0, before + (1 << 20));
  }
}

// The parts of the heap add up to it.
void check_sums() {
  Blocks some(1000, 700);
  Blocks others(10, 200'000);
  const size_t parts =
      property("generic.current_allocated_bytes") + property("tcmalloc.thread_cache_free_bytes") +
      property("tcmalloc.central_cache_free_bytes") +
      property("tcmalloc.transfer_cache_free_bytes") + property("tcmalloc.slack_bytes");
  const size_t heap = property("generic.heap_size");
  check_between("the sum of the parts", parts, heap - heap / 50, heap + heap / 50);
  CHECK(property("tcmalloc.slack_bytes") ==
        property("tcmalloc.pageheap_free_bytes") + property("tcmalloc.pageheap_unmapped_bytes"));
  CHECK(property("tcmalloc.current_total_thread_cache_bytes") ==
        property("tcmalloc.thread_cache_free_bytes"));
  check_between("tcmalloc.pageheap_committed_bytes", property("tcmalloc.pageheap_committed_bytes"),
                property("generic.current_allocated_bytes"), heap);
}

void check_release() {
  {
    Blocks blocks(64, 512 * 1024);
  }
  extension()->ReleaseFreeMemory();
  const size_t given_back = property("tcmalloc.pageheap_total_decommit_bytes");
  const size_t calls = property("tcmalloc.pageheap_decommit_count");
  const size_t passes = property("tcmalloc.pageheap_scavenge_count");
  const size_t rss_before = rss_bytes();
  extension()->SetMemoryReleaseRate(0);
  {
    Blocks blocks(64, 512 * 1024);
  }
  check_between("free after a burst", property("tcmalloc.pageheap_free_bytes"), 24 << 20, 64 << 20);
  extension()->ReleaseToSystem(8 << 20);
  check_between("given back by ReleaseToSystem(8 MiB)",
                property("tcmalloc.pageheap_total_decommit_bytes") - given_back, 8 << 20, 31 << 20);
  extension()->ReleaseFreeMemory();
  check_between("free after ReleaseFreeMemory", property("tcmalloc.pageheap_free_bytes"), 0,
                1 << 20);
  check_between("resident after ReleaseFreeMemory", rss_bytes(), 0, rss_before + (2 << 20));
  CHECK(property("tcmalloc.pageheap_decommit_count") > calls);
  CHECK(property("tcmalloc.pageheap_scavenge_count") > passes);
  extension()->SetMemoryReleaseRate(1);
}

void check_rate() {
  CHECK(extension()->GetMemoryReleaseRate() == 1.0);
  extension()->SetMemoryReleaseRate(0.3);
  CHECK(extension()->GetMemoryReleaseRate() == 0.3);
  extension()->SetMemoryReleaseRate(-1);
  CHECK(extension()->GetMemoryReleaseRate() == 0);
  extension()->SetMemoryReleaseRate(1);
}

void check_properties() {
  size_t value = 12345;
  CHECK(!extension()->GetNumericProperty("tcmalloc.no_such_thing", &value) && value == 12345);
  CHECK(!extension()->GetNumericProperty("", &value));
  CHECK(!extension()->SetNumericProperty("generic.heap_size", 1));
  CHECK(!extension()->SetNumericProperty("tcmalloc.no_such_thing", 1));
  CHECK(property("tcmalloc.max_total_thread_cache_bytes") >= 16 << 20);
  CHECK(extension()->SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 3 << 20));
  CHECK(property("tcmalloc.max_total_thread_cache_bytes") == 3 << 20);
  CHECK(extension()->SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 1));
  CHECK(property("tcmalloc.max_total_thread_cache_bytes") == 512 << 10);
  CHECK(extension()->SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 16 << 20));
  CHECK(extension()->SetNumericProperty("tcmalloc.aggressive_memory_decommit", 1));
  CHECK(property("tcmalloc.aggressive_memory_decommit") == 1);
  CHECK(extension()->SetNumericProperty("tcmalloc.aggressive_memory_decommit", 0));
  for (const char* name :
       {"tcmalloc.pageheap_commit_count", "tcmalloc.pageheap_total_commit_bytes",
        "tcmalloc.pageheap_reserve_count", "tcmalloc.pageheap_total_reserve_bytes"})
    CHECK_MSG(property(name) > 0, "%s is 0", name);
}

void check_heap_limit() {
  const size_t now_mib = property("generic.heap_size") >> 20;
  CHECK(extension()->SetNumericProperty("tcmalloc.heap_limit_mb", now_mib + 100));
  CHECK(property("tcmalloc.heap_limit_mb") == now_mib + 100);
  errno = 0;
  void* refused = malloc(size_t{200} << 20);
  CHECK(refused == nullptr && errno == ENOMEM);
  void* granted = malloc(size_t{20} << 20);
  CHECK(granted != nullptr);
  free(granted);
  CHECK(extension()->SetNumericProperty("tcmalloc.heap_limit_mb", 0));
  granted = malloc(size_t{200} << 20);
  CHECK(granted != nullptr);
  free(granted);
}

// Other threads get a thread's cached memory after it has declared that it is idle.
void check_idle() {
  for (bool for_good : {true, false}) {
    std::thread([for_good] {
      {
        Blocks blocks(3000, 100);
      }
      const size_t kept = extension()->GetThreadCacheSize();
      check_between("the thread's free memory", kept, 100'000, 8 << 20);
      if (for_good)
        extension()->MarkThreadIdle();
      else
        extension()->MarkThreadTemporarilyIdle();
      CHECK(extension()->GetThreadCacheSize() == 0);
      extension()->MarkThreadBusy();
      Blocks again(3000, 100);
      for (size_t i = 0; i < 3000; ++i) memset(again[i], 2, 100);
    }).join();
  }
}

void check_sizes() {
  int on_stack = 0;
  static int global;
  for (size_t size : {1, 8, 100, 1000, 10'000, 40'000, 500'000, 5'000'000}) {
    void* p = malloc(size);
    CHECK(extension()->GetAllocatedSize(p) == malloc_usable_size(p));
    CHECK(extension()->GetAllocatedSize(p) >= size && tc_malloc_size(p) >= size);
    CHECK(extension()->GetEstimatedAllocatedSize(size) >= size);
    CHECK(nallocx(size, 0) == extension()->GetEstimatedAllocatedSize(size));
    CHECK(tc_nallocx(size, MALLOCX_LG_ALIGN(7)) % 128 == 0);
    CHECK(extension()->GetOwnership(p) == MallocExtension::kOwned);
    CHECK(extension()->VerifyMallocMemory(p) && extension()->VerifyNewMemory(p));
    CHECK(extension()->VerifyArrayNewMemory(p));
    CHECK(!extension()->VerifyMallocMemory(static_cast<char*>(p) + 1));
    free(p);
  }
  for (const void* p : {static_cast<const void*>(&on_stack), static_cast<const void*>(&global),
                        static_cast<const void*>(nullptr), reinterpret_cast<const void*>(~0ul)}) {
    CHECK(extension()->GetOwnership(p) == MallocExtension::kNotOwned);
    CHECK(extension()->GetAllocatedSize(p) == 0);
    CHECK(extension()->VerifyMallocMemory(p) == (p == nullptr));
  }
  CHECK(extension()->VerifyAllMemory());
}

void check_histogram() {
  int blocks_before = 0, blocks = 0, before[kMallocHistogramSize], now[kMallocHistogramSize];
  size_t total_before = 0, total = 0;
  Blocks warm(500, 3000);
  CHECK(extension()->MallocMemoryStats(&blocks_before, &total_before, before));
  Blocks some(500, 3000);
  CHECK(extension()->MallocMemoryStats(&blocks, &total, now));
  check_between("more blocks", size_t(blocks - blocks_before), 490, 600);
  check_between("more bytes", total - total_before, 490 * 3000, 600 * 3500);
  check_between("more in the class of 2 KiB to 4 KiB", size_t(now[11] - before[11]), 490, 600);
}

struct Gathered {
  size_t count, in_use, free;
  const void* wanted;
  bool found;
};

void gather(void* argument, const base::MallocRange* range) {
  auto* g = static_cast<Gathered*>(argument);
  ++g->count;
  CHECK(range->length > 0 && range->fraction >= 0 && range->fraction <= 1);
  (range->type == base::MallocRange::INUSE ? g->in_use : g->free) += range->length;
  const auto p = reinterpret_cast<uintptr_t>(g->wanted);
  if (p - range->address < range->length) {
    g->found = true;
    CHECK(range->type == base::MallocRange::INUSE && range->fraction > 0);
  }
  free(malloc(50));  // a callback may allocate
}

void check_ranges() {
  Blocks blocks(100, 100'000);
  Gathered g = {0, 0, 0, blocks[50], false};
  extension()->Ranges(&g, gather);
  CHECK(g.found);
  check_between("bytes in use by ranges", g.in_use, blocks.bytes(), property("generic.heap_size"));
  check_between("ranges", g.count, 100, 100'000);
}

void check_texts() {
  std::vector<char> page(1 << 14, 'x');
  extension()->GetStats(page.data(), int(page.size()));
  const std::string text(page.data());
  for (const char* line : {"Bytes in use by application", "Bytes in page heap freelist",
                           "Actual memory used (physical + swap)"})
    CHECK_MSG(text.find(line) != std::string::npos, "GetStats does not say '%s'", line);
  char small[8] = "zzzzzzz";
  extension()->GetStats(small, 5);
  CHECK(strlen(small) == 4 && strncmp(small, text.c_str(), 4) == 0 && small[5] == 'z');

  // Strings of every length before it grows: within the object, and beyond.
  for (size_t length : {0, 15, 16, 200}) {
    std::string sample(length, 's'), growth(length, 'g');
    extension()->GetHeapSample(&sample);
    extension()->GetHeapGrowthStacks(&growth);
    CHECK(sample.size() > length && sample.substr(0, length) == std::string(length, 's'));
    CHECK(sample.compare(length, 14, "heap profile: ") == 0);
    CHECK(sample.find("\nMAPPED_LIBRARIES:\n") != std::string::npos);
    CHECK(growth.size() > length && growth.substr(0, length) == std::string(length, 'g'));
    sample += " and it can be added to";
    CHECK(strlen(sample.c_str()) == sample.size());
  }
}

// Bytes of all stacks, each an entry of count, size, depth and the addresses; ends with the array.
size_t bytes_of(void** stacks) {
  CHECK(stacks != nullptr);
  size_t bytes = 0;
  for (void** at = stacks; *at != nullptr;) {
    auto depth = reinterpret_cast<uintptr_t>(at[2]);
    CHECK(at[1] != nullptr && depth <= 64);
    bytes += reinterpret_cast<uintptr_t>(at[1]);
    for (size_t i = 0; i < depth; ++i) CHECK(at[3 + i] != nullptr);
    at += 3 + depth;
  }
  delete[] stacks;
  return bytes;
}

void check_stacks() {
  int period = -1;
  size_t in_use = bytes_of(extension()->ReadStackTraces(&period));
  CHECK(period == 1);
  size_t growth = bytes_of(extension()->ReadHeapGrowthStackTraces());
  // Large enough that each is sampled.
  Blocks blocks(16, 8 << 20);
  check_between("growth of the stacks' bytes",
                bytes_of(extension()->ReadStackTraces(&period)) - in_use, blocks.bytes(),
                blocks.bytes() + kMiB);
  check_between("growth", bytes_of(extension()->ReadHeapGrowthStackTraces()) - growth,
                blocks.bytes(), blocks.bytes() + kMiB);
  std::string text;
  extension()->GetHeapGrowthStacks(&text);
  CHECK(text.find("] @ growthz\n") != std::string::npos);
  CHECK(text.find("\n16: 1342177") != std::string::npos);
  blocks.drop();
  check_between("growth that is no more", bytes_of(extension()->ReadHeapGrowthStackTraces()), 0,
                growth + kMiB);
}

void check_free_lists() {
  std::vector<MallocExtension::FreeListInfo> lists;
  extension()->GetFreeListSizes(&lists);
  size_t free_bytes = 0;
  for (const auto& list : lists) {
    CHECK(strncmp(list.type, "tcmalloc.", 9) == 0);
    CHECK(list.min_object_size <= list.max_object_size);
    free_bytes += list.total_bytes_free;
  }
  const size_t sum = property("tcmalloc.slack_bytes") +
                     property("tcmalloc.thread_cache_free_bytes") +
                     property("tcmalloc.central_cache_free_bytes");
  check_between("free lists", free_bytes, sum - (1 << 19), sum + (1 << 19));
  lists.push_back({1, 2, 3, "mine"});
  CHECK(lists.back().total_bytes_free == 3);
}

class OwnExtension : public MallocExtension {
 public:
  size_t GetEstimatedAllocatedSize(size_t) override { return 77; }
};

// A class of a program's own derives from it, and changes nothing.
void check_derived() {
  auto own = std::make_unique<OwnExtension>();
  MallocExtension* before = extension();
  MallocExtension::Register(own.get());
  CHECK(extension() == before);
  CHECK(static_cast<MallocExtension*>(own.get())->GetEstimatedAllocatedSize(5) == 77);
  CHECK(own->GetMemoryReleaseRate() == 1.0);
}

int handler_calls;
void give_up_later() {
  if (++handler_calls == 3) throw std::bad_alloc();
}

void check_family() {
  int major = 0, minor = 0;
  const char* patch = nullptr;
  CHECK(strcmp(tc_version(&major, &minor, &patch), TC_VERSION_STRING) == 0);
  CHECK(major == TC_VERSION_MAJOR && minor == TC_VERSION_MINOR && strcmp(patch, "") == 0);
  CHECK(tc_version(nullptr, nullptr, nullptr) != nullptr);
  // Any thread may free it.
  free(tc_malloc(10));
  tc_free(malloc(10));
  tc_cfree(tc_calloc(3, 7));
  tc_free_sized(tc_realloc(tc_malloc(5), 5000), 5000);
  tc_free(tc_malloc_skip_new_handler(1));
  tc_free(tc_valloc(10));
  tc_free(tc_pvalloc(10));
  CHECK(is_aligned(tc_memalign(256, 10), 256));
  void* p = nullptr;
  CHECK(tc_posix_memalign(&p, 64, 100) == 0 && is_aligned(p, 64));
  CHECK(tc_posix_memalign(&p, 3, 100) == EINVAL);
  CHECK(tc_calloc(SIZE_MAX / 2, 3) == nullptr && errno == ENOMEM);
  delete static_cast<char*>(tc_new(1));
  tc_delete(::operator new(8));
  tc_delete_sized(tc_new(9), 9);
  tc_delete_nothrow(tc_new_nothrow(9, std::nothrow), std::nothrow);
  tc_deletearray(tc_newarray(9));
  tc_deletearray_sized(tc_newarray(9), 9);
  tc_deletearray_nothrow(tc_newarray_nothrow(9, std::nothrow), std::nothrow);
  const auto align = std::align_val_t(512);
  p = tc_new_aligned(9, align);
  CHECK(is_aligned(p, 512));
  tc_delete_aligned(p, align);
  tc_delete_sized_aligned(tc_new_aligned(9, align), 9, align);
  tc_delete_aligned_nothrow(tc_new_aligned_nothrow(9, align, std::nothrow), align, std::nothrow);
  tc_deletearray_aligned(tc_newarray_aligned(9, align), align);
  tc_deletearray_sized_aligned(tc_newarray_aligned(9, align), 9, align);
  tc_deletearray_aligned_nothrow(tc_newarray_aligned_nothrow(9, align, std::nothrow), align,
                                 std::nothrow);
  CHECK(tc_mallinfo().uordblks != 0);
  CHECK(tc_mallopt(-12345, 1) == 0);
  tc_malloc_stats();
}

template <typename Call>
void check_throws(Call call) {
  bool thrown = false;
  try {
    call();
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown);
}

void check_new_mode() {
  constexpr size_t kTooMuch = size_t{1} << 46;
  check_throws([] { tc_new(kTooMuch); });
  check_throws([] { tc_newarray_aligned(kTooMuch, std::align_val_t(64)); });
  CHECK(tc_new_nothrow(kTooMuch, std::nothrow) == nullptr);
  std::set_new_handler(give_up_later);
  CHECK(tc_malloc(kTooMuch) == nullptr && handler_calls == 0);
  CHECK(tc_set_new_mode(1) == 0);
  CHECK(tc_malloc(kTooMuch) == nullptr && errno == ENOMEM && handler_calls == 3);
  CHECK(tc_malloc_skip_new_handler(kTooMuch) == nullptr && handler_calls == 3);
  handler_calls = 0;
  void* p = nullptr;
  CHECK(tc_posix_memalign(&p, 64, kTooMuch) == ENOMEM && handler_calls == 3);
  handler_calls = 0;
  CHECK(tc_posix_memalign(&p, 3, 100) == EINVAL && handler_calls == 0);
  CHECK(tc_realloc(nullptr, kTooMuch) == nullptr && handler_calls == 3);
  CHECK(tc_set_new_mode(0) == 1);
  std::set_new_handler(nullptr);
}

}  // namespace

// gperftools_calls [PART]: a part of the expected library's name; liblarder by default.
int main(int argc, char** argv) {
  test_name = "gperftools_calls";
  watchdog();
  check_instance(argc > 1 ? argv[1] : "liblarder");
  check_rate();
  check_in_use();
  check_sums();
  check_release();
  check_properties();
  check_heap_limit();
  check_idle();
  check_sizes();
  check_histogram();
  check_ranges();
  check_texts();
  check_stacks();
  check_free_lists();
  check_derived();
  check_family();
  check_new_mode();
  say("every call does what it says");
  return 0;
}
