// Invalid values of LARDER_* variables: one warning on stderr that names the variable, the default
// instead, the program's own output and exit code unchanged; never an abort.

#include <initializer_list>

#include "support.h"

using namespace alloctest;

namespace {

extern "C" char** environ;

struct Result {
  int status;
  char out[4096], err[16384];
};

void read_all(int fd, char* text, size_t capacity) {
  size_t filled = 0;
  ssize_t n;
  while (filled < capacity - 1 && (n = read(fd, text + filled, capacity - 1 - filled)) > 0) {
    filled += static_cast<size_t>(n);
  }
  text[filled] = '\0';
  close(fd);
}

// Runs this program again as a plain worker with the variables added to the environment.
void run_with(const char* const* variables, Result* result) {
  int out[2], err[2];
  CHECK(pipe(out) == 0 && pipe(err) == 0);
  fcntl(err[1], F_SETPIPE_SZ, 1 << 20);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (const int* ends : {out, err}) {
      close(ends[0]);
      close(ends[1]);
    }
    for (; *variables != nullptr; ++variables) {
      if (putenv(const_cast<char*>(*variables)) != 0) _exit(9);
    }
    execl("/proc/self/exe", "options", "worker", nullptr);
    _exit(8);
  }
  close(out[1]);
  close(err[1]);
  read_all(out[0], result->out, sizeof result->out);
  read_all(err[0], result->err, sizeof result->err);
  while (waitpid(child, &result->status, 0) < 0) CHECK(errno == EINTR);
}

size_t lines_naming(const char* text, const char* name) {
  size_t count = 0;
  while ((text = strstr(text, name)) != nullptr) {
    ++count;
    const char* end = strchr(text, '\n');
    if (end == nullptr) break;
    text = end;
  }
  return count;
}

size_t line_count(const char* text) {
  size_t count = 0;
  for (; *text != '\0'; ++text) count += *text == '\n';
  return count;
}

void expect_warning(const char* variable, const char* name, size_t warnings) {
  const char* const variables[] = {variable, nullptr};
  Result result;
  run_with(variables, &result);
  CHECK_MSG(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 7,
            "%s: status %#x instead of exit code 7; stderr: %.300s", variable, result.status,
            result.err);
  CHECK_MSG(strcmp(result.out, "worker output\n") == 0, "%s: stdout is '%.100s'", variable,
            result.out);
  if (!expects_larder()) return;
  CHECK_MSG(line_count(result.err) == warnings, "%s: %zu lines on stderr, not %zu: %.500s",
            variable, line_count(result.err), warnings, result.err);
  CHECK_MSG(lines_naming(result.err, name) == warnings, "%s: the warning does not name it: %.500s",
            variable, result.err);
}

int worker() {
  void* blocks[500];
  for (size_t i = 0; i < 500; ++i) blocks[i] = malloc(i * i);
  for (auto& block : blocks) free(block);
  fputs("worker output\n", stdout);
  return 7;
}

}  // namespace

int main(int argc, char** argv) {
  begin("options");
  if (argc == 2 && strcmp(argv[1], "worker") == 0) return worker();
  expect_warning("UNRELATED=1", "LARDER", 0);
  const char* name = "LARDER_PURGE_DECAY_MS";
  for (const char* variable :
       {"LARDER_PURGE_DECAY_MS=banana", "LARDER_PURGE_DECAY_MS=", "LARDER_PURGE_DECAY_MS=-",
        "LARDER_PURGE_DECAY_MS=12x", "LARDER_PURGE_DECAY_MS= ", "LARDER_PURGE_DECAY_MS=1e9999",
        "LARDER_PURGE_DECAY_MS=99999999999999999999999999", "LARDER_PURGE_DECAY_MS=-5",
        "LARDER_PURGE_DECAY_MS=0x", "LARDER_PURGE_DECAY_MS=\xff\xfe\x01"}) {
    expect_warning(variable, name, 1);
  }
  expect_warning("LARDER_PURGE_DECAY_MS=500", name, 0);
  expect_warning("LARDER_NO_SUCH=1", "LARDER_NO_SUCH", 1);
  // A value as long as a page must not overflow a buffer, and must be printed truncated.
  static char lengthy[8192];
  snprintf(lengthy, sizeof lengthy, "LARDER_PURGE_DECAY_MS=%08000d", 0);
  lengthy[sizeof lengthy - 200] = 'x';
  expect_warning(lengthy, name, 1);
  // Terminal escapes in a value are printed escaped.
  const char* const hostile[] = {"LARDER_PURGE_DECAY_MS=\033[31mred\nLARDER fake line", nullptr};
  Result result;
  run_with(hostile, &result);
  CHECK(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 7);
  if (expects_larder()) {
    CHECK_MSG(strchr(result.err, '\033') == nullptr, "an escape sequence went to the terminal");
    CHECK_MSG(line_count(result.err) == 1, "a newline in a value forged a line: %.300s",
              result.err);
  }
  say("nonsense is answered by a warning and the default");
  return 0;
}
