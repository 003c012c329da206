#include "worker.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "fork.h"

namespace torture {

bool in_child = false;

namespace {

Worker* workers;  // the streams, then their broods, then the main thread's

unsigned worker_count() { return settings.threads * (1 + kBrood) + 1; }

constexpr size_t kLargest = 32 * kMiB;

// --- what a thread leaves to be freed after its function has returned

pthread_key_t leaving_key;

// Frees a few blocks and makes one, as objects with destructors do.
void leave_some(Worker& worker, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    Block& block = worker.blocks[worker.random.below(worker.places)];
    if (block.p == nullptr) continue;
    worker.bytes -= block.asked;
    release(block, unsigned(worker.random.next()));
    block.p = nullptr;
  }
  Block last = allocate(Make::kMalloc, worker.random.below(2000), 0, ++worker.made);
  release(last, 3);
}

// Called again, in the rounds that pthread gives to keys whose destructors set them anew: later
// than the destructors of thread_local objects, and than those of the keys that come once.
void leave_by_key(void* value) {
  Worker& worker = *static_cast<Worker*>(value);
  leave_some(worker, 4);
  if (--worker.leaving > 0) pthread_setspecific(leaving_key, value);
}

struct Leaver {
  Worker* worker = nullptr;
  ~Leaver() {
    if (worker != nullptr) leave_some(*worker, 8);
  }
};

thread_local Leaver leaver;

// In the last round a sanitizer has taken its leave of the thread already.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr unsigned kMostLeaving = PTHREAD_DESTRUCTOR_ITERATIONS - 2;
#else
constexpr unsigned kMostLeaving = PTHREAD_DESTRUCTOR_ITERATIONS;
#endif

void leave_later(Worker& worker) {
  if (worker.random.one_in(2)) leaver.worker = &worker;
  worker.leaving = unsigned(worker.random.below(kMostLeaving + 1));
  if (worker.leaving > 0) pthread_setspecific(leaving_key, &worker);
}

// --- operations on the stream's own blocks

Make choose_make(Random& random) {
  for (;;) {
    auto make = random.below(2) == 0 ? Make::kMalloc : Make(random.below(uint64_t(Make::kCount)));
    if (family.has(make)) return make;
  }
}

void make_block(Worker& worker, Block& place) {
  Random& random = worker.random;
  Make make = choose_make(random);
  size_t size = choose_size(random, worker.mood,
                            kLargest < worker.most_bytes / 2 ? kLargest : worker.most_bytes / 2);
  if (worker.bytes + size > worker.most_bytes) size %= kKiB;
  size_t align = 0;
  if (takes_alignment(make)) {
    align = choose_align(random, make == Make::kPosixMemalign ? sizeof(void*) : 1);
    if (make == Make::kAlignedAlloc && random.one_in(2)) size = (size + align - 1) & ~(align - 1);
  }
  place = allocate(make, size, align, uint64_t(worker.stream) << kStreamShift | ++worker.made);
  worker.bytes += size;
}

void free_block(Worker& worker, Block& place, unsigned form) {
  worker.bytes -= place.asked;
  release(place, form);
  place.p = nullptr;
}

void free_block(Worker& worker, Block& place) {
  free_block(worker, place, unsigned(worker.random.next()));
}

// A new size: a little more, a little less, doubled, or anything.
size_t next_size(Random& random, Mood mood, size_t old, size_t most) {
  size_t size;
  switch (random.below(6)) {
    case 0:
      size = old + random.below(64);
      break;
    case 1:
      size = old - random.below(old < 64 ? old + 1 : 64);
      break;
    case 2:
      size = old + old / 2 + 1;
      break;
    case 3:
      size = old / 2;
      break;
    default:
      size = choose_size(random, mood, most);
  }
  if (size > most) size = most;
  return size != 0 ? size : 1;
}

void resize_block(Worker& worker, Block& place) {
  if (is_operator(place.make)) return free_block(worker, place);
  size_t others = worker.bytes - place.asked;
  size_t room = others < worker.most_bytes ? worker.most_bytes - others : 0;
  size_t most = kLargest < room ? kLargest : room;
  size_t size = next_size(worker.random, worker.mood, place.asked, most);
  bool array = worker.random.one_in(4);
  worker.bytes -= place.asked;
  resize(&place, size, array);
  worker.bytes += size;
}

// To another stream; it is freed if the mailbox is full. As that is a matter of timing, both ways
// draw the same random numbers.
void send_block(Worker& sender, Block& place) {
  unsigned to = unsigned(sender.random.below(settings.threads));
  unsigned form = unsigned(sender.random.next());
  if (in_child || !worker(to).mailbox.put(place)) return free_block(sender, place, form);
  sender.bytes -= place.asked;
  place.p = nullptr;
}

// Many of one size, freed in order, against it, or at random.
void batch(Worker& worker) {
  constexpr unsigned kMost = 400;
  Block blocks[kMost];
  Random& random = worker.random;
  auto count = unsigned(random.between(2, kMost));
  size_t size = choose_size(random, worker.mood, 4 * kKiB);
  for (unsigned i = 0; i < count; ++i)
    blocks[i] = allocate(random.one_in(8) ? Make::kCalloc : Make::kMalloc, size, 0,
                         uint64_t(worker.stream) << kStreamShift | ++worker.made);
  auto order = random.below(3);
  for (unsigned left = count; left > 0; --left) {
    unsigned i = order == 0 ? count - left : order == 1 ? left - 1 : unsigned(random.below(left));
    release(blocks[i], unsigned(random.next()));
    if (order == 2) blocks[i] = blocks[left - 1];
  }
}

// --- blocks of others

void receive(Worker& worker) {
  Random& random = worker.guest_random;
  Block block;
  for (int i = 0; i < 8 && worker.mailbox.take(&block); ++i) {
    Block& guest = worker.guests[random.below(kGuests)];
    if (guest.p != nullptr) release(guest, unsigned(random.next()));
    guest = block;
    if (is_operator(guest.make) || !random.one_in(3)) continue;
    resize(&guest, next_size(random, worker.mood, guest.asked, 64 * kKiB + guest.asked), false);
  }
}

// --- threads

void* brood_thread(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  become(worker);
  leave_later(worker);
  for (uint64_t i = 0; i < worker.lifetime; ++i) step(worker);
  return nullptr;
}

void reseed(Worker& worker) {
  uint64_t round = worker.where.round.load(std::memory_order_relaxed);
  uint64_t generation = worker.where.generation.load(std::memory_order_relaxed);
  uint64_t key = mix(settings.seed ^ mix(worker.stream ^ mix(round ^ mix(generation))));
  worker.random = Random(key);
  worker.guest_random = Random(~key);
  worker.mood = Mood(worker.random.below(uint64_t(Mood::kCount)));
}

// Threads that are born and die while their parent waits; what they leave is the parent's to free.
void raise_brood(Worker& parent) {
  auto count = unsigned(parent.random.between(1, kBrood));
  pthread_t threads[kBrood];
  bool started[kBrood] = {};
  for (unsigned i = 0; i < count; ++i) {
    Worker& child = parent.brood[i];
    child.where.round.store(parent.where.round);
    child.where.generation.store(child.where.generation.load() + 1);
    reseed(child);
    child.lifetime = child.random.between(10, 300);
    started[i] = pthread_create(&threads[i], nullptr, brood_thread, &child) == 0;
    if (started[i]) totals.threads.fetch_add(1);
  }
  for (unsigned i = 0; i < count; ++i) {
    if (!started[i]) continue;
    pthread_join(threads[i], nullptr);
    parent.brood[i].where.thread.store(0);
    release_all(parent.brood[i]);
  }
}

void* stream_thread(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  become(worker);
  leave_later(worker);
  for (uint64_t i = 0; i < worker.lifetime && !stop.load(std::memory_order_relaxed); ++i)
    step(worker);
  worker.finished.store(true, std::memory_order_release);
  return nullptr;
}

// Calls that most programs make once in a while, if at all.
void rare(Worker& worker) {
  switch (worker.random.below(16)) {
    case 0:
      if (family.trim != nullptr) family.trim(0);
      break;
    case 1:
      // Each stops the others for a while.
      if (!worker.random.one_in(2)) break;
      if (settings.forks && !in_child && worker.brood != nullptr) fork_and_check(worker);
      break;
    case 2:
    case 3:
    case 4:
      if (!in_child && worker.brood != nullptr) raise_brood(worker);
      break;
    case 5:
#ifndef __SANITIZE_THREAD__
      // Reads what other threads write, on purpose.
      if (family.info != nullptr) family.info();
#endif
      break;
    default:
      ask_for_the_impossible(unsigned(worker.random.next()));
  }
}

}  // namespace

