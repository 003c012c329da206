#include "exchange.h"

#include <sched.h>

#include "calls.h"
#include "worker.h"

namespace torture {

namespace {

constexpr unsigned kMostBlocks = 2048;
constexpr uint64_t kPatienceMs = 3;

// On the stack of the offering thread, which waits until it is returned.
struct Offer {
  Block blocks[kMostBlocks];
  unsigned count = 0;
  size_t bytes;         // of a burst, approximately
  unsigned char* last;  // what the thread allocated last
  uint64_t next_id;
  Random random;
  std::atomic<bool> done{false};
  Offer* next = nullptr;
};

Lock board_lock;
Offer* board;  // offers that no thread has taken; guarded by the lock
std::atomic<unsigned> offered;

void put_up(Offer& offer) {
  Guard guard(board_lock);
  offer.next = board;
  board = &offer;
  offered.fetch_add(1, std::memory_order_relaxed);
}

// Takes the given offer, or with null any; null if it is gone.
Offer* take_down(const Offer* wanted) {
  Guard guard(board_lock);
  for (Offer** at = &board; *at != nullptr; at = &(*at)->next) {
    Offer* offer = *at;
    if (wanted != nullptr && offer != wanted) continue;
    *at = offer->next;
    offered.fetch_sub(1, std::memory_order_relaxed);
    return offer;
  }
  return nullptr;
}

struct Request {
  Make make = Make::kMalloc;
  size_t size, align = 0;
};

// Mostly objects of slabs; else a few blocks at the bounds between slabs, spans and mappings.
Request choose_request(Random& random) {
  Request request;
  request.size = random.one_in(16) ? choose_border(random) : choose_burst(random);
  if (random.one_in(8)) request.make = Make::kCalloc;
  if (random.one_in(8) && family.has(Make::kAlignedAlloc)) {
    request.make = Make::kAlignedAlloc;
    request.align = choose_align(random, 1);
  }
  return request;
}

void make_one(Offer& offer, const Request& request) {
  offer.blocks[offer.count++] =
      allocate(request.make, request.size, request.align, ++offer.next_id);
}

// About this many bytes, or as many blocks as there is room for; at least two.
void make_burst(Offer& offer, const Request& request) {
  size_t each = request.size > request.align ? request.size : request.align;
  size_t count = 2 + offer.bytes / (each + 1);
  while (offer.count < count && offer.count < kMostBlocks) make_one(offer, request);
}

void free_burst(Offer& offer) {
  Random& random = offer.random;
  auto order = random.below(3);
  for (unsigned left = offer.count; left > 0; --left) {
    unsigned i = order == 0   ? offer.count - left
                 : order == 1 ? left - 1
                              : unsigned(random.below(left));
    release(offer.blocks[i], unsigned(random.next()));
    if (order == 2) offer.blocks[i] = offer.blocks[left - 1];
  }
  offer.count = 0;
}

// Allocates small blocks until one has the address of the offering thread's last one.
void make_until_met(Offer& offer) {
  Request request;
  request.size = 16 << offer.random.below(3) % 2;
  while (offer.count < kMostBlocks) {
    make_one(offer, request);
    if (offer.blocks[offer.count - 1].p == offer.last) return;
  }
}

void resize_burst(Offer& offer) {
  Random& random = offer.random;
  for (unsigned i = 0; i < offer.count; ++i) {
    Block& block = offer.blocks[i];
    size_t size = i >= 32                    ? block.asked / 2 + 1
                  : block.asked <= 32 * kKiB ? choose_burst(random)
                  : i < 2                    ? choose_border(random)
                                             : block.asked + block.asked / 4;
    resize(&block, size, random.one_in(4));
  }
}

// The other thread's part: resizes everything, or frees it and allocates blocks of another size in
// its place.
void answer(Offer& offer) {
  auto way = offer.random.below(4);
  if (way == 0 && family.realloc != nullptr) return resize_burst(offer);
  free_burst(offer);
  way == 1 ? make_burst(offer, choose_request(offer.random)) : make_until_met(offer);
}

void await(Offer& offer) {
  put_up(offer);
  where->call.store("waiting for another stream to take a burst of blocks");
  uint64_t start = now_ms();
  while (!offer.done.load(std::memory_order_acquire)) {
    if (now_ms() - start > kPatienceMs && take_down(&offer) != nullptr) return answer(offer);
    sched_yield();
  }
}

}  // namespace

void exchange(Worker& worker) {
  Offer offer;
  // One random number of the stream's own: what follows depends on which thread answers.
  offer.random = Random(worker.random.next());
  offer.next_id = uint64_t(worker.stream) << kStreamShift | worker.made;
  worker.made += 3 * kMostBlocks;
  Random& random = offer.random;
  offer.bytes = random.between(8, 160) * kKiB;
  Request request = choose_request(random);
  make_burst(offer, request);
  // Frees and allocates some again, so that they are the last allocations, though their slabs are
  // full.
  unsigned last = offer.count - 1;
  for (auto again = random.below(4); again > 0; --again) {
    last = unsigned(random.below(offer.count));
    release(offer.blocks[last], unsigned(random.next()));
    offer.blocks[last] = allocate(request.make, request.size, request.align, ++offer.next_id);
  }
  offer.last = offer.blocks[last].p;
  in_child || settings.threads == 1 ? answer(offer) : await(offer);
  free_burst(offer);
  // Now allocate what that may have damaged.
  while (offer.count < 32) make_one(offer, request);
  free_burst(offer);
}

void serve_exchange() {
  if (in_child || offered.load(std::memory_order_relaxed) == 0) return;
  Offer* offer = take_down(nullptr);
  if (offer == nullptr) return;
  answer(*offer);
  offer->done.store(true, std::memory_order_release);
}

}  // namespace torture
