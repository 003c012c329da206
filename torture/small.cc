#include "small.h"

#include "calls.h"
#include "index.h"
#include "worker.h"

namespace torture {

namespace {

constexpr unsigned kOperations = 128;  // of a burst, about
constexpr size_t kMost = 4 * kKiB;
constexpr unsigned kParcel = 32;

// Waits for a lock that may be held while the allocator is called: the monitor must see which of
// the threads hangs.
void lock_patiently(Lock& lock) {
  for (int tries = 0; !lock.try_lock(); ++tries) {
    where->calls.fetch_add(1, std::memory_order_relaxed);
    tries < 64 ? (void)sched_yield() : sleep_us(50);
  }
}

class Hold {
 public:
  explicit Hold(Worker& worker) : lock_(worker.small.lock) { lock_patiently(lock_); }
  ~Hold() { lock_.unlock(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Lock& lock_;
};

// What a burst requests: the sizes of a thread that requests only one, or mostly tiny ones.
size_t choose_small(const Worker& worker, Random& random) {
  if (worker.only_size != 0) return worker.only_size;
  uint64_t bits = random.next();
  unsigned roll = bits % 64;
  bits >>= 8;
  if (roll == 0) return bits % 8 == 0 ? 0 : kMost - bits % 64;
  unsigned shift = roll < 36   ? unsigned(bits % 7)
                   : roll < 58 ? unsigned(3 + bits % 7)
                               : 8 + bits % 4;
  size_t power = size_t{1} << shift;
  bits >>= 16;
  // Also the borders of most allocators' size classes, as in choose_size.
  if (roll >= 52) return power + power / 8 * (bits % 8) + bits / 8 % 3 - 1;
  return power + bits % power;
}

struct Request {
  Make make;
  size_t size, align;
};

Request choose_request(const Worker& worker, Random& random) {
  static constexpr Make kSeldom[] = {
      Make::kCalloc,       Make::kCalloc,          Make::kCalloc,     Make::kRealloc,
      Make::kAlignedAlloc, Make::kPosixMemalign,   Make::kMemalign,   Make::kNew,
      Make::kNew,          Make::kNewArray,        Make::kNewNothrow, Make::kNewArrayNothrow,
      Make::kNewAligned,   Make::kNewArrayAligned, Make::kNewAligned, Make::kNewAlignedNothrow};
  uint64_t bits = random.next();
  Make make = bits % 2 == 0 ? Make::kMalloc : kSeldom[bits / 2 % 16];
  if (!family.has(make)) make = Make::kMalloc;
  Request request = {make, choose_small(worker, random), 0};
  if (takes_alignment(make)) {
    request.align = size_t{8} << bits / 32 % 6;
    if (make == Make::kAlignedAlloc && bits / 256 % 2 == 0)
      request.size = (request.size + request.align - 1) & ~(request.align - 1);
  }
  return request;
}

uint64_t next_id(Worker& worker) { return uint64_t(worker.stream) << kStreamShift | ++worker.made; }

void obtain(Worker& worker, Block& place, const Request& request) {
  allocate_unlisted(&place, request.make, request.size, request.align, next_id(worker));
}

void give_back(Block& place, unsigned form) {
  release(place, form);
  place.p = nullptr;
}

bool is_resizable(const Block& block) {
  return !is_operator(block.make) && family.realloc != nullptr;
}

// A little more, a little less, or anything; never 0.
size_t next_small(const Worker& worker, Random& random, size_t old) {
  uint64_t bits = random.next();
  size_t size = bits % 4 == 0   ? old + bits / 4 % 64
                : bits % 4 == 1 ? old / 2 + bits / 4 % 16
                                : choose_small(worker, random);
  return size > kMost ? kMost : size != 0 ? size : 1;
}

// --- kinds of bursts; each returns how many operations it was

// Any operation on any place of the table.
unsigned mixed(Worker& worker, Random& random) {
  for (unsigned i = 0; i < kOperations; ++i) {
    uint64_t bits = random.next();
    Block& place = worker.small.blocks[(bits & 0xFFFF) * worker.small.places >> 16];
    unsigned roll = unsigned(bits >> 16) % 16;
    auto form = unsigned(bits >> 32);
    if (place.p == nullptr) {
      obtain(worker, place, choose_request(worker, random));
    } else if (roll == 0) {
      check(place);
    } else if (roll < 3 && is_resizable(place)) {
      resize(&place, next_small(worker, random, place.asked), roll == 1);
    } else {
      give_back(place, form);
    }
  }
  return kOperations;
}

// Many blocks of one kind, freed in order, in reverse, or at random.
unsigned batch(Worker& worker, Random& random) {
  Block* blocks = worker.small.blocks + kSmallBlocks;
  auto count = unsigned(random.between(kSmallBatch / 2, kSmallBatch));
  Request request = choose_request(worker, random);
  for (unsigned i = 0; i < count; ++i) obtain(worker, blocks[i], request);
  auto order = random.below(3);
  for (unsigned left = count; left > 0; --left) {
    uint64_t bits = random.next();
    unsigned i = order == 0   ? count - left
                 : order == 1 ? left - 1
                              : unsigned((bits & 0xFFFF) * left >> 16);
    give_back(blocks[i], unsigned(bits >> 32));
    if (order != 2 || i == left - 1) continue;
    blocks[i] = blocks[left - 1];
    blocks[left - 1].p = nullptr;
  }
  return 2 * count;
}

// A block is freed before the next one is allocated, or the one before the last.
unsigned pairs(Worker& worker, Random& random) {
  Block* blocks = worker.small.blocks + kSmallBlocks;
  uint64_t kept = random.below(3);
  Request request = choose_request(worker, random);
  for (unsigned i = 0; i < kOperations / 2; ++i) {
    uint64_t bits = random.next();
    if (bits % 16 == 0) request = choose_request(worker, random);
    Block& place = blocks[i % (1 + kept)];
    if (place.p != nullptr) give_back(place, unsigned(bits >> 32));
    obtain(worker, place, request);
  }
  for (unsigned i = 0; i <= kept; ++i) give_back(blocks[i], i);
  return kOperations;
}

// Sends blocks of the table to another stream; frees those for which it has no room. That depends
// on timing, so either way each counts as freed, and no random number is drawn for it.
unsigned send(Worker& worker, Random& random) {
  SmallMail& mail = torture::worker(unsigned(random.below(settings.threads))).small.mail;
  auto from = unsigned(random.below(worker.small.places));
  Block* blocks[kParcel];
  unsigned count = 0, sent = 0;
  for (unsigned i = 0; i < worker.small.places && count < kParcel; ++i) {
    Block& block = worker.small.blocks[(from + i) % worker.small.places];
    if (block.p != nullptr) blocks[count++] = &block;
  }
  if (!in_child) {
    Guard guard(mail.lock);
    for (; sent < count && mail.count < SmallMail::kRoom; ++sent) {
      mail.blocks[mail.count++] = *blocks[sent];
      blocks[sent]->p = nullptr;
    }
  }
  for (unsigned i = sent; i < count; ++i) give_back(*blocks[i], unsigned(blocks[i]->id));
  return count;
}

// Moves what has been sent to the worker behind its table; how many blocks.
unsigned take_mail(Worker& worker) {
  SmallMail& mail = worker.small.mail;
  Guard guard(mail.lock);
  unsigned count = 0;
  for (; mail.count > 0 && count < kSmallBatch; --mail.count)
    worker.small.blocks[kSmallBlocks + count++] = mail.blocks[mail.count - 1];
  return count;
}

bool overlaps(const Block& a, const Block& b) {
  return b.p != nullptr && &a != &b && a.p < b.p + (b.usable != 0 ? b.usable : 1) &&
         b.p < a.p + (a.usable != 0 ? a.usable : 1);
}

// Other threads change what this reads; they set a block's bits after it is in its place.
bool find_unlisted(const Block& block, Block* other) {
  for (unsigned i = 0; i < worker_count(); ++i) {
    const Small& small = worker(i).small;
    for (const Block& at : small.blocks)
      if (overlaps(block, at)) return *other = at, true;
    for (unsigned j = 0; j < small.mail.count && j < SmallMail::kRoom; ++j)
      if (overlaps(block, small.mail.blocks[j])) return *other = small.mail.blocks[j], true;
  }
  return false;
}

}  // namespace

void small_burst(Worker& worker) {
  if (worker.only_size > kMost) return;
  Random random(worker.random.next());
  unsigned count = 0;
  {
    Hold hold(worker);
    auto roll = random.below(16);
    count = roll < 9    ? mixed(worker, random)
            : roll < 12 ? batch(worker, random)
                        : pairs(worker, random);
    if (random.one_in(worker.habit == Habit::kGiver ? 2 : 4)) count += send(worker, random);
  }
  totals.operations.fetch_add(count, std::memory_order_relaxed);
}

void receive_small(Worker& worker) {
  Random& random = worker.guest_random;
  Hold hold(worker);
  while (unsigned count = take_mail(worker)) {
    for (unsigned i = 0; i < count; ++i) {
      Block& block = worker.small.blocks[kSmallBlocks + i];
      uint64_t bits = random.next();
      if (bits % 8 == 0 && is_resizable(block))
        resize(&block, next_small(worker, random, block.asked), false);
      give_back(block, unsigned(bits >> 32));
    }
  }
}

void release_small(Worker& worker) {
  Hold hold(worker);
  do {
    for (Block& block : worker.small.blocks)
      if (block.p != nullptr) give_back(block, unsigned(block.id));
  } while (take_mail(worker) != 0);
}

void lock_small() {
  for (unsigned i = 0; i < worker_count(); ++i) lock_patiently(worker(i).small.lock);
}

void unlock_small() {
  for (unsigned i = 0; i < worker_count(); ++i) worker(i).small.lock.unlock();
}

void check_inherited_small(Worker& worker) {
  Hold hold(worker);
  for (unsigned i = 0; i < worker_count(); ++i) {
    if (i == worker.stream) continue;
    for (Block& block : torture::worker(i).small.blocks) {
      if (block.p == nullptr) continue;
      check(block);
      if (worker.random.one_in(3)) give_back(block, unsigned(worker.random.next()));
    }
  }
}

void init_small() { live_blocks::set_find_unlisted(find_unlisted); }

}  // namespace torture
