// The guarantees of ISO C, POSIX and glibc for the malloc family, one assertion each.
// Single-threaded; prints the number of promises checked.

#include <pthread.h>
#include <wchar.h>

#include <initializer_list>

#include "support.h"

using namespace alloctest;

namespace {

using FreeSized = void (*)(void*, size_t);
using FreeAlignedSized = void (*)(void*, size_t, size_t);

const size_t kTooBig = static_cast<size_t>(PTRDIFF_MAX) + 1;

template <typename Call>
void expect_enomem(const char* what, Call call) {
  errno = 0;
  void* block = call();
  CHECK_MSG(block == nullptr, "%s must return NULL, returned %p", what, block);
  CHECK_MSG(errno == ENOMEM, "%s must set ENOMEM", what);
}

void zero_sized_requests_are_unique() {
  void* blocks[64];
  for (auto& block : blocks) {
    block = malloc(opaque(size_t{0}));
    CHECK(block != nullptr);
  }
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < i; ++j) CHECK(blocks[i] != blocks[j]);
  }
  for (auto& block : blocks) free(block);
  void* empty = calloc(opaque(size_t{0}), opaque(size_t{8}));
  void* also_empty = calloc(opaque(size_t{8}), opaque(size_t{0}));
  CHECK(empty != nullptr && also_empty != nullptr && empty != also_empty);
  free(empty);
  free(also_empty);
}

void malloc_aligns_every_size() {
  size_t below_16 = 16;
  for (size_t size = 1; size <= 4096; ++size) {
    void* blocks[8];
    for (auto& block : blocks) {
      block = malloc(size);
      CHECK(block != nullptr);
      CHECK_MSG(is_aligned(block, required_alignment(size)), "malloc(%zu) = %p", size, block);
      CHECK(malloc_usable_size(block) >= size);
      if (size < 16 && !is_aligned(block, 16)) below_16 = 8;
      memset(block, 0xA5, size);
    }
    for (auto& block : blocks) free(block);
  }
  for (size_t size = 4097; size < 300 * kMiB; size += size / 7) {
    void* block = malloc(size);
    CHECK(block != nullptr && is_aligned(block, 16));
    static_cast<char*>(block)[size - 1] = 1;
    free(block);
  }
  say("malloc below 16 bytes is aligned to %zu", below_16);
}

void calloc_zeroes_and_detects_overflow() {
  for (size_t size : {size_t{1}, size_t{24}, size_t{1000}, 40 * kKiB, 3 * kMiB, 70 * kMiB}) {
    for (int round = 0; round < 3; ++round) {
      void* block = calloc(1, size);
      CHECK(block != nullptr && is_aligned(block, required_alignment(size)));
      check_zero(block, size);
      memset(block, 0xFF, size);
      free(block);
    }
  }
  expect_enomem("calloc(SIZE_MAX, 2)", [] { return calloc(opaque(SIZE_MAX), opaque(size_t{2})); });
  expect_enomem("calloc(2^32, 2^32)",
                [] { return calloc(opaque(size_t{1} << 32), opaque(size_t{1} << 32)); });
  expect_enomem("calloc(SIZE_MAX / 16 + 2, 16)",
                [] { return calloc(opaque(SIZE_MAX / 16 + 2), opaque(size_t{16})); });
}

void realloc_keeps_its_contract() {
  void* block = realloc(nullptr, opaque(size_t{100}));
  CHECK(block != nullptr);
  fill_pattern(block, 100, 7);
  errno = 0;
  CHECK(realloc(block, opaque(kTooBig)) == nullptr && errno == ENOMEM);
  check_pattern(block, 100, 100, 7);
  block = realloc(block, opaque(size_t{100000}));
  check_pattern(block, 100, 100, 7);
  block = realloc(block, opaque(size_t{50}));
  check_pattern(block, 100, 50, 7);
  CHECK(realloc(block, opaque(size_t{0})) == nullptr);
  void* zero = realloc(nullptr, opaque(size_t{0}));
  CHECK(zero != nullptr);
  CHECK(realloc(zero, opaque(size_t{0})) == nullptr);

  // realloc(p, 0) must free: a leak of 1 MiB an iteration would show.
  const size_t before = rss_bytes();
  for (int i = 0; i < 400; ++i) {
    void* big = malloc(kMiB);
    memset(big, 1, kMiB);
    CHECK(realloc(big, opaque(size_t{0})) == nullptr);
  }
  CHECK_MSG(rss_bytes() < before + 64 * kMiB, "realloc(p, 0) leaks: %.1f MiB more",
            mib(rss_bytes() - before));
}

