#include "os/backing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

#include "base/policy.h"
#include "base/stats.h"
#include "os/environment.h"
#include "os/line.h"
#include "os/options.h"
#include "os/os.h"
#include "os/os_file.h"

namespace larder::backing {

namespace {

// The lock guards which chunks are in use; the rest is constant once the window is open, except in
// fork's child.
struct Window {
  const char* variable;
  Window* next_of_source = nullptr;
  char* base = nullptr;  // a multiple of kSegmentBytes
  size_t chunks = 0;
  uint8_t* used = nullptr;  // pages in use, by chunk
  size_t in_use = 0;        // chunks
  size_t max_in_use = SIZE_MAX;
  size_t next = 1;  // where the next search begins
  size_t system_page = 0;
  bool shared = false;
  bool device = false;  // not zeroed, and cannot be discarded
  bool copied = false;  // in fork's child: now ordinary memory
  bool closed = false;  // gives no more memory
  bool reported = false;

  bool contains(const void* p) const {
    return size_t(static_cast<const char*>(p) - base) < chunks * kSegmentBytes;
  }
};

struct Backing {
  Lock lock;
  // Not plain mmap alone; never reset. Relaxed: a thread with memory of a window got it from one
  // that held the lock.
  std::atomic<bool> special{false};
  bool ready LARDER_GUARDED_BY(lock) = false;
  bool use_mmap = true;  // written once, before the first request
  Window windows[2] = {{.variable = "MEMFS_MALLOC_PATH"}, {.variable = "DEVMEM_START"}};
  int copied_pipe[2] = {-1, -1};                    // fork's, which holds the lock
  Source source LARDER_GUARDED_BY(lock) = nullptr;  // guarded like its context
  void* source_context LARDER_GUARDED_BY(lock) = nullptr;
  // By next_of_source; never removed. Relaxed under the lock, and where it is compared alone.
  std::atomic<Window*> of_source{nullptr};
};
constinit Backing backing;

Window& memfs = backing.windows[0];
Window& device = backing.windows[1];
static_assert(kPagesPerSegment < 256, "a chunk's units are counted in a byte");

Line& put_error(Line& line, int error) {
  const char* text = os::error_text(error);
  return text != nullptr ? line.put(text) : line.put("error ").put_number(size_t(error));
}

void say_unusable(const char* variable, const char* what, const char* why, int error) {
  Line line;
  line.put("LARDER_").put(variable).put(": ").put(what).put(": ");
  if (error != 0)
    put_error(line, error);
  else
    line.put(why);
  line.put("; memory comes from elsewhere").write();
}

// --- windows

// Calls visit(chunk, pages of it in the range) for each chunk of [addr, addr + size_bytes).
template <typename Visit>
void for_each_chunk(const Window& w, const void* addr, size_t size_bytes, Visit visit) {
  auto at = size_t(static_cast<const char*>(addr) - w.base);
  for (size_t end = at + size_bytes; at < end;) {
    size_t chunk = at / kSegmentBytes;
    size_t upto = (chunk + 1) * kSegmentBytes < end ? (chunk + 1) * kSegmentBytes : end;
    visit(chunk, uint8_t((upto - at) / kPageBytes));
    at = upto;
  }
}

// The first of `count` unused chunks in a row at a multiple of `align`, or 0.
size_t find_chunks(const Window& w, size_t count, size_t align, size_t from, size_t end) {
  size_t free = 0;
  for (size_t i = from; i + 1 < end; ++i) {
    bool start = (uintptr_t(w.base + i * kSegmentBytes) & (align - 1)) == 0;
    free = w.used[i] != 0 ? 0 : free != 0 || start ? free + 1 : 0;
    if (free == count) return i + 1 - count;
  }
  return 0;
}

// Populates the range, so that touching it cannot fail. Before Linux 5.14 it stays as it is.
bool populate(void* addr, size_t size_bytes) {
  return os::populate(addr, size_bytes, true) != os::Populated::kNo;
}

bool release(const Window& w, void* addr, size_t size_bytes) {
  if (w.device || ((uintptr_t(addr) | size_bytes) & (w.system_page - 1)) != 0) return false;
  return w.shared && !w.copied ? os::punch(addr, size_bytes) : os::discard(addr, size_bytes);
}

void release_chunks(Window& w, void* addr, size_t size_bytes) LARDER_REQUIRES(backing.lock) {
  if (!w.device) release(w, addr, size_bytes);
  for_each_chunk(w, addr, size_bytes, [&w](size_t chunk, uint8_t pages) {
    w.used[chunk] = uint8_t(w.used[chunk] - pages);
    if (w.used[chunk] != 0) return;
    release(w, w.base + chunk * kSegmentBytes, kSegmentBytes);
    --w.in_use;
  });
}

void refuse(Window& w, const char* why) LARDER_REQUIRES(backing.lock) {
  if (&w == &memfs && option(Option::kMemfsAbortOnFail) != 0) {
    Line().put("LARDER_MEMFS_ABORT_ON_FAIL: ").put(why).write();
    abort();
  }
  if (w.reported) return;
  w.reported = true;
  Line line;
  line.put("LARDER_").put(w.variable).put(": ").put(why);
  line.put("; more memory comes from elsewhere").write();
}

void* take(Window& w, size_t size_bytes, size_t align) LARDER_REQUIRES(backing.lock) {
  if (w.closed || w.chunks == 0) return nullptr;
  size_t count = (size_bytes + kSegmentBytes - 1) / kSegmentBytes;
  if (align < kSegmentBytes) align = kSegmentBytes;
  size_t first = 0;
  if (w.in_use + count <= w.max_in_use) {
    first = find_chunks(w, count, align, w.next, w.chunks);
    if (first == 0) first = find_chunks(w, count, align, 1, w.chunks);
  }
  if (first == 0) {
    refuse(w, "its limit is reached");
    return nullptr;
  }
  char* p = w.base + first * kSegmentBytes;
  for_each_chunk(w, p, size_bytes, [&w](size_t chunk, uint8_t pages) { w.used[chunk] = pages; });
  w.in_use += count;
  w.next = first + count;
  if (w.device) {
    memset(p, 0, size_bytes);
  } else if (!populate(p, size_bytes)) {
    release_chunks(w, p, size_bytes);
    w.closed = option(Option::kMemfsIgnoreMmapFail) == 0;
    refuse(w, "the file system has no more memory");
    return nullptr;
  }
  return p;
}

// Maps as much of the file as fits in the address space: whole chunks, aligned.
bool open_window(Window& w, int file, size_t bytes, uint64_t offset, bool exact) {
  for (; bytes >= kMinWindowBytes || (exact && bytes >= 3 * kSegmentBytes); bytes /= 2) {
    bytes = round_down(bytes, kSegmentBytes);
    void* place = os::map_aligned(bytes, kSegmentBytes);
    if (place == nullptr) continue;
    // Address space alone: the file is mapped over it.
    stats::add(stats::kMappedBytes, -int64_t(bytes));
    stats::add(stats::kMappedTotalBytes, -int64_t(bytes));
    size_t chunks = bytes / kSegmentBytes;
    if (int error = -os::map_file(place, bytes, file, offset, w.shared)) {
      say_unusable(w.variable, "it cannot be mapped", nullptr, error);
      return false;
    }
    w.used = static_cast<uint8_t*>(os::map(round_up(chunks, os::page_size())));
    if (w.used == nullptr) return false;
    w.base = static_cast<char*>(place);
    w.chunks = chunks;
    return true;
  }
  say_unusable(w.variable, "its window", "too little memory or address space", 0);
  return false;
}

void init_memfs(const char* path) {
  int file = os::create_unnamed(path);
  if (file < 0) return say_unusable(memfs.variable, path, nullptr, -file);
  os::FileKind kind = os::file_kind(file);
  memfs.system_page = kind.page_bytes;
  memfs.shared = option(Option::kMemfsMapPrivate) == 0;
  if (size_t limit = option(Option::kMemfsLimitMib))
    memfs.max_in_use = (limit << 20) / kSegmentBytes;
  if (!kind.in_memory)
    say_unusable(memfs.variable, path, "neither tmpfs nor hugetlbfs is mounted there", 0);
  else if (memfs.system_page > kSegmentBytes)
    say_unusable(memfs.variable, path, "its pages are larger than 2 MiB", 0);
  else if (int error = -os::set_file_size(file, kMaxWindowBytes))
    say_unusable(memfs.variable, path, nullptr, error);
  else
    open_window(memfs, file, kMaxWindowBytes, 0, false);
  os::close(file);
}

void init_device(uint64_t start, const char* path) {
  int file = os::open_to_write(path);
  if (file < 0) return say_unusable(device.variable, path, nullptr, -file);
  uint64_t end = option(Option::kDevmemLimitMib) << 20;
  // Memory beyond a file's end cannot be touched.
  uint64_t end_of_file = os::file_kind(file).end;
  if (end_of_file != UINT64_MAX && (end == 0 || end > end_of_file)) end = end_of_file;
  if (end == 0) end = start + kMaxWindowBytes;
  device.system_page = os::page_size();
  device.shared = device.device = true;
  if (end <= start || end - start < 3 * kSegmentBytes)
    say_unusable(device.variable, path, "there are less than 6 MiB from the start to the limit", 0);
  else
    open_window(device, file, size_t(end - start), start, true);
  os::close(file);
}

// --- the program's source

// Asks the source for `count` chunks, as a window of the whole chunks in it. nullptr: too little.
Window* ask_source(size_t count) LARDER_REQUIRES(backing.lock) {
  size_t bytes = count * kSegmentBytes, actual = bytes;
  int saved = errno;
  auto p = reinterpret_cast<uintptr_t>(
      backing.source(backing.source_context, bytes, &actual, kSegmentBytes));
  errno = saved;
  if (p == 0 || actual < bytes || actual > kMaxSize || p > UINTPTR_MAX - actual) return nullptr;
  uintptr_t base = round_up(p, kSegmentBytes);
  size_t chunks = base - p >= actual ? 0 : (actual - (base - p)) / kSegmentBytes;
  if (chunks < 3) return nullptr;
  auto* memory = static_cast<char*>(os::map(round_up(sizeof(Window) + chunks, os::page_size())));
  if (memory == nullptr) return nullptr;
  auto* w = new (memory) Window{.variable = ""};
  w->base = reinterpret_cast<char*>(base);
  w->chunks = chunks;
  w->used = reinterpret_cast<uint8_t*>(memory + sizeof(Window));
  w->system_page = os::page_size();
  w->device = true;
  w->reported = true;
  os::count_as_own(w->base, chunks * kSegmentBytes);
  w->next_of_source = backing.of_source.load(std::memory_order_relaxed);
  backing.of_source.store(w, std::memory_order_release);
  return w;
}

// Asks for as much as the source has returned so far, up to kMaxSourceChunks. On refusal it asks
// for the minimum: the request, a chunk at both ends, and room for `align`.
void* take_from_source(size_t size_bytes, size_t align) LARDER_REQUIRES(backing.lock) {
  size_t so_far = 0;
  for (Window* w = backing.of_source.load(std::memory_order_relaxed); w != nullptr;
       w = w->next_of_source) {
    if (void* p = take(*w, size_bytes, align)) return p;
    so_far += w->chunks;
  }
  size_t least = (size_bytes + kSegmentBytes - 1) / kSegmentBytes + 2 +
                 (align > kSegmentBytes ? align / kSegmentBytes - 1 : 0);
  size_t more = so_far < kMaxSourceChunks ? so_far : kMaxSourceChunks;
  Window* w = more > least ? ask_source(more) : nullptr;
  if (w == nullptr) w = ask_source(least);
  return w != nullptr ? take(*w, size_bytes, align) : nullptr;
}

void* taken(void* p, size_t size_bytes) {
  stats::add(stats::kMappedBytes, int64_t(size_bytes));
  stats::add(stats::kMappedTotalBytes, int64_t(size_bytes));
  return p;
}

LARDER_SLOW void* map_special(size_t size_bytes, size_t align) {
  LockGuard guard(backing.lock);
  if (backing.source != nullptr) {
    void* p = take_from_source(size_bytes, align);
    return p != nullptr ? taken(p, size_bytes) : nullptr;
  }
  for (Window& w : backing.windows)
    if (void* p = take(w, size_bytes, align)) return taken(p, size_bytes);
  if (memfs.chunks != 0 && !memfs.copied && option(Option::kMemfsDisableFallback) != 0)
    return nullptr;
  return backing.use_mmap ? os::map_aligned(size_bytes, align) : os::grow_break(size_bytes, align);
}

Window* window_of(const void* p) {
  if (likely(!backing.special.load(std::memory_order_relaxed))) return nullptr;
  for (Window& w : backing.windows)
    if (w.contains(p)) return &w;
  Window* w = backing.of_source.load(std::memory_order_acquire);
  while (w != nullptr && !w->contains(p)) w = w->next_of_source;
  return w;
}

bool any_shared() {
  for (const Window& w : backing.windows)
    if (w.chunks != 0 && w.shared && !w.copied) return true;
  return false;
}

// Replaces used chunks by ordinary memory with the same content.
bool copy(Window& w) {
  for (size_t i = 1; i < w.chunks;) {
    size_t first = i;
    while (i < w.chunks && w.used[i] != 0) ++i;
    size_t bytes = (i - first) * kSegmentBytes;
    if (bytes == 0) {
      ++i;
      continue;
    }
    char* from = w.base + first * kSegmentBytes;
    if (!w.device && os::populate(from, bytes, false) == os::Populated::kNo) return false;
    void* to = os::map(bytes);
    if (to == nullptr) return false;
    memcpy(to, from, bytes);
    if (!os::move_pages(to, bytes, from, bytes)) return false;
  }
  w.copied = w.closed = true;
  w.device = false;
  w.system_page = os::page_size();
  return true;
}

}  // namespace

// There is one thread: it is the constructor, or runs before it.
void init() LARDER_UNCHECKED {
  if (backing.ready || environ == nullptr) return;
  backing.ready = true;
  read_options_from_environment();
  size_t skip_sbrk = option(Option::kSkipSbrk);
  backing.use_mmap = option(Option::kSkipMmap) == 0;
  if (!backing.use_mmap && skip_sbrk == 1) {
    Line().put("LARDER_SKIP_MMAP and LARDER_SKIP_SBRK leave nothing; mmap is used").write();
    backing.use_mmap = true;
  }
  if (skip_sbrk == 0) os::use_break_when_refused();
  if (const char* path = variable("MEMFS_MALLOC_PATH", "TCMALLOC_")) init_memfs(path);
  if (size_t start = option(Option::kDevmemStartMib)) {
    const char* path = variable("DEVMEM_DEVICE", "TCMALLOC_");
    init_device(uint64_t{start} << 20, path != nullptr ? path : "/dev/mem");
  }
  if (!backing.use_mmap || memfs.chunks != 0 || device.chunks != 0)
    backing.special.store(true, std::memory_order_relaxed);
}

void set_source(Source source, void* context) {
  init();
  LockGuard guard(backing.lock);
  backing.source = source;
  backing.source_context = context;
  if (source != nullptr) backing.special.store(true, std::memory_order_relaxed);
}

void* source_context() {
  LockGuard guard(backing.lock);
  return backing.source_context;
}

void* map_for_source(size_t size_bytes, size_t align) {
  if (align < os::page_size()) align = os::page_size();
  if ((align & (align - 1)) != 0 || size_bytes == 0 || size_bytes > kMaxSize) return nullptr;
  size_t bytes = round_up(size_bytes, os::page_size());
  void* p = backing.use_mmap ? os::map_aligned(bytes, align) : os::grow_break(bytes, align);
  // Counted when it is handed out.
  if (p != nullptr) {
    stats::add(stats::kMappedBytes, -int64_t(bytes));
    stats::add(stats::kMappedTotalBytes, -int64_t(bytes));
  }
  return p;
}

void* map_aligned(size_t size_bytes, size_t align) {
  return likely(!backing.special.load(std::memory_order_relaxed))
             ? os::map_aligned(size_bytes, align)
             : map_special(size_bytes, align);
}

bool unmap(void* addr, size_t size_bytes) {
  Window* w = window_of(addr);
  if (likely(w == nullptr)) return os::unmap(addr, size_bytes);
  LockGuard guard(backing.lock);
  release_chunks(*w, addr, size_bytes);
  stats::add(stats::kMappedBytes, -int64_t(size_bytes));
  return true;
}

os::Resized resize_in_place(void* addr, size_t old_bytes, size_t new_bytes) {
  if (window_of(addr) != nullptr || os::from_break(addr)) return os::Resized::kRefused;
  return os::resize_in_place(addr, old_bytes, new_bytes);
}

bool discard(void* addr, size_t size_bytes) {
  Window* w = window_of(addr);
  return likely(w == nullptr) ? os::discard(addr, size_bytes) : release(*w, addr, size_bytes);
}

bool ask_for_huge_pages(void* addr, size_t size_bytes) {
  return window_of(addr) == nullptr && os::ask_for_huge_pages(addr, size_bytes);
}

bool forbid_huge_pages(void* addr, size_t size_bytes) {
  return window_of(addr) == nullptr && os::forbid_huge_pages(addr, size_bytes);
}

bool close(void* addr, size_t size_bytes) {
  return window_of(addr) == nullptr && !os::from_break(addr) && os::decommit(addr, size_bytes);
}

bool open(void* addr, size_t size_bytes) { return os::commit(addr, size_bytes); }

unsigned max_segments() {
  bool windows = memfs.chunks != 0 || device.chunks != 0 ||
                 backing.of_source.load(std::memory_order_relaxed) != nullptr;
  return windows ? kMaxWindowSegments : 64;  // at most a bit each in free_segments
}

Lock& lock() { return backing.lock; }

void before_fork() {
  if (any_shared()) os::make_pipe(backing.copied_pipe);
}

void after_fork_in_parent() {
  if (!any_shared() || backing.copied_pipe[0] < 0) return;
  os::close(backing.copied_pipe[1]);
  // End of file: the child has its copy, or does not exist.
  char byte;
  os::read(backing.copied_pipe[0], &byte, 1);
  os::close(backing.copied_pipe[0]);
  backing.copied_pipe[0] = -1;
}

void after_fork_in_child() {
  if (!any_shared()) return;
  for (Window& w : backing.windows) {
    if (w.chunks == 0 || !w.shared || w.copied || copy(w)) continue;
    Line()
        .put("LARDER_")
        .put(w.variable)
        .put(": no memory for fork's copy; the child ends")
        .write();
    os::end_process(127);
  }
  if (backing.copied_pipe[0] < 0) return;
  os::close(backing.copied_pipe[0]);
  os::close(backing.copied_pipe[1]);
  backing.copied_pipe[0] = -1;
}

}  // namespace larder::backing
