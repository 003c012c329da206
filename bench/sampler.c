// Preloaded before the recorder by `larder lab stacks`. For a share of the allocations it stores
// the stack from libgcc's unwinder, marks the call in the trace, and forwards it with the caller's
// own stack and registers, so that the recorder sees the same call as without it.
//
// SAMPLER_FILE gets a record for each sample, of native u64: process, number, count, then this many
// addresses, innermost first. The mark before the call in the trace has the number as its name.
// SAMPLER_EVERY: mean calls of a thread between two samples. A debugger may take the same samples
// at a breakpoint on `sampler_taken(number, innermost address)`.
//
// x86-64. Thread safety: all state is the thread's own, except the counter.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

enum { kHead = 3, kMostFrames = 1 << 16, kFunctions = 5 };

static const char* const kNames[kFunctions] = {"malloc", "calloc", "realloc", "_Znwm", "_Znam"};
static void* next[kFunctions];
static void (*mark)(const char*);
static void* recorder; /* where it is loaded */

static int file = -1;
static uint64_t every = 1000;
static uint64_t taken;

#define OWN static __thread __attribute__((tls_model("initial-exec")))
OWN uint64_t* record; /* kHead words, then the addresses */
OWN uint64_t until_next;
OWN uint64_t random_state;
OWN int busy;

// Looks all up at the first call: a look-up during the loader's own calls would disturb them.
static void look_up(void) {
  for (int function = 0; function < kFunctions; function++) {
    next[function] = dlsym(RTLD_NEXT, kNames[function]);
  }
  void* found = dlsym(RTLD_DEFAULT, "larder_record_mark");
  mark = (void (*)(const char*))found;
  Dl_info info;
  if (found != NULL && dladdr(found, &info) != 0) recorder = info.dli_fbase;
}

__attribute__((constructor)) static void start(void) {
  const char* path = getenv("SAMPLER_FILE");
  const char* interval = getenv("SAMPLER_EVERY");
  if (interval && strtoull(interval, NULL, 10) > 0) every = strtoull(interval, NULL, 10);
  if (!next[0]) look_up();
  if (path && mark) file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

// Uneven steps, so that no loop's length is a multiple of them.
static uint64_t step(void) {
  random_state = random_state * 6364136223846793005U + 1442695040888963407U;
  return 1 + (random_state >> 33) % (2 * every - 1);
}

struct Walk {
  uint64_t innermost;
  uint64_t count;
};

static _Unwind_Reason_Code note(struct _Unwind_Context* context, void* argument) {
  struct Walk* walk = argument;
  const uint64_t address = _Unwind_GetIP(context);
  if (walk->count == 0 && address != walk->innermost) return _URC_NO_REASON; /* our own frames */
  if (walk->count == kMostFrames || address == 0) return _URC_END_OF_STACK;
  record[kHead + walk->count++] = address;
  return _URC_NO_REASON;
}

__attribute__((noinline, visibility("default"))) void sampler_taken(uint64_t number,
                                                                    uint64_t innermost) {
  __asm__ volatile("" ::"r"(number), "r"(innermost) : "memory");
}

// Calls of the recorder, or of the runtime's `operator new`, are part of a call that was seen
// already.
static int is_within_call(uint64_t caller) {
  Dl_info found;
  return dladdr((void*)caller, &found) != 0 &&
         (found.dli_fbase == recorder ||
          (found.dli_sname != NULL && strncmp(found.dli_sname, "_Zn", 3) == 0));
}

static void sample(uint64_t caller) {
  if (!record) {
    void* room = mmap(NULL, (kHead + kMostFrames) * sizeof *record, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return;
    record = room;
  }
  struct Walk walk = {caller, 0};
  _Unwind_Backtrace(note, &walk);
  const uint64_t number = __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
  record[0] = (uint64_t)getpid();
  record[1] = number;
  record[2] = walk.count;
  sampler_taken(number, caller);
  const size_t bytes = (kHead + walk.count) * sizeof *record;
  if (write(file, record, bytes) != (ssize_t)bytes) return;
  char name[17] = {0};
  for (int digit = 0; digit < 16; digit++) {
    name[digit] = "0123456789abcdef"[(number >> (60 - 4 * digit)) & 15];
  }
  mark(name);
}

// The function behind the entry. Takes the call's sample before, if one is due.
__attribute__((used)) static void* pass(int function, uint64_t caller) {
  if (!next[0]) look_up();
  if (busy || file < 0) return next[function];
  if (until_next == 0) until_next = step();
  if (until_next > 1) {
    until_next--;
    return next[function];
  }
  busy = 1;
  const int error = errno;
  if (!is_within_call(caller)) {
    sample(caller);
    until_next = 0;
  }
  errno = error;
  busy = 0;
  return next[function];
}

#define ENTRY(name, function)                                                          \
  __asm__(".text\n.globl " name "\n.type " name ", @function\n" name                   \
          ":\n.cfi_startproc\n"                                                        \
          "push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n" \
          "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"                                   \
          "mov $" function                                                             \
          ", %edi\nmov 24(%rsp), %rsi\ncall pass\n"                                    \
          "add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"                                  \
          "pop %rsi\n.cfi_adjust_cfa_offset -8\npop %rdi\n.cfi_adjust_cfa_offset -8\n" \
          "jmp *%rax\n.cfi_endproc\n.size " name ", .-" name "\n")

ENTRY("malloc", "0");
ENTRY("calloc", "1");
ENTRY("realloc", "2");
ENTRY("_Znwm", "3");
ENTRY("_Znam", "4");