void reallocarray_detects_overflow() {
  void* block = reallocarray(nullptr, 10, 10);
  CHECK(block != nullptr);
  fill_pattern(block, 100, 9);
  errno = 0;
  CHECK(reallocarray(block, opaque(SIZE_MAX / 4), opaque(size_t{8})) == nullptr);
  CHECK(errno == ENOMEM);
  check_pattern(block, 100, 100, 9);
  block = reallocarray(block, opaque(size_t{1000}), opaque(size_t{10}));
  check_pattern(block, 100, 100, 9);
  CHECK(reallocarray(block, opaque(size_t{0}), opaque(size_t{10})) == nullptr);
}

void free_keeps_errno() {
  for (size_t size :
       {size_t{0}, size_t{8}, size_t{100}, 5 * kKiB, 100 * kKiB, 3 * kMiB, 40 * kMiB, 200 * kMiB}) {
    void* block = malloc(size);
    CHECK(block != nullptr);
    errno = 4242;
    free(block);
    CHECK_MSG(errno == 4242, "free of %zu bytes changed errno", size);
  }
  errno = 4242;
  free(nullptr);
  CHECK(errno == 4242);
}

void posix_memalign_follows_posix() {
  void* const marker = reinterpret_cast<void*>(0x5EED);
  const size_t bad[] = {0, 1, 2, 4, 3, 7, 12, 24, 48, 4095, (size_t{1} << 63) + 8, SIZE_MAX};
  for (size_t alignment : bad) {
    void* block = marker;
    errno = 4242;
    CHECK_MSG(posix_memalign(&block, opaque(alignment), 64) == EINVAL,
              "posix_memalign with alignment %zu must return EINVAL", alignment);
    CHECK_MSG(block == marker, "posix_memalign touched *memptr on EINVAL (%zu)", alignment);
  }
  for (unsigned shift = 3; shift <= 63; ++shift) {
    const size_t alignment = size_t{1} << shift;
    for (size_t size :
         {size_t{0}, size_t{1}, size_t{100}, 5 * kKiB, SIZE_MAX / 2, SIZE_MAX - 64, SIZE_MAX}) {
      void* block = marker;
      const int code = posix_memalign(&block, opaque(alignment), opaque(size));
      if (code == 0) {
        CHECK_MSG(is_aligned(block, alignment) && block != nullptr, "2^%u, size %zu: %p", shift,
                  size, block);
        CHECK(size < kTooBig && malloc_usable_size(block) >= size);
        memset(block, 1, size);
        free(block);
      } else {
        CHECK_MSG(code == ENOMEM, "2^%u, size %zu: code %d", shift, size, code);
        CHECK_MSG(block == marker, "posix_memalign touched *memptr on ENOMEM");
        CHECK_MSG(shift > 30 || size > kGiB, "alignment 2^%u, size %zu must work", shift, size);
      }
    }
  }
}

