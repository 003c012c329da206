#include "relay.h"

#include <pthread.h>
#include <sched.h>

#include "run.h"

namespace torture {

namespace {

constexpr unsigned kBatch = 120;
constexpr unsigned kQueued = 64;
constexpr unsigned kMostMakers = 2, kMostFreers = 4;  // of these, at least one more
constexpr unsigned kKept = 1000;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kBatches = 1000;
#else
constexpr uint64_t kBatches = 80000;
#endif
// Up to 5 MiB are in the queue and in the threads' hands. The rest is for caches.
constexpr size_t kAllowed = 36 * kMiB;

struct Piece {
  char* p;
  size_t size;
};

struct Batch {
  Piece pieces[kBatch];
};

// The state of one relay; the queue is first in, first out.
struct Relay {
  Lock lock;
  Batch queue[kQueued];
  uint64_t pushed, popped;
  std::atomic<uint64_t> numbers;  // of threads, and what seeds them
  std::atomic<uint64_t> to_make;  // batches
  std::atomic<unsigned> makers;   // that have not ended
  unsigned kept_a_batch;  // blocks that a freeing thread allocates for each batch that it frees
  size_t only_size;       // that is allocated; 0: many
};

Relay relay;

// Cheap, because much work is needed to show growth: only a byte at each end.
Piece make(Random& random) {
  size_t size = relay.only_size;
  if (size == 0) size = size_t{16} << random.below(7) | random.below(16);
  Piece piece = {static_cast<char*>(family.malloc(size)), size};
  if (piece.p == nullptr)
    fault(Fault::kNoMemory, nullptr, nullptr, nullptr,
          "malloc returns no block of %zu bytes although little is allocated", size);
  piece.p[0] = piece.p[size - 1] = char(uintptr_t(piece.p) >> 4);
  return piece;
}

void unmake(const Piece& piece) {
  if (piece.p == nullptr) return;
  char expected = char(uintptr_t(piece.p) >> 4);
  if (piece.p[0] != expected || piece.p[piece.size - 1] != expected)
    fault(Fault::kDamaged, nullptr, nullptr, nullptr,
          "a block of %zu bytes at %p was changed on its way from one thread to another",
          piece.size, static_cast<void*>(piece.p));
  family.free(piece.p);
}

bool push(const Batch& batch) {
  Guard guard(relay.lock);
  if (relay.pushed - relay.popped == kQueued) return false;
  relay.queue[relay.pushed++ % kQueued] = batch;
  return true;
}

bool pop(Batch* batch) {
  Guard guard(relay.lock);
  if (relay.pushed == relay.popped) return false;
  *batch = relay.queue[relay.popped++ % kQueued];
  return true;
}

bool claim(std::atomic<uint64_t>& left) {
  uint64_t seen = left.load(std::memory_order_relaxed);
  while (seen != 0)
    if (left.compare_exchange_weak(seen, seen - 1, std::memory_order_relaxed)) return true;
  return false;
}

void* maker(void*) {
  Random random(relay.numbers.fetch_add(1));
  Batch batch;
  while (claim(relay.to_make)) {
    for (Piece& piece : batch.pieces) piece = make(random);
    while (!push(batch)) sched_yield();
  }
  relay.makers.fetch_sub(1);
  return nullptr;
}

void* freer(void*) {
  Random random(relay.numbers.fetch_add(1));
  static thread_local Piece kept[kKept];
  unsigned next = 0;
  Batch batch;
  for (;;) {
    bool last = relay.makers.load() == 0;
    if (!pop(&batch)) {
      if (last) break;
      sched_yield();
      continue;
    }
    for (Piece& piece : batch.pieces) unmake(piece);
    for (unsigned i = 0; i < relay.kept_a_batch; ++i, next = (next + 1) % kKept) {
      unmake(kept[next]);
      kept[next] = make(random);
    }
  }
  for (Piece& piece : kept) unmake(piece);
  return nullptr;
}

}  // namespace

void run_relay(uint64_t round) {
  where->call.store("comparison of what is live with the resident set");
  Random random(mix(settings.seed) ^ round);
  relay.numbers = random.next();
  relay.kept_a_batch = random.one_in(2) ? 30 : 0;
  relay.only_size = random.one_in(8) ? random.between(16, 1024) : 0;
  relay.to_make = kBatches;
  unsigned makers = unsigned(random.between(1, kMostMakers));
  unsigned freers = unsigned(random.between(makers + 1, kMostFreers));
  relay.makers = makers;
  // Memory that earlier rounds left would hide the growth.
  if (family.trim != nullptr) family.trim(0);
  size_t before = resident_bytes(), highest = before;
  pthread_t threads[kMostMakers + kMostFreers];
  static void* stacks[kMostMakers + kMostFreers];
  for (unsigned i = 0; i < makers + freers; ++i) {
    int error = start_thread_on(&stacks[i], &threads[i], i < makers ? maker : freer, nullptr);
    if (error != 0) give_up("cannot start a thread (errno %d): allow more processes", error);
  }
  uint64_t seen = kBatches;
  while (relay.makers.load() != 0) {
    uint64_t left = relay.to_make.load();
    if (left != seen) where->calls.fetch_add(1);
    seen = left;
    sleep_us(1000);
    size_t now = resident_bytes();
    if (now > highest) highest = now;
  }
  for (unsigned i = 0; i < makers + freers; ++i) pthread_join(threads[i], nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (highest > before + kAllowed && !is_ignored(Fault::kGrowth))
    fault(Fault::kGrowth, where, nullptr, nullptr,
          "%u threads allocate, %u free, and never more than 5 MiB are live, but the resident set "
          "has risen from %zu to %zu KiB meanwhile",
          makers, freers, before >> 10, highest >> 10);
#endif
}

}  // namespace torture