bool Mailbox::put(const Block& block) {
  Guard guard(lock);
  if (count == kRoom) return false;
  blocks[count++] = block;
  return true;
}

bool Mailbox::take(Block* block) {
  Guard guard(lock);
  if (count == 0) return false;
  *block = blocks[--count];
  return true;
}

bool make_workers() {
  workers = static_cast<Worker*>(map_pages(worker_count() * sizeof(Worker)));
  if (workers == nullptr || pthread_key_create(&leaving_key, leave_by_key) != 0) return false;
  for (unsigned i = 0; i < worker_count(); ++i) {
    Worker& made = workers[i];
    made.stream = made.where.stream = i;
    made.where.call.store("start");
    bool stream = i < settings.threads;
    made.places = stream ? kBlocks : kBroodBlocks;
    made.most_bytes = settings.live_mib * kMiB / settings.threads / (stream ? 1 : 8);
    if (stream) made.brood = workers + settings.threads + i * kBrood;
    made.signal_stack = static_cast<unsigned char*>(map_pages(kSignalStack));
    if (made.signal_stack == nullptr) return false;
  }
  return true;
}

Worker& worker(unsigned stream) { return workers[stream]; }
Worker& main_worker() { return workers[worker_count() - 1]; }

Where* where_of(unsigned index) {
  // The young first: their parents wait for them.
  return index < worker_count() ? &workers[worker_count() - 1 - index].where : nullptr;
}