void aligned_alloc_and_memalign() {
  const size_t bad[] = {0, 3, 12, 48, 1000, (size_t{1} << 63) + 1, SIZE_MAX};
  for (size_t alignment : bad) {
    if (!expects_larder()) break;  // glibc follows this rule from 2.38 on only
    errno = 0;
    CHECK_MSG(aligned_alloc(opaque(alignment), opaque(size_t{64})) == nullptr && errno == EINVAL,
              "aligned_alloc(%zu, 64) must be EINVAL", alignment);
  }
  for (size_t alignment = 1; alignment <= 64 * kMiB; alignment *= 2) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{17}, size_t{1000}, 33 * kKiB}) {
      void* block = aligned_alloc(opaque(alignment), opaque(size));
      CHECK_MSG(block != nullptr && is_aligned(block, alignment), "aligned_alloc(%zu, %zu) = %p",
                alignment, size, block);
      CHECK(is_aligned(block, required_alignment(size)));
      memset(block, 2, size);
      free(block);
    }
  }
  expect_enomem("aligned_alloc(64, SIZE_MAX)",
                [] { return aligned_alloc(opaque(size_t{64}), opaque(SIZE_MAX)); });
  expect_enomem("aligned_alloc(2^62, 2^62)",
                [] { return aligned_alloc(opaque(size_t{1} << 62), opaque(size_t{1} << 62)); });
  // glibc's code rounds a bad alignment up to a power of two.
  const struct {
    size_t asked, given;
  } rounded[] = {{0, 16}, {1, 16}, {3, 16}, {24, 32}, {48, 64}, {1000, 1024}, {4097, 8192}};
  for (auto [asked, given] : rounded) {
    for (int i = 0; i < 16; ++i) {
      void* block = memalign(opaque(asked), opaque(size_t{100}));
      CHECK_MSG(block != nullptr && is_aligned(block, given), "memalign(%zu, 100) = %p", asked,
                block);
      free(block);
    }
  }
  errno = 0;
  CHECK(memalign(opaque((size_t{1} << 63) + 1), opaque(size_t{1})) == nullptr);
  CHECK_MSG(errno == EINVAL || errno == ENOMEM, "memalign beyond 2^63");
  expect_enomem("memalign(4096, SIZE_MAX - 100)",
                [] { return memalign(opaque(size_t{4096}), opaque(SIZE_MAX - 100)); });
}

void aligned_blocks_can_be_reallocated() {
  for (size_t alignment : {size_t{16}, size_t{256}, size_t{4096}, 64 * kKiB, 4 * kMiB}) {
    for (size_t size : {size_t{10}, size_t{5000}, 100 * kKiB, 5 * kMiB}) {
      void* block = aligned_alloc(alignment, size);
      CHECK(block != nullptr && is_aligned(block, alignment));
      fill_pattern(block, size, 11);
      block = realloc(block, size * 3);
      CHECK(block != nullptr);
      check_pattern(block, size, size, 11);
      block = realloc(block, size / 2 + 1);
      check_pattern(block, size, size / 2 + 1, 11);
      free(block);
    }
  }
}

void valloc_and_pvalloc_use_pages() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t size : {size_t{0}, size_t{1}, page - 1, page, page + 1, 10 * page + 1}) {
    void* block = valloc(opaque(size));
    CHECK(block != nullptr && is_aligned(block, page));
    memset(block, 1, size);
    void* whole = pvalloc(opaque(size));
    CHECK(whole != nullptr && is_aligned(whole, page));
    const size_t rounded = (size + page - 1) & ~(page - 1);
    CHECK(malloc_usable_size(whole) >= rounded);
    memset(whole, 1, rounded);
    free(block);
    free(whole);
  }
  expect_enomem("valloc(SIZE_MAX)", [] { return valloc(opaque(SIZE_MAX)); });
  expect_enomem("pvalloc(SIZE_MAX)", [] { return pvalloc(opaque(SIZE_MAX)); });
  expect_enomem("pvalloc(SIZE_MAX - 4094)", [] { return pvalloc(opaque(SIZE_MAX - 4094)); });
}

void usable_size_is_constant_and_writable() {
  CHECK(malloc_usable_size(nullptr) == 0);
  constexpr int kBlocks = 600;
  static void* blocks[kBlocks];
  static size_t usable[kBlocks];
  Random random(1);
  for (int i = 0; i < kBlocks; ++i) {
    const size_t size = random.log_uniform(256 * kKiB);
    blocks[i] = malloc(size);
    usable[i] = malloc_usable_size(blocks[i]);
    CHECK(usable[i] >= size);
    memset(blocks[i], i, usable[i]);
  }
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < kBlocks; ++i) free(malloc(random.log_uniform(64 * kKiB)));
  }
  for (int i = 0; i < kBlocks; ++i) {
    CHECK(malloc_usable_size(blocks[i]) == usable[i]);
    auto* bytes = static_cast<unsigned char*>(blocks[i]);
    for (size_t j = 0; j < usable[i]; ++j) {
      CHECK_MSG(bytes[j] == static_cast<unsigned char>(i),
                "byte %zu of a block with %zu usable bytes was overwritten", j, usable[i]);
    }
    // What usable_size promised must also survive a realloc that moves the block.
    blocks[i] = realloc(blocks[i], usable[i] * 2 + 1);
    CHECK(static_cast<unsigned char*>(blocks[i])[0] == static_cast<unsigned char>(i) ||
          usable[i] == 0);
    free(blocks[i]);
  }
}

