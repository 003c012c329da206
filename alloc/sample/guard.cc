#include "core/guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/size_class.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/page_heap.h"
#include "core/page_map.h"
#include "core/report.h"
#include "core/thread_heap.h"
#include "os/fault.h"
#include "os/line.h"
#include "sample/site.h"

namespace larder {

namespace {

struct Slot {
  Slab* slab;  // nullptr: never used
  SamplePoint* point;
  const Site* allocated;
  GuardedFree freed;
  uint32_t next;  // in the queue of freed slots
  // An access was reported and let through: the slot is not used again. Relaxed: a late reader
  // uses it once more.
  std::atomic<bool> opened;
};

constexpr uint32_t kNone = UINT32_MAX;

struct Guard {
  // Constant after guard_init().
  uintptr_t begin = 0, end = 0;
  size_t room = 0;  // bytes of a slot before its guard, which is as long again
  Slot* slots = nullptr;
  // Slots that were used so far. The signal handler reads these without the lock.
  std::atomic<uint32_t> made{0};
  // The freed slots.
  uint32_t oldest LARDER_GUARDED_BY(sample_lock()) = kNone;
  uint32_t newest LARDER_GUARDED_BY(sample_lock()) = kNone;
  uint32_t queued LARDER_GUARDED_BY(sample_lock()) = 0;
};
constinit Guard guard;

uint32_t made() { return guard.made.load(std::memory_order_acquire); }

uintptr_t begin_of(uint32_t i) { return guard.begin + i * guard.room * 2; }
uint32_t slot_of(uintptr_t address) { return uint32_t((address - guard.begin) / (guard.room * 2)); }
bool is_guarded(uintptr_t address) { return address >= guard.begin && address < guard.end; }

// The system pages of an object.
struct Pages {
  char* begin;
  char* end;
  size_t bytes() const { return size_t(end - begin); }
};
Pages pages_of(uintptr_t base) {
  uintptr_t end = begin_of(slot_of(base)) + guard.room;
  return {reinterpret_cast<char*>(round_down(base, os::page_size())), reinterpret_cast<char*>(end)};
}

uint32_t take_oldest() LARDER_REQUIRES(sample_lock()) {
  uint32_t i = guard.oldest;
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

// One that was freed long ago, or the first that was never used; kNone if there is none.
uint32_t next_slot() LARDER_REQUIRES(sample_lock()) {
  while (guard.queued >= kGuardedFreed) {
    uint32_t i = take_oldest();
    if (!guard.slots[i].opened.load(std::memory_order_relaxed)) return i;
  }
  uint32_t fresh = made();
  if (guard.slots == nullptr || fresh == kMaxGuarded) return kNone;
  Slab*& s = guard.slots[fresh].slab;
  if (s == nullptr) {
    s = large_make_descriptor();
    if (s == nullptr) return kNone;
    s->set_owner(kUnowned);
    s->guarded = true;
  }
  return fresh;
}

bool commit_within_limits(const Pages& pages) {
  if (likely(!limit::any())) return os::commit(pages.begin, pages.bytes());
  LockGuard locked(page_heap.lock());
  return limit::allows(pages.bytes()) && os::commit(pages.begin, pages.bytes());
}

void put_place(Line& line, uintptr_t address, const Slab* s) {
  auto base = uintptr_t(s->base);
  size_t bytes = s->bytes;
  line.put(s->kind == Kind::kFree ? "use after free, "
           : address < base       ? "underflow, "
                                  : "overflow, ");
  if (address < base)
    line.put_number(base - address).put(" bytes before");
  else if (address < base + bytes)
    line.put_number(address - base).put(" bytes into");
  else
    line.put_number(address - base - bytes).put(" bytes behind the end of");
  line.put(" an object of ").put_number(bytes).put(" bytes");
}

void report_access(const os::Fault& fault) {
  uint32_t i = slot_of(fault.address);
  auto action = OnError(option(Option::kOnError));
  if (action != OnError::kIgnore) {
    SlowPath path;
    Line line;
    line.put(fault.access).put(" at 0x").put_number(fault.address, 16).put(": ");
    if (i < made())
      put_place(line, fault.address, guard.slots[i].slab);
    else
      line.put("no object was ever there");
    line.put(" (thread ").put_number(size_t(os::system_thread_id())).put(")").write();
    report_interrupted_stack(fault.instruction);
    guard_report_origin(reinterpret_cast<void*>(fault.address));
  }
  if (action == OnError::kAbort) abort();
  // The access reads zeros, or writes what nothing reads.
  guard.slots[i].opened.store(true, std::memory_order_relaxed);
  size_t page = os::page_size();
  if (!os::commit(reinterpret_cast<void*>(round_down(fault.address, page)), page)) abort();
}

bool is_intact(const Slab* s) {
  Pages pages = pages_of(uintptr_t(s->base));
  for (const char* at = pages.begin; at < s->base; ++at)
    if (*at != 0) return false;
  for (const char* at = s->base + s->bytes; at < pages.end; ++at)
    if (*at != char(kGuardByte)) return false;
  return true;
}

}  // namespace

const char* guard_init() {
  if (sample_all) return "the leak checker is on";
  if (!can_capture()) return "it needs glibc 2.35 or newer";
  if (sample_mean() == 0) return "LARDER_PROFILE_BYTES is 0";
  // An object's pages must be Larder's pages, too.
  guard.room = kSmallMax > os::page_size() ? kSmallMax : os::page_size();
  size_t bytes = kMaxGuarded * guard.room * 2;
  void* range = os::reserve(bytes + guard.room);
  void* slots = os::map(round_up(kMaxGuarded * sizeof(Slot), os::page_size()));
  if (range == nullptr || slots == nullptr) return "the system refuses memory or addresses for it";
  guard.begin = round_up(uintptr_t(range), guard.room);
  guard.end = guard.begin + bytes;
  if (!os::on_fault(guard.begin, guard.end, report_access))
    return "the system refuses a handler of SIGSEGV";
  guard.slots = static_cast<Slot*>(slots);
  return nullptr;
}

void* guard_take(SamplePoint* point, int c, size_t size_bytes, const Site* allocated) {
  // A free in a signal handler links it.
  size_t bytes = size_bytes < sizeof(void*) ? sizeof(void*) : size_bytes;
  uint32_t i = next_slot();
  if (i == kNone) return nullptr;
  Slot& slot = guard.slots[i];
  uintptr_t base = begin_of(i) + guard.room - round_up(bytes, 16);
  Pages pages = pages_of(base);
  auto* first = reinterpret_cast<char*>(round_down(base, kPageBytes));
  auto page_count = uint16_t(size_t(pages.end - first + kPageBytes - 1) / kPageBytes);
  if (!page_map.make_tables(first, page_count) || !commit_within_limits(pages)) {
    if (i < made()) enqueue(i);
    return nullptr;
  }
  Slab* s = slot.slab;
  auto* p = reinterpret_cast<char*>(base);
  __atomic_store_n(&s->base, p, __ATOMIC_RELAXED);  // for guard_for_each()
  s->bytes = bytes;
  s->pages = page_count;
  s->size_class = uint8_t(c);
  s->inverse = kSizeClasses.inverse[c];
  s->capacity = s->carved = 1;
  s->used = 1;
  memset(p + bytes, kGuardByte, size_t(pages.end - p) - bytes);
  slot.point = point;
  s->points = reinterpret_cast<void**>(&slot.point);
  slot.allocated = allocated;
  slot.freed.depth = 0;
  s->kind = Kind::kSampled;
  page_map.set(first, page_count, s);
  if (i == made()) guard.made.store(i + 1, std::memory_order_release);
  return p;
}

GuardedFree guard_free_here() {
  GuardedFree freed = {{}, 0, os::system_thread_id()};
  freed.depth = walk_stack(freed.stack, kGuardFrames);
  return freed;
}

bool guard_release(Slab* s, const GuardedFree& freed) {
  uint32_t i = slot_of(uintptr_t(s->base));
  guard.slots[i].freed = freed;
  bool intact = is_intact(s);
  s->kind = Kind::kFree;
  // What was overwritten stays for a debugger.
  Pages pages = pages_of(uintptr_t(s->base));
  if (intact && os::decommit(pages.begin, pages.bytes())) enqueue(i);
  return intact;
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

void guard_for_each(FunctionRef<void(const char*, size_t)> visit) {
  // Relaxed: the caller counts a heap that changes meanwhile.
  for (uint32_t i = 0, count = made(); i < count; ++i) {
    const Slab* s = guard.slots[i].slab;
    auto* kind = reinterpret_cast<const uint8_t*>(&s->kind);
    if (Kind(__atomic_load_n(kind, __ATOMIC_RELAXED)) != Kind::kSampled) continue;
    Pages pages = pages_of(uintptr_t(__atomic_load_n(&s->base, __ATOMIC_RELAXED)));
    visit(pages.begin, pages.bytes());
  }
}

}  // namespace larder
