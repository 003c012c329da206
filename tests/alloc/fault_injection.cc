// The kernel's memory calls fail at the k-th call, for every k, with any of kErrors: requests
// return NULL with ENOMEM or succeed, live data stay intact, free keeps errno, and all recovers
// when the kernel does. Usage: fault_injection [STRIDE]: every STRIDE-th k (1: all of them).
//
// A seccomp filter turns each mmap, munmap, mprotect, mremap, madvise and brk of the process into
// SIGSYS; the handler either returns an error or makes the call itself, from one instruction that
// the filter allows.

#include <ucontext.h>

#include <initializer_list>

#include "seccomp_filter.h"

using namespace alloctest;

extern "C" long gate_syscall(long number, long a, long b, long c, long d, long e, long f);
extern "C" char gate_return;

#if defined(__x86_64__)
asm(R"(
.text
.globl gate_syscall
.globl gate_return
gate_syscall:
  mov %rdi, %rax
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %r8, %r10
  mov %r9, %r8
  mov 8(%rsp), %r9
  syscall
gate_return:
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl gate_syscall
.globl gate_return
gate_syscall:
  mov x8, x0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
gate_return:
  ret
)");
#endif

namespace {

struct Injection {
  const char* name;
  long number;  // -1: all of them
};

const Injection kInjections[] = {
    {"mmap", SYS_mmap},     {"munmap", SYS_munmap},   {"mprotect", SYS_mprotect},
    {"mremap", SYS_mremap}, {"madvise", SYS_madvise}, {"brk", SYS_brk},
    {"every call", -1},
};
// No memory, locked memory, a filter of system calls, an old kernel.
const int kErrors[] = {ENOMEM, EAGAIN, EPERM, EINVAL};
const long kTrapped[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk};

const Injection* injection = nullptr;
int error = 0;
std::atomic<long> calls_seen{0};
std::atomic<long> calls_failed{0};
long fail_from = 0, fail_until = 0;

#if defined(__x86_64__)
void arguments_of(const ucontext_t* context, long (&arguments)[6]) {
  const auto& registers = context->uc_mcontext.gregs;
  const int order[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
  for (int i = 0; i < 6; ++i) arguments[i] = registers[order[i]];
}
void set_result(ucontext_t* context, long result) { context->uc_mcontext.gregs[REG_RAX] = result; }
#else
void arguments_of(const ucontext_t* context, long (&arguments)[6]) {
  for (int i = 0; i < 6; ++i) arguments[i] = static_cast<long>(context->uc_mcontext.regs[i]);
}
void set_result(ucontext_t* context, long result) {
  context->uc_mcontext.regs[0] = static_cast<unsigned long>(result);
}
#endif

void on_trapped_call(int, siginfo_t* info, void* raw_context) {
  auto* context = static_cast<ucontext_t*>(raw_context);
  const long number = info->si_syscall;
  if (injection != nullptr && (injection->number == -1 || injection->number == number)) {
    const long seen = calls_seen.fetch_add(1) + 1;
    if (seen >= fail_from && seen < fail_until) {
      calls_failed.fetch_add(1);
      // A failing brk returns the old break, like brk(0).
      set_result(context, number == SYS_brk ? gate_syscall(SYS_brk, 0, 0, 0, 0, 0, 0) : -error);
      return;
    }
  }
  long arguments[6];
  arguments_of(context, arguments);
  set_result(context, gate_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                                   arguments[4], arguments[5]));
}

void install_trap() {
  struct sigaction action = {};
  action.sa_sigaction = on_trapped_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  CHECK(sigaction(SIGSYS, &action, nullptr) == 0);
  SeccompFilter filter;
  filter.allow_from(&gate_return);
  for (long number : kTrapped) filter.rule(number, SECCOMP_RET_TRAP);
  filter.install(SECCOMP_RET_ALLOW);
}

constexpr size_t kBlocks = 160;
struct Owned {
  void* block;
  size_t size;
  uint64_t key;
};
Owned table[kBlocks];
size_t refusals = 0;

// REQUIRES: errno was 0 before the request.
void adopt(Owned& owned, void* block, size_t size) {
  CHECK_MSG(errno == 0, "a request that was served changed errno");
  owned = {block, size, pattern_key(block, size)};
  fill_pattern(block, size, owned.key);
}

void refused() {
  CHECK_MSG(errno == ENOMEM, "a refused request must set ENOMEM");
  ++refusals;
}

void drop(Owned& owned) {
  check_pattern(owned.block, owned.size, owned.size, owned.key);
  errno = 4242;
  free(owned.block);
  CHECK_MSG(errno == 4242, "free changed errno while the kernel failed");
  owned = {};
}

size_t pick_size(Random& random) {
  const size_t kind = random.below(100);
  if (kind < 1) return random.below(60 * kMiB);
  if (kind < 5) return random.below(6 * kMiB);
  if (kind < 30) return random.below(500 * kKiB);
  return random.below(9000);
}

void make(Random& random, Owned& owned) {
  const size_t size = pick_size(random);
  void* block = nullptr;
  errno = 0;
  switch (random.below(4)) {
    case 0:
      block = calloc(1, size);
      if (block != nullptr) check_zero(block, size);
      break;
    case 1:
      block = aligned_alloc(size_t{64} << random.below(16), size);
      break;
    default:
      block = malloc(size);
  }
  if (block == nullptr) return refused();
  adopt(owned, block, size);
}

void resize(Random& random, Owned& owned) {
  const size_t size = pick_size(random) + 1;
  errno = 0;
  void* moved = realloc(owned.block, size);
  if (moved == nullptr) {
    refused();
    check_pattern(owned.block, owned.size, owned.size, owned.key);
    return;
  }
  check_pattern(moved, owned.size, size, owned.key);
  adopt(owned, moved, size);
}

void workload() {
  Random random(11);
  for (int i = 0; i < 900; ++i) {
    Owned& owned = table[random.below(kBlocks)];
    if (owned.block == nullptr) {
      make(random, owned);
    } else if (random.below(3) == 0) {
      resize(random, owned);
    } else {
      drop(owned);
    }
    if (i % 300 == 299) malloc_trim(0);
  }
  for (auto& owned : table) {
    if (owned.block != nullptr) drop(owned);
  }
}

// The kernel's calls succeed again: everything must work at once.
void must_have_recovered() {
  injection = nullptr;
  for (size_t size : {size_t{10}, size_t{5000}, 300 * kKiB, 5 * kMiB, 35 * kMiB}) {
    void* block = malloc(size);
    CHECK_MSG(block != nullptr, "malloc(%zu) still fails after the kernel has recovered", size);
    memset(block, 1, size);
    free(block);
    block = calloc(1, size);
    CHECK(block != nullptr);
    check_zero(block, size);
    block = realloc(block, size * 2);
    CHECK(block != nullptr);
    free(block);
  }
}

struct Outcome {
  long calls, failed;
  size_t refusals;
};

void run_once(const Injection& what, int with_error, long from, long until, Outcome* outcome) {
  in_child(what.name, [&] {
    install_trap();
    injection = &what;
    error = with_error;
    fail_from = from;
    fail_until = until;
    workload();
    *outcome = {calls_seen.load(), calls_failed.load(), refusals};
    must_have_recovered();
  });
}

}  // namespace

int main(int argc, char** argv) {
  begin("fault_injection");
  const long stride = static_cast<long>(argument(argc, argv, 1, 1));
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  auto* outcome = static_cast<Outcome*>(shared);
  for (const Injection& what : kInjections) {
    run_once(what, 0, LONG_MAX, LONG_MAX, outcome);
    const long calls = outcome->calls;
    long runs = 0, failed = 0;
    size_t all_refusals = 0;
    for (long k = 1; k <= calls; k += stride) {
      // One call alone, ten in a row, and from there to the end.
      for (long until : {k + 1, k + 10, LONG_MAX}) {
        run_once(what, kErrors[runs % std::size(kErrors)], k, until, outcome);
        ++runs;
        failed += outcome->failed;
        all_refusals += outcome->refusals;
      }
    }
    say("%s: %ld calls in the workload, %ld runs, %ld calls failed, %zu requests refused",
        what.name, calls, runs, failed, all_refusals);
    CHECK(calls == 0 || failed >= runs);
  }
  return 0;
}
