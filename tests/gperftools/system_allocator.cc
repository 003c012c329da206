// A program with a memory source of its own, by gperftools' malloc_extension.h.
#include <errno.h>
#include <gperftools/malloc_extension.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "../alloc/support.h"

namespace {

MallocExtension* extension() { return MallocExtension::instance(); }

constexpr size_t kMib = size_t{1} << 20;

// Memory that is not zeroed, used from the front; the source allocates during a request.
class Arena : public SysAllocator {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    base_ = static_cast<char*>(memset(p, 0xab, bytes));
  }
  void* Alloc(size_t size, size_t* actual_size, size_t alignment) override {
    std::string reported(200, 'x');
    free(opaque(malloc(100'000)));
    errno = EBADF;
    const uintptr_t at = (uintptr_t(base_) + used_ + alignment - 1) / alignment * alignment;
    if (size > bytes_ || at - uintptr_t(base_) > bytes_ - size) return nullptr;
    used_ = at - uintptr_t(base_) + size;
    *actual_size = size;
    return reinterpret_cast<void*>(at);
  }
  bool has(const void* p) const { return size_t(static_cast<const char*>(p) - base_) < bytes_; }
  size_t used() const { return used_; }

 private:
  static void* opaque(void* p) {
    asm volatile("" : "+r"(p));
    return p;
  }
  char* base_;
  size_t bytes_, used_ = 0;
};

// All of its memory is the library's; and a source that reports nothing about itself.
class Other : public SysAllocator {
 public:
  explicit Other(SysAllocator* below) : below_(below) {}
  void* Alloc(size_t size, size_t* actual_size, size_t alignment) override {
    ++calls;
    if (below_ != nullptr) return below_->Alloc(size, actual_size, alignment);
    *actual_size = calls % 2 == 0 ? size - 1 : SIZE_MAX;
    return reinterpret_cast<void*>(uintptr_t{1} << 46);
  }
  int calls = 0;

 private:
  SysAllocator* below_;
};

bool all_zero(const char* p, size_t size) { return *p == 0 && memcmp(p, p + 1, size - 1) == 0; }

void check_default(SysAllocator* source) {
  CHECK(source != nullptr);
  size_t actual = 0;
  auto* p = static_cast<char*>(source->Alloc(3 * kMib + 5, &actual, 4 * kMib));
  CHECK(p != nullptr && uintptr_t(p) % (4 * kMib) == 0 && actual >= 3 * kMib + 5);
  memset(p, 1, actual);
  CHECK(source->Alloc(0, &actual, 1) == nullptr);
  CHECK(source->Alloc(SIZE_MAX, &actual, 4096) == nullptr);
  CHECK(source->Alloc(4096, &actual, 12345) == nullptr);
}

void check_objects(const Arena& arena) {
  // Small ones: the heap's first region may be half empty.
  std::vector<char*> small;
  for (size_t i = 0; i < 24 * kMib / 4096; ++i) {
    small.push_back(static_cast<char*>(calloc(1, 4000)));
    CHECK(all_zero(small.back(), 4000));
  }
  CHECK(arena.has(small.back()));
  for (char* p : small) free(p);
  auto* large = static_cast<char*>(calloc(1, 5 * kMib));
  CHECK(arena.has(large) && all_zero(large, 5 * kMib));
  large[0] = large[5 * kMib - 1] = 'l';
  for (size_t mib = 6; mib <= 20; mib += 7) {
    large = static_cast<char*>(realloc(large, mib * kMib));
    CHECK(arena.has(large) && large[0] == 'l' && large[5 * kMib - 1] == 'l');
  }
  free(large);
  void* aligned = aligned_alloc(8 * kMib, 3 * kMib);
  CHECK(arena.has(aligned) && uintptr_t(aligned) % (8 * kMib) == 0);
  free(aligned);
}

// Freed memory is reused.
void check_reuse(const Arena& arena) {
  extension()->ReleaseFreeMemory();
  size_t used = 0;
  for (int i = 0; i < 50; ++i) {
    auto* p = static_cast<char*>(calloc(1, 9 * kMib));
    CHECK(arena.has(p) && all_zero(p, 9 * kMib));
    memset(p, 7, 9 * kMib);
    free(p);
    extension()->ReleaseFreeMemory();
    if (i == 0) used = arena.used();
  }
  CHECK(arena.used() == used);
}

void check_refused(size_t more_than_there_is) {
  errno = 0;
  CHECK(malloc(more_than_there_is) == nullptr && errno == ENOMEM);
  errno = 77;
  free(malloc(100));
  CHECK(errno == 77);
}

void check_threads_and_fork() {
  auto work = [] {
    for (size_t i = 0; i < 20'000; ++i) {
      const size_t size = i % 1000 == 0 ? 2 * kMib : i % 9000;
      free(memset(malloc(size), 3, size));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(work);
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(extension()->VerifyAllMemory() ? 5 : 6);
  }
  for (std::thread& thread : threads) thread.join();
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

}  // namespace

int main() {
  SysAllocator* own = extension()->GetSystemAllocator();
  check_default(own);
  Arena arena(256 * kMib);
  extension()->SetSystemAllocator(&arena);
  CHECK(extension()->GetSystemAllocator() == &arena);
  void* from_arena = malloc(2 * kMib);
  CHECK(arena.has(from_arena));
  check_objects(arena);
  check_reuse(arena);
  check_refused(256 * kMib);
  check_threads_and_fork();
  Other falls_back(own), lies(nullptr);
  extension()->SetSystemAllocator(&lies);
  check_refused(300 * kMib);
  CHECK(lies.calls > 0);
  extension()->SetSystemAllocator(&falls_back);
  void* large = malloc(300 * kMib);
  CHECK(large != nullptr && !arena.has(large) && falls_back.calls > 0);
  free(large);
  extension()->SetSystemAllocator(nullptr);
  CHECK(extension()->GetSystemAllocator() == own);
  free(memset(malloc(400 * kMib), 1, 400 * kMib));
  free(from_arena);
  CHECK(extension()->VerifyAllMemory());
  return 0;
}
