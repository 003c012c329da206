#include "os/fault.h"

#include <signal.h>
#include <ucontext.h>

namespace larder::os {

namespace {

struct Watch {
  uintptr_t begin, end;
  void (*handle)(const Fault&);
  struct sigaction before;
};
// Written before the handler is installed.
constinit Watch watch = {};

Fault fault_of(const siginfo_t* info, const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  Fault fault = {uintptr_t(info->si_addr), 0, "an access"};
#if defined(__x86_64__)
  constexpr greg_t kIsWrite = 2;
  fault.instruction = uintptr_t(machine.gregs[REG_RIP]);
  fault.access = (machine.gregs[REG_ERR] & kIsWrite) != 0 ? "a write" : "a read";
#elif defined(__aarch64__)
  fault.instruction = machine.pc;
#endif
  return fault;
}

void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction& before = watch.before;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    return before.sa_handler(number);
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;
  // The kernel does what it would have done: when the access is tried again, or when the signal
  // that somebody has sent is sent again.
  sigaction(number, &before, nullptr);
  if (info->si_code <= 0) raise(number);
}

void handle_signal(int number, siginfo_t* info, void* context) {
  auto address = uintptr_t(info->si_addr);
  bool is_ours = info->si_code > 0 && address >= watch.begin && address < watch.end;
  if (!is_ours) return pass_on(number, info, context);
  watch.handle(fault_of(info, context));
}

}  // namespace

bool on_fault(uintptr_t begin, uintptr_t end, void (*handle)(const Fault&)) {
  watch = {begin, end, handle, {}};
  if (sigaction(SIGSEGV, nullptr, &watch.before) != 0) return false;
  struct sigaction action = {};
  action.sa_sigaction = handle_signal;
  action.sa_mask = watch.before.sa_mask;
  // A stack that overflowed cannot take the handler's frame.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (watch.before.sa_flags & SA_NODEFER);
  return sigaction(SIGSEGV, &action, nullptr) == 0;
}

}  // namespace larder::os
