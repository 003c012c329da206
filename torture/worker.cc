#include "worker.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "exchange.h"
#include "fork.h"

namespace torture {

bool in_child = false;

namespace {

Worker* workers;
unsigned crowd_size;

unsigned choose_crowd_size() {
  auto cpus = unsigned(sysconf(_SC_NPROCESSORS_ONLN));
  unsigned count = (4 * cpus < 64 ? 64 : 4 * cpus) + 32;  // not all allocate at the same time
  return count < kMostCrowd ? count : kMostCrowd;
}

constexpr size_t kLargest = 32 * kMiB;

// A few hundred bytes each, up to a quarter of what the worker may have.
unsigned small_places(size_t most_bytes, bool stream) {
  size_t places = most_bytes / 4 / 256, most = stream ? kSmallBlocks : kSmallBlocks / 8;
  return unsigned(places < 8 ? 8 : places < most ? places : most);
}

// --- blocks of a thread that are freed after its function has returned

pthread_key_t leaving_key;

// Frees a few blocks, its own and others', and allocates one, like objects with destructors.
void leave_some(Worker& worker, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    Block& block = worker.blocks[worker.random.below(worker.places)];
    if (block.p == nullptr) continue;
    worker.bytes -= block.asked;
    release(block, unsigned(worker.random.next()));
    block.p = nullptr;
    Block& guest = worker.guests[worker.guest_random.below(kGuests)];
    if (guest.p != nullptr) release(guest, unsigned(worker.guest_random.next()));
    guest.p = nullptr;
  }
  Block last = allocate(Make::kMalloc, worker.random.below(2000), 0, ++worker.made);
  release(last, 3);
}

// pthread calls this again, in the rounds for keys whose destructors set them anew: after the
// destructors of thread_local objects, and of keys that are not set again.
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

// In the last round a sanitizer has already finished the thread.
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
  size_t most = kLargest < worker.most_bytes / 2 ? kLargest : worker.most_bytes / 2;
  size_t size = choose_size(random, worker.mood, most);
  if (worker.only_size != 0) size = worker.only_size;
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
      size = old >= 8 * kKiB && random.one_in(2) ? choose_border(random)
                                                 : choose_size(random, mood, most);
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

// What streams do beyond their own blocks.
bool is_room() {
  return totals.live_bytes.load(std::memory_order_relaxed) < int64_t(settings.live_mib * kMiB / 2);
}

// Sends a block to another stream; frees it if the mailbox is full, or too much is in transit. That
// depends on timing, so both ways draw the same random numbers.
void send_block(Worker& sender, Block& place) {
  unsigned to = unsigned(sender.random.below(settings.threads));
  unsigned form = unsigned(sender.random.next());
  bool fits = place.asked < 64 * kKiB || is_room();
  if (in_child || !fits || !worker(to).mailbox.put(place)) return free_block(sender, place, form);
  sender.bytes -= place.asked;
  place.p = nullptr;
}

// Many blocks of one size, freed in order, in reverse, or at random.
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

// Frees everything; from then on the thread allocates one size only.
void drain(Worker& worker) {
  for (Block& block : worker.blocks)
    if (block.p != nullptr) free_block(worker, block);
  release_small(worker);
  worker.only_size = choose_burst(worker.random);
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
    size_t most = guest.asked >= 16 * kKiB && is_room() ? 5 * kMiB : guest.asked + 64 * kKiB;
    resize(&guest, next_size(random, worker.mood, guest.asked, most), false);
  }
}

// --- threads

void* brood_thread(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  become(worker);
  leave_later(worker);
  for (uint64_t i = 0; i < worker.lifetime; ++i) {
    step(worker);
    while (worker.gate != nullptr && !worker.gate->load(std::memory_order_acquire)) sleep_us(200);
  }
  return nullptr;
}

void reseed(Worker& worker) {
  uint64_t round = worker.where.round.load(std::memory_order_relaxed);
  uint64_t generation = worker.where.generation.load(std::memory_order_relaxed);
  uint64_t key = mix(settings.seed ^ mix(worker.stream ^ mix(round ^ mix(generation))));
  worker.random = Random(key);
  worker.guest_random = Random(~key);
  worker.mood = Mood(worker.random.below(uint64_t(Mood::kCount)));
  worker.habit = worker.random.one_in(2) ? Habit::kBalanced : Habit(worker.random.below(3));
  worker.only_size = 0;
}

// Threads that start and end while their parent waits; the parent frees what they leave. With a
// gate, none continues before all have started.
void raise(Worker* children, unsigned count, Worker& parent, uint64_t most_operations,
           std::atomic<bool>* gate) {
  bool started[kMostCrowd] = {};
  for (unsigned i = 0; i < count; ++i) {
    Worker& child = children[i];
    child.where.round.store(parent.where.round);
    child.where.generation.store(child.where.generation.load() + 1);
    reseed(child);
    child.lifetime = child.random.between(10, most_operations);
    child.gate = gate;
    started[i] = start_thread_on(&child.stack, &child.thread, brood_thread, &child) == 0;
    if (started[i]) totals.threads.fetch_add(1);
  }
  if (gate != nullptr) gate->store(true, std::memory_order_release);
  for (unsigned i = 0; i < count; ++i) {
    if (!started[i]) continue;
    join_thread(children[i]);
    release_all(children[i]);
  }
}

