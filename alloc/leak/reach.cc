#include "leak/reach.h"

#include "base/policy.h"
#include "base/shell_sort.h"
#include "core/large.h"
#include "core/meta.h"
#include "core/page_heap.h"
#include "os/backing.h"
#include "os/os.h"
#include "sample/site.h"

namespace larder {

namespace {

// Object i of a slab, or the one object of a span or mapping.
HeapObject object_of(Slab* s, uint64_t i) {
  HeapObject object = {nullptr, nullptr};
  if (s->kind == Kind::kSampled) {
    if (i >= s->carved) return object;
    object.point = static_cast<SamplePoint*>(s->points[i]);
    object.at = s->base + i * kSizeClasses.size[s->size_class];
  } else if (s->kind == Kind::kSpan || s->kind == Kind::kHuge) {
    object.point = s->sample_point;
    object.at = s->object();
    if (object.point != nullptr && object.point->site == nullptr) object.point = nullptr;
  }
  return object;
}

// Whether the object contains the address.
bool has(HeapObject object, uintptr_t address, size_t max_offset) {
  if (object.point == nullptr) return false;
  size_t offset = address - uintptr_t(object.at);  // huge if the address is before the object
  // An object of 0 bytes still has an address.
  size_t bytes = object.point->bytes != 0 ? object.point->bytes : 1;
  return offset < bytes && offset <= max_offset;
}

// In locking order.
void for_each_lock(void (*visit)(Lock&)) {
  visit(sample_lock());
  visit(page_heap.lock());
  visit(large_lock());
  visit(meta_lock());
  visit(backing::lock());
}

}  // namespace

// Unchecked: a loop, and held from the constructor to the destructor.
HeapLocked::HeapLocked() {
  for_each_lock([](Lock& lock) LARDER_UNCHECKED { lock.acquire(); });
  os::lock_own_mappings();
}
HeapLocked::~HeapLocked() {
  os::unlock_own_mappings();
  for_each_lock([](Lock& lock) LARDER_UNCHECKED { lock.release(); });
}

HeapObject find_object(const void* pointer) {
  auto address = uintptr_t(pointer);
  Slab* found = page_map.find_any(pointer);
  // The page map has only the first page of a mapping.
  if (found->kind == Kind::kNull)
    page_map.for_each([&](uintptr_t page, Slab* s) {
      if (s->kind == Kind::kHuge && address - page < s->bytes) found = s;
    });
  size_t size = kSizeClasses.size[found->size_class];
  HeapObject object = object_of(found, size == 0 ? 0 : (address - uintptr_t(found->base)) / size);
  return has(object, address, SIZE_MAX) ? object : HeapObject{nullptr, nullptr};
}

// Mappings that are being made are in the map before they are under the lock: kSpareMappings.
Reach::Reach(const Options& options) : options_(options) {
  for (int c = 0; c < kClasses; ++c)
    reciprocal_[c] = ((uint64_t{1} << 40) + kSizeClasses.size[c] - 1) / kSizeClasses.size[c];
  page_map.for_each([&](uintptr_t page, Slab* s) {
    if (s->kind == Kind::kHuge) ++huge_room_;
    if (page == uintptr_t(s->base) && s->kind == Kind::kSampled) room_ += s->used;
    if (page == uintptr_t(s->base)) ++room_;
  });
  size_t system_page = os::page_size();
  room_ = round_up((room_ + 1) * sizeof(HeapObject), system_page) / sizeof(HeapObject);
  huge_room_ = round_up((huge_room_ + kSpareMappings) * sizeof(Huge), system_page) / sizeof(Huge);
  stack_ = static_cast<HeapObject*>(os::map(round_up(room_ * sizeof(HeapObject), system_page)));
  huge_ = static_cast<Huge*>(os::map(round_up(huge_room_ * sizeof(Huge), system_page)));
  has_memory_ = stack_ != nullptr && huge_ != nullptr;
}

Reach::~Reach() {
  size_t system_page = os::page_size();
  if (stack_ != nullptr) os::unmap(stack_, round_up(room_ * sizeof(HeapObject), system_page));
  if (huge_ != nullptr) os::unmap(huge_, round_up(huge_room_ * sizeof(Huge), system_page));
}

void Reach::index_heap() {
  page_map.for_each([&](uintptr_t page, Slab* s) {
    if (page < low_) low_ = page;
    uintptr_t end = page + kPageBytes;
    if (s->kind == Kind::kHuge && page == uintptr_t(s->base)) {
      end = page + s->bytes;
      if (huge_count_ < huge_room_) huge_[huge_count_++] = {page, end, s};
    }
    if (end > high_) high_ = end;
  });
  if (low_ > high_) low_ = high_ = 0;
  shell_sort(huge_, huge_count_, [](const Huge& a, const Huge& b) { return a.begin < b.begin; });
  for_each([](HeapObject object) { object.point->state &= kStays; });
}

HeapObject Reach::find(uintptr_t address) const {
  HeapObject none = {nullptr, nullptr};
  if (address - low_ >= high_ - low_) return none;
  Slab* s = page_map.find(reinterpret_cast<void*>(address));
  if (s->kind == Kind::kNull && huge_count_ != 0) {
    size_t low = 0, high = huge_count_;
    while (high - low > 1) {
      size_t middle = (low + high) / 2;
      (huge_[middle].begin <= address ? low : high) = middle;
    }
    if (address < huge_[low].begin || address >= huge_[low].end) return none;
    s = huge_[low].slab;
  }
  uint64_t i = (address - uintptr_t(s->base)) * reciprocal_[s->size_class] >> 40;
  HeapObject object = object_of(s, i);
  return has(object, address, options_.max_offset) ? object : none;
}

// Calls meet(object) for each word of [begin, end) that points to an object.
template <typename Meet>
void Reach::scan(uintptr_t begin, uintptr_t end, Meet meet) const {
  size_t step = options_.source_alignment;
  for (uintptr_t at = round_up(begin, step); at + sizeof(uintptr_t) <= end; at += step) {
    uintptr_t word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
    if (word - low_ >= high_ - low_) continue;
    HeapObject object = find(word);
    if (object.point != nullptr) meet(object);
  }
}

// Scans what is on the stack, and what is pushed meanwhile.
template <typename Meet>
void Reach::flood(Meet meet) {
  while (depth_ > 0) {
    HeapObject object = stack_[--depth_];
    // The whole slot: a program may use malloc_usable_size().
    Slab* s = page_map.find(object.at);
    auto at = uintptr_t(object.at);
    size_t bytes =
        s->kind == Kind::kSampled ? kSizeClasses.size[s->size_class] : s->bytes - s->offset;
    scan(at, at + bytes, meet);
  }
}

void Reach::add_root(uintptr_t begin, uintptr_t end) {
  auto meet = [this](HeapObject object) {
    if ((object.point->state & kReached) != 0) return;
    object.point->state |= kReached;
    push(object);
  };
  scan(begin, end, meet);
  flood(meet);
}

void Reach::add_exempt(uint32_t states) {
  for_each([&](HeapObject object) {
    if ((object.point->state & states) == 0 && !object.point->site->exempt) return;
    object.point->state |= kReached;
    auto at = uintptr_t(object.at);
    add_root(at, at + object.point->bytes);
  });
  page_map.for_each([&](uintptr_t page, Slab* s) {
    if (page != uintptr_t(s->base)) return;
    if (s->kind == Kind::kSlab)
      add_root(page, page + size_t{s->carved} * kSizeClasses.size[s->size_class]);
    else if ((s->kind == Kind::kSpan || s->kind == Kind::kHuge || s->kind == Kind::kEmergency) &&
             s->sample_point == nullptr)
      add_root(page + s->offset, page + s->bytes);
  });
}

// Of a cycle the first object that is met becomes its leak; the others, and earlier leaks that it
// leads to, are indirect.
void Reach::sort_out() {
  for_each([this](HeapObject beginning) {
    if ((beginning.point->state & (kReached | kVisited)) != 0) return;
    beginning.point->state |= kVisited;
    push(beginning);
    flood([this, beginning](HeapObject object) {
      uint32_t& state = object.point->state;
      if ((state & kReached) != 0 || object.point == beginning.point) return;
      bool is_new = (state & kVisited) == 0;
      state |= kVisited | kIndirect;
      if (is_new) push(object);
    });
  });
}

}  // namespace larder
