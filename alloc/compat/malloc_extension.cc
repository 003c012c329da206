// gperftools' interface to its malloc (include/gperftools/malloc_extension.h,
// malloc_extension_c.h).
//
// Owns nothing but the one instance. A C program comes here only through the C functions. C++
// symbols are weak; strings and vectors are written in the layout of libstdc++ since 2015, because
// a program may have its own copy of libstdc++, which exports nothing.

#pragma GCC visibility push(default)
#include "gperftools/malloc_extension.h"

#include "base/policy.h"
#include "gperftools/malloc_extension_c.h"
#include "gperftools/nallocx.h"
#pragma GCC visibility pop

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/guard.h"
#include "core/page_heap.h"
#include "core/purge.h"
#include "core/sampler.h"
#include "core/thread_heap.h"
#include "os/backing.h"
#include "os/mapped_text.h"
#include "os/options.h"
#include "os/os.h"
#include "sample/profile.h"
#include "sample/profile_growth.h"
#include "sample/site.h"
#include "statistics/heap_walk.h"
#include "statistics/properties.h"

__asm__(".weak _ZTVN10__cxxabiv117__class_type_infoE");
__asm__(".weak _ZTVN10__cxxabiv120__si_class_type_infoE");
__asm__(".weak __cxa_pure_virtual");

using namespace larder;

namespace {

// libstdc++'s std::string.
struct String {
  char* data;
  size_t length;
  union {
    char local[16];
    size_t capacity;
  };
};
static_assert(sizeof(String) == sizeof(std::string), "the layout of libstdc++");

void append(std::string* to, const char* text) {
  auto* s = reinterpret_cast<String*>(to);
  size_t more = strlen(text);
  bool local = s->data == s->local;
  if (s->length + more > (local ? sizeof s->local - 1 : s->capacity)) {
    size_t capacity = 2 * (s->length + more);
    auto* grown = static_cast<char*>(::operator new(capacity + 1));
    memcpy(grown, s->data, s->length);
    if (!local) ::operator delete(s->data);
    s->data = grown;
    s->capacity = capacity;
  }
  memcpy(s->data + s->length, text, more + 1);
  s->length += more;
}

// libstdc++'s std::vector.
template <typename T>
struct Vector {
  T *begin, *end, *limit;
};

template <typename T>
void append(std::vector<T>* to, const T& value) {
  auto* v = reinterpret_cast<Vector<T>*>(to);
  static_assert(sizeof *v == sizeof *to, "the layout of libstdc++");
  if (v->end == v->limit) {
    auto count = size_t(v->end - v->begin);
    size_t capacity = count == 0 ? 16 : 2 * count;
    auto* grown = static_cast<T*>(::operator new(capacity * sizeof(T)));
    if (count != 0) memcpy(grown, v->begin, count * sizeof(T));
    ::operator delete(v->begin);
    *v = {grown, grown + count, grown + capacity};
  }
  *v->end++ = value;
}

// Empties the thread's cache, and gives up its slabs.
void give_up_heap() {
  SlowPath path;
  ThreadHeap* heap = thread_state.heap;
  if (!path.entered() || heap == nullptr) return;
  heap->collect();
  heap->release_all();
  heap->cache.reset_limit();
  thread_state.last = ThreadState::kNoLast;
}

// Collects ranges under the locks and reports them without: the callback may allocate.
struct RangeList {
  base::MallocRange* list;
  size_t count, capacity;

