// The heap profile through its functions, and as a file when the program ends. Two sites allocate
// in turn, and one does not free; the file's figures for each are compared with exact counts.
// Usage: profile [worker | minimal], the last for a library without a profiler.

#include <sys/stat.h>
#include <sys/syscall.h>

#include "support.h"

using namespace alloctest;

namespace {

constexpr size_t kCount = 200000;
constexpr size_t kSize = 48;
char text[4 * kMiB];

}  // namespace

// Each is in a section of its own, whose bounds identify its frames.
extern "C" char __start_kept_site[], __stop_kept_site[], __start_freed_site[], __stop_freed_site[];
[[gnu::noinline, gnu::section("kept_site")]] void* allocate_kept() {
  static int turn;
  switch (turn++ % 3) {
    case 0:
      return opaque(malloc(kSize));
    case 1:
      return opaque(calloc(1, kSize));
    default:
      return opaque(realloc(opaque(malloc(1)), kSize));
  }
}
[[gnu::noinline, gnu::section("freed_site")]] void* allocate_freed() {
  return opaque(malloc(kSize));
}

namespace {

struct Figures {
  double objects = 0, bytes = 0, low = 0, high = 0, marked = 0;
};

// Sums the profile's figures of the sites whose innermost frame lies in the section.
Figures figures_of(const char* begin, const char* end) {
  Figures sum;
  for (char* line = strchr(text, '\n') + 1; *line != '\0'; line = strchr(line, '\n') + 1) {
    if (strncmp(line, "\nMAPPED_LIBRARIES:", 18) == 0) break;
    if (*line == '#' || *line == '\n') continue;
    double objects = 0, bytes = 0, all_objects = 0, all_bytes = 0;
    unsigned long frame = 0;
    CHECK_MSG(sscanf(line, "%lf: %lf [%lf: %lf] @ 0x%lx", &objects, &bytes, &all_objects,
                     &all_bytes, &frame) == 5,
              "not a line of a profile: %.80s", line);
    CHECK(all_bytes >= bytes);
    const char* details = strchr(line, '\n') + 1;
    double low = 0, high = 0, marked = 0;
    const char* interval = strstr(details, "95 % in use: ");
    const char* at_mark = strstr(details, "at mark ");
    CHECK(*details == '#' && interval != nullptr && at_mark != nullptr);
    CHECK(sscanf(interval, "95 %% in use: %lf to %lf", &low, &high) == 2);
    CHECK(sscanf(strchr(at_mark, ':'), ": %lf", &marked) == 1);
    if (frame <= reinterpret_cast<uintptr_t>(begin) || frame > reinterpret_cast<uintptr_t>(end))
      continue;
    sum.objects += objects;
    sum.bytes += bytes;
    sum.low += low;
    sum.high += high;
    sum.marked += marked;
  }
  return sum;
}

void read_profile(int fd) {
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  size_t length = 0;
  for (ssize_t n = 1; n > 0 && length < sizeof text - 1; length += static_cast<size_t>(n)) {
    n = read(fd, text + length, sizeof text - 1 - length);
    CHECK(n >= 0);
  }
  text[length] = '\0';
  CHECK(strncmp(text, "heap profile: ", 14) == 0);
  CHECK(strstr(text, "@ heapprofile\n") != nullptr);
  CHECK(strstr(text, "\nMAPPED_LIBRARIES:\n") != nullptr);
}

void expect_near(const Figures& is, double truth) {
  // The intervals are of 95 %: three times as far off is significant.
  CHECK_MSG(
      is.bytes > truth - 3 * (is.bytes - is.low) && is.bytes < truth + 3 * (is.high - is.bytes),
      "%.0f bytes (%.0f..%.0f), in truth %.0f", is.bytes, is.low, is.high, truth);
}

template <typename Function>
Function lookup(const char* name) {
  auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  CHECK_MSG(function != nullptr, "the library has no %s", name);
  return function;
}

void by_functions() {
  auto set_mean = lookup<void (*)(size_t)>("larder_profile_set_mean");
  auto write_to = lookup<int (*)(int)>("larder_profile_write");
  auto mark = lookup<int (*)()>("larder_profile_mark");
  set_mean(16 * kKiB);
  for (int i = 0; i < 3; ++i) free(opaque(malloc(1500 * kKiB)));
  static void* kept[kCount];
  for (auto& block : kept) {
    block = allocate_kept();
    for (int i = 0; i < 3; ++i) free(allocate_freed());
  }
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "profile", 0));
  CHECK(fd >= 0 && mark() == 0 && write_to(fd) == 0);
  read_profile(fd);
  const Figures is = figures_of(__start_kept_site, __stop_kept_site);
  say("kept: %.0f bytes (%.0f..%.0f), in truth %zu", is.bytes, is.low, is.high, kCount * kSize);
  expect_near(is, double(kCount * kSize));
  CHECK(is.marked == is.bytes);
  CHECK(figures_of(__start_freed_site, __stop_freed_site).bytes == 0);

  // Half is freed; nothing new is taken.
  set_mean(0);
  for (size_t i = 0; i < kCount; i += 2) free(kept[i]);
  CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && write_to(fd) == 0);
  read_profile(fd);
  const Figures half = figures_of(__start_kept_site, __stop_kept_site);
  expect_near(half, double(kCount * kSize / 2));
  CHECK(half.marked == is.marked);
  for (size_t i = 1; i < kCount; i += 2) free(kept[i]);
  close(fd);
  errno = 0;
  CHECK(write_to(fd) == -1 && errno == EBADF);
}

