// Calls of the malloc family by four threads, one at a time, as the bytes say, with the checks of
// the torture test (torture/calls.h): every live block's address, size, alignment and content,
// zeros, errno, and what must fail. Under LARDER_ON_ERROR=ignore a block is also freed twice, and
// by an address within it: neither may have an effect.
//
// A thread ends when the bytes say so, and another takes its place: its heap is used again.
#include "torture/calls.h"

#include <semaphore.h>
#include <stdint.h>
#include <unistd.h>

#include <thread>

#include "torture/index.h"
#include "torture/run.h"

namespace {

using namespace torture;

constexpr int kSlots = 64, kOthers = 3;
constexpr size_t kMostLive = 32 * kMiB;

class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : at_(bytes), end_(bytes + size) {}
  bool empty() const { return at_ == end_; }
  unsigned byte() { return empty() ? 0 : *at_++; }
  // 0 to 4 MiB in 15 octaves, a few bytes more or less.
  size_t size() {
    unsigned first = byte();
    size_t size = (size_t{byte()} << first % 15) + first / 15;
    return size < 8 ? size : size - 8;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

class Calls {
 public:
  ~Calls() {
    for (Block& block : blocks_) free_block(block, 0);
    if (family.check != nullptr) family.check();
  }

  void step(Input& in) {
    Block& block = blocks_[in.byte() % kSlots];
    switch (in.byte() % 8) {
      case 0:
        return make(block, Make::kMalloc, in);
      case 1:
        return make(block, Make::kCalloc, in);
      case 2:
      case 3:
        return make(block, Make(in.byte() % unsigned(Make::kCount)), in);
      case 4:
        return resize_block(block, in);
      case 5:
        return free_block(block, in.byte());
      case 6:
        return free_wrongly(block, in.byte());
      default:
        return rare(in.byte());
    }
  }

 private:
  void make(Block& block, Make make, Input& in) {
    free_block(block, 0);
    size_t size = in.size(), align = 0;
    if (takes_alignment(make)) align = size_t{1} << in.byte() % 20;
    if (make == Make::kPosixMemalign && align < sizeof(void*)) align = sizeof(void*);
    if (!family.has(make) || live_ + size > kMostLive) return;
    block = allocate(make, size, align, ++made_);
    live_ += size;
  }

  void resize_block(Block& block, Input& in) {
    size_t size = in.size();
    if (block.p == nullptr || is_operator(block.make) || size == 0 || live_ + size > kMostLive)
      return;
    live_ -= block.asked;
    resize(&block, size, in.byte() % 2 == 0);
    live_ += size;
  }

  void free_block(Block& block, unsigned form) {
    if (block.p == nullptr) return;
    live_ -= block.asked;
    release(block, form);
    block = {};
  }

  void free_wrongly(Block& block, unsigned how) {
    if (block.p == nullptr) return;
    unsigned char* p = block.p;
    if (how % 2 == 0)
      free_block(block, how / 2);
    else if (block.asked < 2)
      return;
    else
      p += 1 + how % (block.asked - 1);
    family.free(p);
    if (block.p != nullptr) check(block);
  }

  void rare(unsigned what) {
    if (what >= 16) return ask_for_the_impossible(what);
    if (family.trim != nullptr) family.trim(0);
  }

  Block blocks_[kSlots] = {};
  size_t live_ = 0;
  uint64_t made_ = 0;
};

// The calling thread may call the allocator from now on.
void become_a_caller() {
  thread_local Where here{};
  where = &here;
}

// A thread that carries out single steps while the first waits.
class Other {
 public:
  Other() {
    sem_init(&asked_, 0, 0);
    sem_init(&answered_, 0, 0);
  }
  void step(Calls& calls, Input& in) {
    if (!runs_) thread_ = std::thread([this] { serve(); });
    runs_ = true;
    calls_ = &calls;
    in_ = &in;
    ask();
  }
  void end() {
    if (!runs_) return;
    calls_ = nullptr;
    ask();
    thread_.join();
    runs_ = false;
  }

 private:
  static void wait(sem_t& event) {
    while (sem_wait(&event) != 0) {
    }
  }
  void ask() {
    sem_post(&asked_);
    wait(answered_);
  }
  void serve() {
    become_a_caller();
    for (bool goes_on = true; goes_on;) {
      wait(asked_);
      goes_on = calls_ != nullptr;
      if (goes_on) calls_->step(*in_);
      sem_post(&answered_);
    }
  }
  sem_t asked_, answered_;
  std::thread thread_;
  bool runs_ = false;
  Calls* calls_ = nullptr;
  Input* in_ = nullptr;
};

bool begin() {
  settings.aborts = true;
  settings.process = getpid();
  set_pattern_seed(1);
  become_a_caller();
  if (!find_family() || !live_blocks::init()) give_up("there is no malloc to test, or no memory");
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const bool begun = begin();
  static auto* others = new Other[kOthers];
  (void)begun;
  Input in(bytes, size);
  Calls calls;
  while (!in.empty()) {
    unsigned who = in.byte();
    if (who % 8 >= kOthers)
      calls.step(in);
    else if (who < 0xF0)
      others[who % 8].step(calls, in);
    else
      others[who % 8].end();
  }
  return 0;
}