void mallopt_knows_every_parameter() {
  const struct {
    int parameter, value;
    const char* name;
  } known[] = {{M_MXFAST, 64, "M_MXFAST"},         {M_TRIM_THRESHOLD, 1 << 20, "M_TRIM_THRESHOLD"},
               {M_TOP_PAD, 64 << 10, "M_TOP_PAD"}, {M_MMAP_THRESHOLD, 1 << 20, "M_MMAP_THRESHOLD"},
               {M_MMAP_MAX, 1000, "M_MMAP_MAX"},   {M_CHECK_ACTION, 3, "M_CHECK_ACTION"},
               {M_PERTURB, 0, "M_PERTURB"},        {M_ARENA_TEST, 8, "M_ARENA_TEST"},
               {M_ARENA_MAX, 8, "M_ARENA_MAX"}};
  for (const auto& entry : known) {
    CHECK_MSG(mallopt(entry.parameter, entry.value) == 1, "mallopt(%s) must return 1", entry.name);
  }
}

void statistics_are_real() {
  constexpr size_t kBytes = 96 * kMiB;
  const struct mallinfo2 before = mallinfo2();
  static void* blocks[96];
  for (auto& block : blocks) {
    block = malloc(kMiB);
    memset(block, 1, kMiB);
  }
  const struct mallinfo2 after = mallinfo2();
  const size_t used_before = before.uordblks + before.hblkhd;
  const size_t used_after = after.uordblks + after.hblkhd;
  CHECK_MSG(used_after >= used_before + kBytes && used_after < used_before + kBytes * 5 / 4,
            "mallinfo2: 96 MiB more are live, it says %.1f", mib(used_after - used_before));
  CHECK(after.arena + after.hblkhd >= kBytes);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
  const struct mallinfo2 again = mallinfo2();
  CHECK(narrow.uordblks == static_cast<int>(again.uordblks));
  CHECK(narrow.hblkhd == static_cast<int>(again.hblkhd));
  for (auto& block : blocks) free(block);
  const struct mallinfo2 freed = mallinfo2();
  CHECK_MSG(freed.uordblks + freed.hblkhd <= used_before + kBytes / 8,
            "mallinfo2 still counts %.1f MiB after the frees",
            mib(freed.uordblks + freed.hblkhd - used_before));
}

// The grammar of tags only: every tag closed in order, attributes quoted, one root.
void check_well_formed(const char* text) {
  char open_tags[64][48];
  int depth = 0;
  int roots = 0;
  for (const char* at = strchr(text, '<'); at != nullptr; at = strchr(at, '<')) {
    const char* end = strchr(at, '>');
    CHECK_MSG(end != nullptr, "malloc_info: a tag without '>'");
    if (at[1] == '?' || at[1] == '!') {
      at = end;
      continue;
    }
    const bool closing = at[1] == '/';
    const char* name = at + 1 + (closing ? 1 : 0);
    const size_t length = strcspn(name, " \t\n/>");
    CHECK(length > 0 && length < sizeof open_tags[0]);
    int quotes = 0;
    for (const char* c = at; c < end; ++c) quotes += *c == '"';
    CHECK_MSG(quotes % 2 == 0, "malloc_info: unbalanced quotes in a tag");
    if (closing) {
      --depth;
      CHECK_MSG(depth >= 0 && strlen(open_tags[depth]) == length &&
                    strncmp(open_tags[depth], name, length) == 0,
                "malloc_info: </%.*s> closes nothing", static_cast<int>(length), name);
    } else {
      if (depth == 0) ++roots;
      if (end[-1] != '/') {
        CHECK(depth < 64);
        memcpy(open_tags[depth], name, length);
        open_tags[depth][length] = '\0';
        ++depth;
      }
    }
    at = end;
  }
  CHECK_MSG(depth == 0 && roots == 1, "malloc_info: %d tags open, %d roots", depth, roots);
}

