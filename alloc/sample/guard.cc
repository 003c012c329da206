#include "core/guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/size_class.h"
#include "base/stats.h"
#include "core/large.h"
#include "core/misuse.h"
#include "core/page_map.h"
#include "core/report.h"
#include "core/thread_heap.h"
#include "os/fault.h"
#include "os/line.h"
#include "sample/site.h"

namespace larder {

namespace {

struct Slot {
  Slab* slab;
  SamplePoint* point;
  const Site* allocated;
  GuardedFree freed;
  bool opened;    // by an access that was reported
  uint32_t next;  // in the queue of freed slots
};

constexpr uint32_t kNone = UINT32_MAX;

struct Guard {
  // Constant once there are slots.
  uintptr_t begin = 0, end = 0;
  size_t room = 0;  // bytes of a slot before its guard, which is as long again
  // The signal handler reads them without the lock.
  Slot* slots = nullptr;
  std::atomic<uint32_t> made{0};  // slots that were used so far
  // The freed slots.
  uint32_t oldest LARDER_GUARDED_BY(sample_lock()) = kNone;
  uint32_t newest LARDER_GUARDED_BY(sample_lock()) = kNone;
  uint32_t queued LARDER_GUARDED_BY(sample_lock()) = 0;
  bool unusable LARDER_GUARDED_BY(sample_lock()) = false;
};
constinit Guard guard;

uint32_t made() { return guard.made.load(std::memory_order_acquire); }

uintptr_t begin_of(uint32_t i) { return guard.begin + i * guard.room * 2; }
uint32_t slot_of(uintptr_t address) { return uint32_t((address - guard.begin) / (guard.room * 2)); }
bool is_guarded(uintptr_t address) { return address >= guard.begin && address < guard.end; }

// The pages of a slot's object.
char* first_page(const Slab* s) {
  return reinterpret_cast<char*>(round_down(uintptr_t(s->base), os::page_size()));
}
char* end_of_pages(const Slab* s) {
  return reinterpret_cast<char*>(begin_of(slot_of(uintptr_t(s->base))) + guard.room);
}
size_t page_bytes(const Slab* s) { return size_t(end_of_pages(s) - first_page(s)); }

void report_access(const os::Fault& fault);

bool make_slots() {
  guard.room = kSmallMax > os::page_size() ? kSmallMax : os::page_size();
  size_t bytes = kMaxGuarded * guard.room * 2;
  guard.slots = static_cast<Slot*>(os::map(round_up(kMaxGuarded * sizeof(Slot), os::page_size())));
  // A slot's pages must be Larder's pages, too.
  void* range = guard.slots != nullptr ? os::reserve(bytes + guard.room) : nullptr;
  if (range == nullptr) return false;
  guard.begin = round_up(uintptr_t(range), guard.room);
  guard.end = guard.begin + bytes;
  return os::on_fault(guard.begin, guard.end, report_access);
}

uint32_t take_oldest() LARDER_REQUIRES(sample_lock()) {
  uint32_t i = guard.oldest;
  if (i == kNone) return kNone;
  guard.oldest = guard.slots[i].next;
  if (guard.oldest == kNone) guard.newest = kNone;
  --guard.queued;
  return i;
}

void enqueue(uint32_t i) LARDER_REQUIRES(sample_lock()) {
  guard.slots[i].next = kNone;
  (guard.newest != kNone ? guard.slots[guard.newest].next : guard.oldest) = i;
  guard.newest = i;
  ++guard.queued;
}

uint32_t next_slot() LARDER_REQUIRES(sample_lock()) {
  uint32_t fresh = made();
  if (fresh == 0) {
    if (guard.unusable || !make_slots()) {
      guard.unusable = true;
      return kNone;
    }
  }
  if (guard.queued >= kGuardedFreed || fresh == kMaxGuarded) return take_oldest();
  Slab* s = large_make_descriptor();
  if (s == nullptr) return take_oldest();
  s->set_owner(kUnowned);
  s->guarded = true;
  guard.slots[fresh].slab = s;
  guard.made.store(fresh + 1, std::memory_order_release);
  return fresh;
}

const char* state_of(const Slab* s) {
  return s->kind == Kind::kFree ? "use after free" : "overflow";
}

void report_access(const os::Fault& fault) {
  uint32_t i = slot_of(fault.address);
  bool is_known = i < made();
  auto action = OnError(option(Option::kOnError));
  if (action != OnError::kIgnore) {
    SlowPath path;
    Line line;
    line.put(fault.access).put(" at 0x").put_number(fault.address, 16).put(": ");
    if (is_known) {
      const Slab* s = guard.slots[i].slab;
      auto base = uintptr_t(s->base);
      line.put(state_of(s)).put(", ");
      if (fault.address < base)
        line.put_number(base - fault.address).put(" bytes before");
      else if (fault.address < base + s->bytes)
        line.put_number(fault.address - base).put(" bytes into");
      else
        line.put_number(fault.address - base - s->bytes).put(" bytes behind the end of");
      line.put(" an object of ").put_number(s->bytes).put(" bytes");
    } else {
      line.put("no object was ever there");
    }
    line.put(" (thread ").put_number(size_t(os::system_thread_id())).put(")").write();
    report_stack(fault.instruction);
    guard_report_origin(reinterpret_cast<void*>(fault.address));
  }
  if (action == OnError::kAbort) abort();
  // The access reads zeros, or writes what nothing reads.
  if (is_known) guard.slots[i].opened = true;
  os::commit(reinterpret_cast<void*>(round_down(fault.address, os::page_size())), os::page_size());
}

}  // namespace

Slab* guard_take(int c, size_t size_bytes, const Site* allocated) {
  if (size_bytes == 0) size_bytes = 1;
  uint32_t i = next_slot();
  if (i == kNone) return nullptr;
  Slot& slot = guard.slots[i];
  Slab* s = slot.slab;
  if (slot.opened) os::decommit(reinterpret_cast<void*>(begin_of(i)), guard.room * 2);
  slot.opened = false;
  auto end = reinterpret_cast<char*>(begin_of(i) + guard.room);
  s->base = end - round_up(size_bytes, 16);
  s->bytes = size_bytes;
  auto* first = reinterpret_cast<char*>(round_down(uintptr_t(s->base), kPageBytes));
  s->pages = uint16_t(size_t(end - first + kPageBytes - 1) / kPageBytes);
  if (!page_map.make_tables(first, s->pages) || !os::commit(first_page(s), page_bytes(s))) {
    enqueue(i);
    return nullptr;
  }
  stats::add(stats::kMappedBytes, int64_t(page_bytes(s)));
  memset(s->base + size_bytes, kGuardByte, size_t(end - s->base) - size_bytes);
  s->size_class = uint8_t(c);
  s->inverse = kSizeClasses.inverse[c];
  s->capacity = s->carved = 1;
  s->used = 1;
  s->points = reinterpret_cast<void**>(&slot.point);
  slot.allocated = allocated;
  slot.freed.depth = 0;
  s->kind = Kind::kSampled;
  page_map.set(first, s->pages, s);
  return s;
}

GuardedFree guard_check(const Slab* s) {
  GuardedFree freed = {{}, 0, os::system_thread_id()};
  freed.depth = walk_stack(freed.stack, kGuardFrames);
  const char* end = end_of_pages(s);
  const char* at = s->base + s->bytes;
  while (at < end && *at == char(kGuardByte)) ++at;
  if (at == end)
    for (at = first_page(s); at < s->base && *at == 0;) ++at;
  if (at != s->base && at != end) report_misuse("free", Misuse::kOverflow, s->base);
  return freed;
}

void guard_release(Slab* s, const GuardedFree& freed) {
  uint32_t i = slot_of(uintptr_t(s->base));
  guard.slots[i].freed = freed;
  s->kind = Kind::kFree;
  // Refused: the slot stays readable and is not used again.
  if (!os::decommit(first_page(s), page_bytes(s))) return;
  stats::add(stats::kMappedBytes, -int64_t(page_bytes(s)));
  enqueue(i);
}

void guard_report_origin(const void* p) {
  if (!is_guarded(uintptr_t(p)) || slot_of(uintptr_t(p)) >= made()) return;
  const Slot& slot = guard.slots[slot_of(uintptr_t(p))];
  Line().put("the object was allocated here:").write();
  report_frames(slot.allocated->frames, slot.allocated->depth);
  if (slot.slab->kind != Kind::kFree) return;
  Line()
      .put("and freed here, by thread ")
      .put_number(size_t(slot.freed.thread))
      .put(slot.freed.depth != 0 ? ":" : " (no stack)")
      .write();
  report_frames(slot.freed.stack, slot.freed.depth);
}

void guard_for_each(void (*visit)(const char*, size_t, void*), void* context) {
  for (uint32_t i = 0, count = made(); i < count; ++i) {
    const Slab* s = guard.slots[i].slab;
    // Relaxed: the caller counts a heap that changes meanwhile.
    auto* kind = reinterpret_cast<const uint8_t*>(&s->kind);
    if (Kind(__atomic_load_n(kind, __ATOMIC_RELAXED)) == Kind::kSampled)
      visit(first_page(s), page_bytes(s), context);
  }
}

}  // namespace larder