  void add(const void* from, size_t bytes, base::MallocRange::Type type, double fraction) {
    if (list != nullptr && count < capacity) list[count] = {uintptr_t(from), bytes, type, fraction};
    ++count;
  }
};

size_t used_bytes(const Slab* s) {
  if (!is_small(s)) return s->bytes - s->offset;
  size_t objects = s->kind == Kind::kSlab ? objects_in_use(s) : s->used;
  return objects * kSizeClasses.size[s->size_class];
}

void gather(RangeList* ranges) {
  ranges->count = 0;
  SlowPath path;
  if (!path.entered()) return;
  page_heap.for_each([ranges](const PageRange& pages) {
    using Range = base::MallocRange;
    if (const Slab* s = pages.slab)
      ranges->add(s->base, s->bytes, Range::INUSE, double(used_bytes(s)) / double(s->bytes));
    else if (pages.state != PageRange::kCached)
      ranges->add(pages.base, pages.bytes,
                  pages.state == PageRange::kDirty ? Range::FREE : Range::UNMAPPED, 0);
  });
}

struct Stacks {
  MappedText entries;  // words
  Estimate (*of)(const Site&);
};

bool add_stack(const Site& now, void* context) {
  auto& stacks = *static_cast<Stacks*>(context);
  Estimate e = stacks.of(now);
  if (e.bytes < 1) return true;
  uintptr_t head[] = {e.objects < 1 ? 1 : uintptr_t(e.objects), uintptr_t(e.bytes), now.depth};
  return stacks.entries.add(reinterpret_cast<const char*>(head), sizeof head) == 0 &&
         stacks.entries.add(reinterpret_cast<const char*>(now.frames),
                            now.depth * sizeof *now.frames) == 0;
}

// An array that the caller deletes, of `of(site)` for each site.
void** read_stacks(Estimate (*of)(const Site&)) {
  Stacks stacks;
  stacks.of = of;
  if (profile_for_each_site(add_stack, &stacks) != 0) return nullptr;
  size_t bytes = stacks.entries.length();
  auto* array = static_cast<char*>(::operator new[](bytes + sizeof(void*)));
  memcpy(array, stacks.entries.text(), bytes);
  memset(array + bytes, 0, sizeof(void*));
  return reinterpret_cast<void**>(array);
}

// Why there are no stacks, as a comment that pprof skips.
constexpr char kNoSamples[] =
    "# larder: no samples of this here; `larder record` shows every allocation\n";

void append_profile(std::string* to, int (*write)(TextSink, void*)) {
  MappedText profile;
  append(to, write(MappedText::add, &profile) == 0 ? profile.text() : kNoSamples);
}

}  // namespace

// The key functions of the two classes: their vtables are emitted here.
SysAllocator::~SysAllocator() = default;
MallocExtension::~MallocExtension() = default;

namespace {

// The fallback of a program's source.
class DefaultSource : public SysAllocator {
 public:
  void* Alloc(size_t size, size_t* actual_size, size_t alignment) override {
    if (actual_size != nullptr) *actual_size = size;
    return backing::map_for_source(size, alignment);
  }
};

SysAllocator* default_source() {
  alignas(DefaultSource) static char memory[sizeof(DefaultSource)];
  // Repeating this does no harm: it is the same vtable.
  return new (memory) DefaultSource;
}

}  // namespace

MallocExtension* MallocExtension::instance() {
  // No destructor runs: others may call until the very end.
  alignas(MallocExtension) static char memory[sizeof(MallocExtension)];
  static constinit std::atomic<MallocExtension*> made{nullptr};
  MallocExtension* extension = made.load(std::memory_order_acquire);
  if (extension == nullptr) {
    // Repeating this does no harm: it is the same vtable.
    extension = new (memory) MallocExtension;
    made.store(extension, std::memory_order_release);
  }
  return extension;
}

void MallocExtension::Initialize() {}
void MallocExtension::Register(MallocExtension*) {}

bool MallocExtension::VerifyAllMemory() {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  return snapshot.sound;
}
bool MallocExtension::VerifyNewMemory(const void* p) { return p == nullptr || is_object(p); }
bool MallocExtension::VerifyArrayNewMemory(const void* p) { return VerifyNewMemory(p); }
bool MallocExtension::VerifyMallocMemory(const void* p) { return VerifyNewMemory(p); }

bool MallocExtension::MallocMemoryStats(int* blocks, size_t* total,
                                        int histogram[kMallocHistogramSize]) {
  static_assert(kMallocHistogramSize == kHistogram, "a place for each power of two");
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  auto count = [](size_t n) { return n > INT32_MAX ? INT32_MAX : int(n); };
  *blocks = count(snapshot.objects);
  *total = snapshot.in_use();
  for (int i = 0; i < kHistogram; ++i) histogram[i] = count(snapshot.histogram[i]);
  return true;
}