void malloc_info_writes_xml() {
  char path[] = "/tmp/alloc-malloc-info-XXXXXX";
  const int fd = mkstemp(path);
  CHECK(fd >= 0);
  unlink(path);
  FILE* stream = fdopen(fd, "w+");
  CHECK(stream != nullptr);
  // glibc returns the code and does not change errno; either way the error is EINVAL.
  errno = 0;
  const int refused = malloc_info(1, stream);
  CHECK_MSG(refused == EINVAL || (refused == -1 && errno == EINVAL),
            "malloc_info(1) must be EINVAL, returned %d", refused);
  CHECK(ftell(stream) == 0);
  CHECK(malloc_info(0, stream) == 0);
  fflush(stream);
  const long length = ftell(stream);
  CHECK_MSG(length > 0 && length < 1000000, "malloc_info wrote %ld bytes", length);
  static char text[1000000];
  rewind(stream);
  CHECK(fread(text, 1, static_cast<size_t>(length), stream) == static_cast<size_t>(length));
  fclose(stream);
  CHECK_MSG(strncmp(text, "<malloc version=", 16) == 0, "malloc_info starts with '%.20s'", text);
  check_well_formed(text);
}

void malloc_trim_tells_the_truth() {
  static void* blocks[256];
  for (auto& block : blocks) {
    block = malloc(256 * kKiB);
    memset(block, 1, 256 * kKiB);
  }
  for (auto& block : blocks) free(block);
  const size_t before = rss_bytes();
  const int returned = malloc_trim(0);
  const size_t after = rss_bytes();
  say("malloc_trim returned %d, resident %.1f -> %.1f MiB", returned, mib(before), mib(after));
  CHECK(returned == 0 || returned == 1);
  if (returned == 1) CHECK_MSG(after < before, "malloc_trim said 1 but nothing went back");
  int repeated = 1;
  for (int i = 0; i < 8 && repeated == 1; ++i) repeated = malloc_trim(0);
  if (expects_larder()) {  // glibc returns 1 each time
    CHECK_MSG(repeated == 0, "malloc_trim goes on saying 1 when there is nothing to give back");
    CHECK_MSG(before < after + 16 * kMiB || returned == 1, "malloc_trim gave back, but said 0");
    CHECK_MSG(after < 32 * kMiB, "64 MiB were freed, %.1f MiB stay after malloc_trim", mib(after));
  }
}

void malloc_stats_writes_to_stderr() {
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  fcntl(pipe_ends[1], F_SETPIPE_SZ, 1 << 20);
  const int saved = dup(STDERR_FILENO);
  dup2(pipe_ends[1], STDERR_FILENO);
  malloc_stats();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(pipe_ends[1]);
  static char text[1 << 20];
  const ssize_t n = read(pipe_ends[0], text, sizeof text);
  close(pipe_ends[0]);
  CHECK_MSG(n > 0, "malloc_stats wrote nothing");
}

void sized_frees_accept_null() {
  auto free_sized = reinterpret_cast<FreeSized>(dlsym(RTLD_DEFAULT, "free_sized"));
  auto free_aligned_sized =
      reinterpret_cast<FreeAlignedSized>(dlsym(RTLD_DEFAULT, "free_aligned_sized"));
  if (free_sized == nullptr || free_aligned_sized == nullptr) {
    CHECK_MSG(!expects_larder(), "free_sized or free_aligned_sized is missing");
    say("free_sized: not offered by this malloc");
    return;
  }
  free_sized(nullptr, 0);
  free_sized(nullptr, 100);
  free_aligned_sized(nullptr, 0, 0);
  free_aligned_sized(nullptr, 64, 100);
  for (size_t size = 0; size < 200000; size += size / 3 + 1) {
    errno = 4242;
    free_sized(malloc(size), size);
    free_sized(calloc(1, size), size);
    free_sized(realloc(malloc(1), size + 1), size + 1);
    for (size_t alignment = 16; alignment <= 8192; alignment *= 8) {
      free_aligned_sized(aligned_alloc(alignment, size), alignment, size);
    }
    CHECK(errno == 4242);
  }
}

