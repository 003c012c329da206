#include "thread.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <new>

namespace replay {

Shared shared;

namespace {

constexpr size_t kPage = 4096;
constexpr auto kRelaxed = std::memory_order_relaxed;

// The file of operations is standard input; threads share it, because only offsets are used.
// Returns the number of bytes: the last chunk of a file may be short.
size_t read_at(uint64_t offset, void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t n =
        pread(STDIN_FILENO, static_cast<char*>(to) + done, bytes - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up(kExitUsage, "the operations cannot be read: %s", strerror(errno));
    if (n == 0) break;
    done += size_t(n);
  }
  return done;
}

struct Buffer {
  union {
    Buffer* next;
    ChunkHeader header;
  };
  uint64_t words[kChunkWords];
};
static_assert(sizeof(Buffer) == kChunkBytes);

pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
Buffer* free_buffers;

Buffer* take_buffer() {
  pthread_mutex_lock(&buffers_lock);
  Buffer* buffer = free_buffers;
  if (buffer != nullptr) free_buffers = buffer->next;
  pthread_mutex_unlock(&buffers_lock);
  if (buffer != nullptr) return buffer;
  // Threads may run a little longer than in the trace.
  shared.counts.unplanned.fetch_add(sizeof(Buffer), kRelaxed);
  return static_cast<Buffer*>(map_resident(sizeof(Buffer)));
}

void give_back(Buffer* buffer) {
  pthread_mutex_lock(&buffers_lock);
  buffer->next = free_buffers;
  free_buffers = buffer;
  pthread_mutex_unlock(&buffers_lock);
}

// A thread's words, chunk by chunk.
class Words {
 public:
  explicit Words(uint32_t thread) : buffer_(take_buffer()) {
    uint64_t first = 0;
    if (thread >= shared.header.threads ||
        read_at(shared.header.table + uint64_t(thread) * sizeof first, &first, sizeof first) !=
            sizeof first)
      give_up_damaged();
    buffer_->header = {0, 0, first};
    at_ = end_ = buffer_->words;
  }
  ~Words() { give_back(buffer_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  // kEnd behind the last word.
  uint64_t next() {
    while (at_ == end_) {
      if (buffer_->header.next == 0) return uint64_t(Code::kEnd);
      refill();
    }
    return *at_++;
  }

 private:
  // Chunks of a thread that lead back in the file would never end.
  void refill() {
    const uint64_t offset = buffer_->header.next;
    const size_t there = offset > offset_ ? read_at(offset, buffer_, sizeof *buffer_) : 0;
    if (there < sizeof(ChunkHeader) ||
        (there - sizeof(ChunkHeader)) / sizeof(uint64_t) < buffer_->header.words)
      give_up_damaged();
    offset_ = offset;
    at_ = buffer_->words;
    end_ = at_ + buffer_->header.words;
  }

  Buffer* buffer_;
  uint64_t offset_ = 0;  // of the chunk in it; 0: none yet
  const uint64_t* at_;
  const uint64_t* end_;
};

// One operation, with its prefixes applied.
struct Operation {
  Code code;
  size_t size;
  size_t align;  // 0: none was requested
};

const char* name_of(Code code) {
  switch (code) {
    case Code::kMalloc:
      return "malloc";
    case Code::kCalloc:
      return "calloc";
    case Code::kAlignedAlloc:
      return "aligned_alloc";
    case Code::kPosixMemalign:
      return "posix_memalign";
    case Code::kMemalign:
      return "memalign";
    case Code::kValloc:
      return "valloc";
    case Code::kPvalloc:
      return "pvalloc";
    case Code::kNew:
      return "operator new";
    case Code::kNewArray:
      return "operator new[]";
    case Code::kRealloc:
      return "realloc";
    default:
      return "operation";
  }
}

// nullptr if there is no memory.
void* call_new(const Operation& op) {
  const bool array = op.code == Code::kNewArray;
  try {
    if (op.align == 0) return array ? ::operator new[](op.size) : ::operator new(op.size);
    const auto align = std::align_val_t(op.align);
    return array ? ::operator new[](op.size, align) : ::operator new(op.size, align);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* make(const Operation& op) {
  if (shared.dry) return &shared;
  switch (op.code) {
    case Code::kMalloc:
      return malloc(op.size);
    case Code::kCalloc:
      return calloc(1, op.size);
    case Code::kAlignedAlloc:
      return aligned_alloc(op.align, op.size);
    case Code::kPosixMemalign: {
      void* p = nullptr;
      return posix_memalign(&p, op.align, op.size) == 0 ? p : nullptr;
    }
    case Code::kMemalign:
      return memalign(op.align, op.size);
    case Code::kValloc:
      return valloc(op.size);
    case Code::kPvalloc:
      return pvalloc(op.size);
    default:
      return call_new(op);
  }
}

void end(const Operation& op, void* p) {
  if (shared.dry) return;
  if (op.code == Code::kFree) return free(p);
  const bool array = op.code == Code::kDeleteArray;
  if (op.align != 0) {
    const auto align = std::align_val_t(op.align);
    return array ? ::operator delete[](p, align) : ::operator delete(p, align);
  }
  if (op.size != 0) return array ? ::operator delete[](p, op.size) : ::operator delete(p, op.size);
  return array ? ::operator delete[](p) : ::operator delete(p);
}

// Writes to the new pages of a block, like the program; after a realloc, also to the last byte of
// the old contents.
void touch(Slot& slot, size_t size) {
  if (size == 0 || shared.dry || shared.touch == Touch::kNone) return;
  volatile char* bytes = static_cast<char*>(slot.p);
  if (shared.touch == Touch::kEdges) {
    bytes[0] = 1;
  } else {
    for (size_t at = size_t(slot.touched) * kPage; at < size; at += kPage) bytes[at] = 1;
    slot.touched = uint32_t(size / kPage + 1);
  }
  bytes[size - 1] = 1;
}

class Thread {
 public:
  explicit Thread(uint32_t number) : words_(number) {}

  void run() {
    for (;;) {
      const uint64_t word = words_.next();
      const auto code = Code(word & ((1u << kCodeBits) - 1));
      const auto small = uint32_t(word) >> kCodeBits;
      const auto value = uint32_t(word >> 32);
      switch (code) {
        case Code::kEnd:
          return finish();
        case Code::kAlign:
          align_ = size_t(1) << (value & 63);
          break;
        case Code::kWait:
          wait_ = true, turn_ = value;
          break;
        case Code::kHigh:
          high_ = value;
          break;
        case Code::kLap:
          begin_lap(value);
          break;
        case Code::kSpawn:
          spawn(value);
          break;
        default:
          operate(code, small, value);
      }
    }
  }

 private:
  void operate(Code code, uint32_t number, uint32_t low) {
    if (number >= shared.header.slots || code > Code::kDeleteArray) give_up_damaged();
    Slot& slot = shared.slots[number];
    const Operation op = {code, size_t(uint64_t(high_) << 32 | low), align_};
    if (wait_) await(slot);
    if (code == Code::kRealloc) {
      resize(slot, op.size);
    } else if (code >= Code::kFree) {
      ++frees_;
      end(op, slot.p);
      slot.p = nullptr;
    } else {
      ++makes_;
      bytes_ += op.size;
      slot.p = make(op);
      if (slot.p == nullptr && op.size != 0) no_memory(op);
      slot.touched = 0;
      touch(slot, op.size);
    }
    slot.turn.store(slot.turn.load(kRelaxed) + 1, std::memory_order_release);
    align_ = 0;
    high_ = 0;
  }

  void resize(Slot& slot, size_t size) {
    ++reallocs_;
    bytes_ += size;
    void* old = slot.p;
    // Some allocators free the block if the size is 0.
    slot.p = shared.dry ? &shared : realloc(old, size != 0 ? size : 1);
    if (slot.p == nullptr) no_memory({Code::kRealloc, size, 0});
    if (old == nullptr) slot.touched = 0;
    touch(slot, size);
  }

  void await(Slot& slot) {
    wait_ = false;
    ++handed_;
    for (unsigned tries = 0; slot.turn.load(std::memory_order_acquire) != turn_; ++tries) {
      constexpr unsigned kSpins = 200, kYields = 1000;
      if (tries == 0) ++waits_;
      if (tries < kSpins) {
        pause_briefly();
      } else if (tries < kYields) {
        sched_yield();
      } else {
        const timespec wait = {0, 50'000};
        nanosleep(&wait, nullptr);
      }
    }
  }

  void begin_lap(uint32_t lap) {
    const uint64_t done_2 = words_.next();
    const uint64_t done_3 = words_.next();
    if (in_lap_) shared.pace.finish(lap_);
    shared.pace.begin(lap, uint32_t(done_2), uint32_t(done_3));
    in_lap_ = true;
    lap_ = lap;
  }

  static void* start(void* number) {
    run_thread(uint32_t(reinterpret_cast<uintptr_t>(number)));
    if (shared.live_threads.fetch_sub(1) == 1) futex_wake(shared.live_threads, 1);
    return nullptr;
  }

  static void spawn(uint32_t number) {
    // All except the first, once each.
    if (shared.spawned.fetch_add(1, kRelaxed) + 1 >= shared.header.threads) give_up_damaged();
    shared.live_threads.fetch_add(1);
    pthread_t thread;
    const int error =
        pthread_create(&thread, nullptr, start, reinterpret_cast<void*>(uintptr_t(number)));
    if (error != 0)
      give_up(kExitNoMemory, "thread %u cannot be started: %s", number, strerror(error));
    pthread_detach(thread);
  }

  [[noreturn]] void no_memory(const Operation& op) {
    give_up(kExitNoMemory, "%s of %zu bytes has failed", name_of(op.code), op.size);
  }

  void finish() {
    if (in_lap_) shared.pace.finish(lap_);
    Counts& counts = shared.counts;
    counts.makes.fetch_add(makes_, kRelaxed);
    counts.frees.fetch_add(frees_, kRelaxed);
    counts.reallocs.fetch_add(reallocs_, kRelaxed);
    counts.bytes.fetch_add(bytes_, kRelaxed);
    counts.handed.fetch_add(handed_, kRelaxed);
    counts.waits.fetch_add(waits_, kRelaxed);
  }

  Words words_;
  size_t align_ = 0;
  uint32_t high_ = 0;
  uint32_t turn_ = 0;
  uint32_t lap_ = 0;
  bool wait_ = false;
  bool in_lap_ = false;
  uint64_t makes_ = 0, frees_ = 0, reallocs_ = 0, bytes_ = 0, handed_ = 0, waits_ = 0;
};

}  // namespace

void give_up(int code, const char* format, ...) {
  char text[512] = "larder-replay: ";
  size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + length, sizeof text - length - 1, format, arguments);
  va_end(arguments);
  strcat(text, "\n");
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, strlen(text));
  _exit(code);
}

void give_up_damaged() {
  give_up(kExitUsage, "the operations are damaged: compile the trace again");
}

void* map_resident(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0);
  if (p == MAP_FAILED)
    give_up(kExitNoMemory, "no memory for %zu bytes of the replay's own tables", bytes);
  return p;
}

void plan_buffers(uint64_t threads) {
  auto* buffers = static_cast<Buffer*>(map_resident(threads * sizeof(Buffer)));
  for (uint64_t i = threads; i-- > 0;) give_back(&buffers[i]);
}

void run_thread(uint32_t number) { Thread(number).run(); }

}  // namespace replay