void MallocExtension::GetStats(char* buffer, int buffer_length) {
  if (buffer_length > 0) describe_heap(buffer, size_t(buffer_length));
}

void MallocExtension::GetHeapSample(MallocExtensionWriter* writer) {
  append_profile(writer, profile_write);
}
void MallocExtension::GetHeapGrowthStacks(MallocExtensionWriter* writer) {
  append_profile(writer, profile_write_growth);
}
void** MallocExtension::ReadStackTraces(int* sample_period) {
  *sample_period = sample_mean() != 0 ? 1 : 0;
  return read_stacks([](const Site& now) { return now.in_use; });
}
void** MallocExtension::ReadHeapGrowthStackTraces() { return read_stacks(growth_since_mark); }

void MallocExtension::Ranges(void* arg, RangeFunction func) {
  RangeList ranges = {};
  gather(&ranges);
  size_t bytes =
      round_up((ranges.count + kSpareRanges) * sizeof(base::MallocRange), os::page_size());
  auto* list = static_cast<base::MallocRange*>(os::map(bytes));
  if (list == nullptr) return;
  ranges = {list, 0, bytes / sizeof(base::MallocRange)};
  gather(&ranges);
  for (size_t i = 0; i < ranges.count && i < ranges.capacity; ++i) func(arg, &list[i]);
  os::unmap(list, bytes);
}

bool MallocExtension::GetNumericProperty(const char* property, size_t* value) {
  return get_property(property, value);
}
bool MallocExtension::SetNumericProperty(const char* property, size_t value) {
  return set_property(property, value);
}

void MallocExtension::MarkThreadIdle() { give_up_heap(); }
void MallocExtension::MarkThreadTemporarilyIdle() { give_up_heap(); }
void MallocExtension::MarkThreadBusy() {}
size_t MallocExtension::GetThreadCacheSize() {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  return snapshot.mine;
}

SysAllocator* MallocExtension::GetSystemAllocator() {
  auto* set = static_cast<SysAllocator*>(backing::source_context());
  return set != nullptr ? set : default_source();
}
void MallocExtension::SetSystemAllocator(SysAllocator* a) {
  if (a == default_source()) a = nullptr;
  backing::Source source = [](void* context, size_t size, size_t* actual, size_t align) {
    return static_cast<SysAllocator*>(context)->Alloc(size, actual, align);
  };
  backing::set_source(a != nullptr ? source : nullptr, a);
}

void MallocExtension::ReleaseToSystem(size_t num_bytes) {
  size_t released = 0;
  {
    SlowPath path;
    if (!path.entered()) return;
    released = purge_bytes(num_bytes);
  }
  if (released < num_bytes) release_free_memory();
}
void MallocExtension::ReleaseFreeMemory() { release_free_memory(); }
void MallocExtension::SetMemoryReleaseRate(double rate) { set_release_rate(rate); }
double MallocExtension::GetMemoryReleaseRate() { return release_rate(); }

size_t MallocExtension::GetEstimatedAllocatedSize(size_t size) { return nallocx(size, 0); }
size_t MallocExtension::GetAllocatedSize(const void* p) {
  const Slab* s = page_map.find_any(p);
  return s->kind == Kind::kNull ? 0 : usable_size(s);
}
MallocExtension::Ownership MallocExtension::GetOwnership(const void* p) {
  Kind kind = page_map.find_any(p)->kind;
  return kind == Kind::kNull || kind == Kind::kFree ? kNotOwned : kOwned;
}