void requests_beyond_ptrdiff_max_fail() {
  for (size_t size :
       {kTooBig, kTooBig + 4096, SIZE_MAX - 4096, SIZE_MAX - 15, SIZE_MAX - 1, SIZE_MAX}) {
    expect_enomem("malloc beyond PTRDIFF_MAX", [&] { return malloc(opaque(size)); });
    expect_enomem("calloc beyond PTRDIFF_MAX", [&] { return calloc(1, opaque(size)); });
    expect_enomem("realloc beyond PTRDIFF_MAX", [&] { return realloc(nullptr, opaque(size)); });
    expect_enomem("reallocarray beyond PTRDIFF_MAX",
                  [&] { return reallocarray(nullptr, 1, opaque(size)); });
    expect_enomem("memalign beyond PTRDIFF_MAX", [&] { return memalign(64, opaque(size)); });
    expect_enomem("aligned_alloc beyond PTRDIFF_MAX",
                  [&] { return aligned_alloc(64, opaque(size)); });
    expect_enomem("valloc beyond PTRDIFF_MAX", [&] { return valloc(opaque(size)); });
    expect_enomem("pvalloc beyond PTRDIFF_MAX", [&] { return pvalloc(opaque(size)); });
  }
  // No machine has this much, but it is a legal size: the result is ENOMEM, not a crash.
  expect_enomem("malloc(PTRDIFF_MAX)", [] { return malloc(opaque(size_t{PTRDIFF_MAX})); });
  expect_enomem("malloc(2^62)", [] { return malloc(opaque(size_t{1} << 62)); });
  expect_enomem("calloc(2^61, 2)", [] { return calloc(opaque(size_t{1} << 61), 2); });
}

std::atomic<bool> passed_all_calls{false};

void* call_with_cancellation_pending(void*) {
  pthread_cancel(pthread_self());
  void* blocks[200];
  for (size_t i = 0; i < 200; ++i) blocks[i] = malloc(i * i * 50);
  for (size_t i = 0; i < 200; ++i) blocks[i] = realloc(blocks[i], i * i * 70 + 1);
  for (auto& block : blocks) free(block);
  free(calloc(1, 50 * kMiB));
  free(aligned_alloc(4096, 5000));
  malloc_trim(0);
  static_cast<void>(mallinfo2());
  malloc_stats();
  passed_all_calls = true;
  pthread_testcancel();
  return nullptr;
}

void no_call_is_a_cancellation_point() {
  const int saved = dup(STDERR_FILENO);
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(null, STDERR_FILENO);
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, call_with_cancellation_pending, nullptr) == 0);
  void* result = nullptr;
  CHECK(pthread_join(thread, &result) == 0);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(null);
  CHECK_MSG(result == PTHREAD_CANCELED, "the thread was not cancelled where it asked for it");
  CHECK_MSG(passed_all_calls || !expects_larder(), "a call of the family is a cancellation point");
}

void the_libraries_of_the_system_use_it() {
  char* text = strdup("a string");
  CHECK(strcmp(text, "a string") == 0 && malloc_usable_size(text) >= 9);
  char* printed = nullptr;
  CHECK(asprintf(&printed, "%0*d", 5000, 7) == 5000);
  wchar_t* wide = wcsdup(L"wide");
  CHECK(wide != nullptr && wide[3] == L'e');
  char* line = nullptr;
  size_t capacity = 0;
  FILE* memory = fmemopen(printed, 5000, "r");
  CHECK(memory != nullptr && getline(&line, &capacity, memory) > 0);
  fclose(memory);
  char* directory = getcwd(nullptr, 0);
  CHECK(directory != nullptr);
  free(text);
  free(printed);
  free(wide);
  free(line);
  free(directory);
}

}  // namespace

int main() {
  begin("conformance");
  using Property = void (*)();
  const Property properties[] = {zero_sized_requests_are_unique,
                                 malloc_aligns_every_size,
                                 calloc_zeroes_and_detects_overflow,
                                 realloc_keeps_its_contract,
                                 reallocarray_detects_overflow,
                                 free_keeps_errno,
                                 posix_memalign_follows_posix,
                                 aligned_alloc_and_memalign,
                                 aligned_blocks_can_be_reallocated,
                                 valloc_and_pvalloc_use_pages,
                                 usable_size_is_constant_and_writable,
                                 mallopt_knows_every_parameter,
                                 statistics_are_real,
                                 malloc_info_writes_xml,
                                 malloc_trim_tells_the_truth,
                                 malloc_stats_writes_to_stderr,
                                 sized_frees_accept_null,
                                 requests_beyond_ptrdiff_max_fail,
                                 no_call_is_a_cancellation_point,
                                 the_libraries_of_the_system_use_it};
  for (Property property : properties) property();
  say("%zu properties hold", sizeof properties / sizeof properties[0]);
  return 0;
}