// Runs this program again as a worker that ends with a profile; returns its exit code and output.
void run_worker(const char* pattern, char (&said)[4096], pid_t* id) {
  int err[2];
  CHECK(pipe(err) == 0);
  *id = fork();
  CHECK(*id >= 0);
  if (*id == 0) {
    dup2(err[1], STDERR_FILENO);
    setenv("LARDER_PROFILE", pattern, 1);
    setenv("LARDER_PROFILE_BYTES", "1000", 1);
    execl("/proc/self/exe", "profile", "worker", nullptr);
    _exit(8);
  }
  close(err[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(err[0], said + length, sizeof said - 1 - length)) > 0;)
    length += static_cast<size_t>(n);
  said[length] = '\0';
  close(err[0]);
  int status = 0;
  while (waitpid(*id, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the worker ends with %x", status);
}

void expect_profile(const char* path) {
  struct stat about;
  CHECK_MSG(lstat(path, &about) == 0, "there is no %s", path);
  CHECK(S_ISREG(about.st_mode) && (about.st_mode & 0777) == 0600);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  read_profile(fd);
  close(fd);
  CHECK(unlink(path) == 0);
}

void at_exit() {
  char directory[] = "/tmp/profile_XXXXXX", path[200], other[220], said[4096];
  CHECK(mkdtemp(directory) != nullptr);
  pid_t id;
  snprintf(path, sizeof path, "%s/%%p.heap", directory);
  run_worker(path, said, &id);
  CHECK_MSG(said[0] == '\0', "it says: %s", said);
  snprintf(path, sizeof path, "%s/%d.heap", directory, id);
  expect_profile(path);

  // An existing file is not replaced, and a link not followed: the process's id is added to the
  // name.
  snprintf(path, sizeof path, "%s/taken", directory);
  snprintf(other, sizeof other, "%s/nowhere", directory);
  CHECK(symlink(other, path) == 0);
  run_worker(path, said, &id);
  CHECK(access(other, F_OK) != 0);
  snprintf(other, sizeof other, "%s/taken.%d", directory, id);
  expect_profile(other);
  CHECK(unlink(path) == 0);

  snprintf(path, sizeof path, "%s/missing\033[31m/heap", directory);
  run_worker(path, said, &id);
  CHECK_MSG(strstr(said, "cannot write the heap profile to ") != nullptr &&
                strstr(said, "No such file") != nullptr && strchr(said, '\033') == nullptr,
            "it says: %s", said);
  CHECK(rmdir(directory) == 0);
}

// For a library without a profiler.
void says_that_there_is_no_profiler() {
  auto* write = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "larder_profile_write"));
  auto* mark = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "larder_profile_mark"));
  auto* set = reinterpret_cast<void (*)(size_t)>(dlsym(RTLD_DEFAULT, "larder_profile_set_mean"));
  CHECK(write != nullptr && mark != nullptr && set != nullptr);
  set(64);
  for (int i = 0; i < 100000; ++i) free(allocate_freed());
  for (size_t size = 1; size < 100 * kMiB; size *= 2) free(opaque(malloc(size)));
  CHECK(write(1) == -1 && errno == ENOSYS);
  errno = 0;
  CHECK(mark() == -1 && errno == ENOSYS);
}

}  // namespace

int main(int argc, char** argv) {
  begin("profile");
  if (argc > 1 && strcmp(argv[1], "minimal") == 0) {
    says_that_there_is_no_profiler();
    return 0;
  }
  if (argc > 1) {
    for (int i = 0; i < 1000; ++i) opaque(allocate_kept());
    return 7;
  }
  if (!expects_larder()) return 0;
  by_functions();
  at_exit();
  return 0;
}