void raise_brood(Worker& parent) {
  raise(parent.brood, unsigned(parent.random.between(1, kBrood)), parent, 300, nullptr);
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

// Calls that programs make rarely.
void rare(Worker& worker) {
  switch (worker.random.below(16)) {
    case 0:
      if (family.trim != nullptr) family.trim(0);
      break;
    case 1:
      // Each stops the other threads for a while.
      if (!worker.random.one_in(2)) break;
      if (settings.forks && !in_child && worker.brood != nullptr) fork_and_check(worker);
      break;
    case 2:
    case 3:
    case 4:
      if (!in_child && worker.brood != nullptr) raise_brood(worker);
      break;
    case 5:
    case 6:
      if (worker.brood != nullptr) drain(worker);
      break;
    case 7:
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

unsigned worker_count() { return settings.threads * (1 + kBrood) + crowd_size + 1; }

bool make_workers() {
  crowd_size = choose_crowd_size();
  workers = static_cast<Worker*>(map_pages(worker_count() * sizeof(Worker)));
  if (workers == nullptr || pthread_key_create(&leaving_key, leave_by_key) != 0) return false;
  for (unsigned i = 0; i < worker_count(); ++i) {
    Worker& made = workers[i];
    made.stream = made.where.stream = i;
    made.where.call.store("start");
    bool stream = i < settings.threads;
    bool brood = i < settings.threads * (1 + kBrood);
    made.places = stream ? kBlocks : kBroodBlocks;
    made.most_bytes =
        settings.live_mib * kMiB / (brood ? settings.threads : crowd_size) / (stream ? 1 : 8);
    made.small.places = small_places(made.most_bytes, stream);
    if (stream) made.brood = workers + settings.threads + i * kBrood;
    made.signal_stack = static_cast<unsigned char*>(map_pages(kSignalStack));
    if (made.signal_stack == nullptr) return false;
  }
  init_small();
  return true;
}

Worker& worker(unsigned stream) { return workers[stream]; }
Worker& main_worker() { return workers[worker_count() - 1]; }

Where* where_of(unsigned index) {
  // The youngest first, because their parents wait for them.
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
  int error = start_thread_on(&worker.stack, &worker.thread, stream_thread, &worker);
  if (error != 0) give_up("cannot start a thread (errno %d): allow more processes", error);
  worker.running = true;
  totals.threads.fetch_add(1);
}

void join_thread(Worker& worker) {
  pthread_join(worker.thread, nullptr);
  worker.where.thread.store(0);
  worker.running = false;
}

void raise_crowd() {
  std::atomic<bool> gate{false};
  Worker* crowd = workers + settings.threads * (1 + kBrood);
  uint64_t round = main_worker().where.round.load();
  for (unsigned i = 0; i < crowd_size; ++i) crowd[i].made = (round & 0xFFFF) << kNumberBits;
  raise(crowd, crowd_size, main_worker(), 60, &gate);
}

void become(Worker& worker) {
  where = &worker.where;
  stack_t stack = {};
  stack.ss_sp = worker.signal_stack;
  stack.ss_size = kSignalStack;
  sigaltstack(&stack, nullptr);
  where->thread.store(int(syscall(SYS_gettid)));
}

// A sanitizer makes a burst cost as much as many steps.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kStepsPerBurst = 4;
#else
constexpr uint64_t kStepsPerBurst = 1;
#endif

// A thread that mostly frees others' blocks, that lives for a few steps, or that is alone in a
// child of fork, does less else.
static uint64_t steps_per_burst(const Worker& worker) {
  if (in_child || worker.habit == Habit::kTaker) return 8;
  return worker.brood == nullptr ? 4 : kStepsPerBurst;
}

// A long run goes from round to round: once it has had enough of everything else, it spends its
// time on small blocks, which are checked many times as fast.
static unsigned bursts_at_once() {
  constexpr uint64_t kFirst = 32;
  return !in_child && where->round.load(std::memory_order_relaxed) >= kFirst ? 16 : 1;
}

void step(Worker& worker) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  // Of a thousand operations on a block: free, else resize, else send, else check.
  struct Odds {
    unsigned free, resize, send;
  };
  static constexpr Odds kOdds[] = {{500, 750, 900}, {100, 200, 950}, {800, 900, 920}};
  Odds odds = kOdds[size_t(worker.habit)];
  bool takes = worker.habit == Habit::kTaker;
  Random& random = worker.random;
  uint64_t operation = where->operation.load(kRelaxed) + 1;
  where->operation.store(operation, kRelaxed);
  totals.operations.fetch_add(1, kRelaxed);
  if (operation % (takes ? 2 : 16) == 0 && !in_child) {
    receive(worker);
    receive_small(worker);
  }
  serve_exchange();
  if (operation % steps_per_burst(worker) == 0)
    for (unsigned left = bursts_at_once(); left > 0; --left) small_burst(worker);
  unsigned roll = unsigned(random.below(1000));
  if (roll < 2) return rare(worker);
  if (roll < 5) return batch(worker);
  if (roll < 6) return exchange(worker);
  Block& place = worker.blocks[random.below(worker.places)];
  if (place.p == nullptr) {
    if (!takes || roll < 100) make_block(worker, place);
    return;
  }
  if (roll < odds.free) return free_block(worker, place);
  if (roll < odds.resize) return resize_block(worker, place);
  if (roll < odds.send) return send_block(worker, place);
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
  release_small(worker);
  Block block;
  while (worker.mailbox.take(&block)) release(block, unsigned(block.id));
}

}  // namespace torture