void MallocExtension::GetFreeListSizes(std::vector<FreeListInfo>* v) {
  HeapSnapshot snapshot;
  walk_heap(&snapshot);
  size_t largest = kSizeClasses.size[kClasses - 1];
  for (int c = 0; c < kClasses; ++c) {
    size_t least = c == 0 ? 1 : kSizeClasses.size[c - 1] + 1;
    size_t most = kSizeClasses.size[c];
    append<FreeListInfo>(v, {least, most, snapshot.of_class[c].own_free, "tcmalloc.thread"});
    append<FreeListInfo>(v, {least, most, snapshot.of_class[c].central_free, "tcmalloc.central"});
  }
  append<FreeListInfo>(
      v, {largest + 1, kSpanMax, snapshot.part(Part::kCachedSpans), "tcmalloc.thread"});
  append<FreeListInfo>(v, {kPageBytes, kSpanMax, snapshot.part(Part::kPageDirty), "tcmalloc.page"});
  append<FreeListInfo>(
      v, {kPageBytes, kSpanMax, snapshot.part(Part::kPageClean), "tcmalloc.page_unmapped"});
  append<FreeListInfo>(
      v, {kSpanMax + 1, INT64_MAX, snapshot.part(Part::kCachedMappings), "tcmalloc.large"});
}

extern "C" {

size_t nallocx(size_t size, int flags) {
  size_t align = size_t{1} << (flags & 63);
  if (size > kMaxSize || align > kMaxSize) return 0;
  if (align > 16) size = round_up(size, align);
  // A guarded object is as long as its request.
  if (guard_is_on()) return size;
  return size <= kSmallMax && align <= kPageBytes ? kSizeClasses.size[class_of(size)]
                                                  : round_up(size, kPageBytes);
}
size_t tc_nallocx(size_t size, int flags) { return nallocx(size, flags); }

int MallocExtension_VerifyAllMemory() { return MallocExtension::instance()->VerifyAllMemory(); }
int MallocExtension_VerifyNewMemory(const void* p) {
  return MallocExtension::instance()->VerifyNewMemory(p);
}
int MallocExtension_VerifyArrayNewMemory(const void* p) {
  return MallocExtension::instance()->VerifyArrayNewMemory(p);
}
int MallocExtension_VerifyMallocMemory(const void* p) {
  return MallocExtension::instance()->VerifyMallocMemory(p);
}
int MallocExtension_MallocMemoryStats(int* blocks, size_t* total,
                                      int histogram[kMallocExtensionHistogramSize]) {
  return MallocExtension::instance()->MallocMemoryStats(blocks, total, histogram);
}
void MallocExtension_GetStats(char* buffer, int buffer_length) {
  MallocExtension::instance()->GetStats(buffer, buffer_length);
}
int MallocExtension_GetNumericProperty(const char* property, size_t* value) {
  return MallocExtension::instance()->GetNumericProperty(property, value);
}
int MallocExtension_SetNumericProperty(const char* property, size_t value) {
  return MallocExtension::instance()->SetNumericProperty(property, value);
}
void MallocExtension_MarkThreadIdle() { MallocExtension::instance()->MarkThreadIdle(); }
void MallocExtension_MarkThreadBusy() { MallocExtension::instance()->MarkThreadBusy(); }
void MallocExtension_MarkThreadTemporarilyIdle() {
  MallocExtension::instance()->MarkThreadTemporarilyIdle();
}
void MallocExtension_ReleaseToSystem(size_t num_bytes) {
  MallocExtension::instance()->ReleaseToSystem(num_bytes);
}
void MallocExtension_ReleaseFreeMemory() { MallocExtension::instance()->ReleaseFreeMemory(); }
size_t MallocExtension_GetEstimatedAllocatedSize(size_t size) {
  return MallocExtension::instance()->GetEstimatedAllocatedSize(size);
}
size_t MallocExtension_GetAllocatedSize(const void* p) {
  return MallocExtension::instance()->GetAllocatedSize(p);
}
size_t MallocExtension_GetThreadCacheSize() {
  return MallocExtension::instance()->GetThreadCacheSize();
}
MallocExtension_Ownership MallocExtension_GetOwnership(const void* p) {
  return MallocExtension_Ownership(MallocExtension::instance()->GetOwnership(p));
}

}  // extern "C"