void begin_round(Worker& worker, uint64_t round, uint64_t operations) {
  worker.where.round.store(round);
  worker.where.generation.store(0);
  worker.where.operation.store(0);
  worker.operations_left = operations;
  worker.made = (round & 0xFFFF) << kNumberBits;
  for (unsigned i = 0; worker.brood != nullptr && i < kBrood; ++i)
    worker.brood[i].made = worker.made;
}

void start_thread(Worker& worker) {
  worker.where.generation.store(worker.where.generation.load() + 1);
  reseed(worker);
  worker.lifetime =
      worker.random.one_in(3) ? worker.random.between(50, 500) : worker.random.between(500, 8000);
  if (worker.lifetime > worker.operations_left) worker.lifetime = worker.operations_left;
  worker.operations_left -= worker.lifetime;
  worker.finished.store(false);
  int error = pthread_create(&worker.thread, nullptr, stream_thread, &worker);
  if (error != 0) give_up("cannot start a thread (errno %d): allow more processes", error);
  worker.running = true;
  totals.threads.fetch_add(1);
}

void join_thread(Worker& worker) {
  pthread_join(worker.thread, nullptr);
  worker.where.thread.store(0);
  worker.running = false;
}

void become(Worker& worker) {
  where = &worker.where;
  stack_t stack = {};
  stack.ss_sp = worker.signal_stack;
  stack.ss_size = kSignalStack;
  sigaltstack(&stack, nullptr);
  where->thread.store(int(syscall(SYS_gettid)));
}

void step(Worker& worker) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Random& random = worker.random;
  uint64_t operation = where->operation.load(kRelaxed) + 1;
  where->operation.store(operation, kRelaxed);
  totals.operations.fetch_add(1, kRelaxed);
  if (operation % 16 == 0 && !in_child) receive(worker);
  unsigned roll = unsigned(random.below(1000));
  if (roll < 2) return rare(worker);
  if (roll < 5) return batch(worker);
  Block& place = worker.blocks[random.below(worker.places)];
  if (place.p == nullptr) return make_block(worker, place);
  if (roll < 500) return free_block(worker, place);
  if (roll < 750) return resize_block(worker, place);
  if (roll < 900) return send_block(worker, place);
  check(place);
}

void release_all(Worker& worker) {
  for (Block& block : worker.blocks) {
    if (block.p != nullptr) release(block, unsigned(block.id));
    block.p = nullptr;
  }
  for (Block& block : worker.guests) {
    if (block.p != nullptr) release(block, unsigned(block.id));
    block.p = nullptr;
  }
  worker.bytes = 0;
  Block block;
  while (worker.mailbox.take(&block)) release(block, unsigned(block.id));
}

}  // namespace torture
