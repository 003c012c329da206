// A seccomp filter built instruction by instruction, and system calls that a test intercepts in
// its own process: tests use them to make the kernel refuse calls.
//
// Thread safety: install() before threads that should be covered, or with all_threads.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "support.h"

namespace alloctest {

#if defined(__x86_64__)
inline constexpr uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
inline constexpr uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
#error "say here which audit architecture this processor has"
#endif

class SeccompFilter {
 public:
  SeccompFilter() {
    load(offsetof(seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    load(offsetof(seccomp_data, nr));
  }
  // The accumulator holds the call's number between rules.
  void rule(long number, uint32_t action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
    add(BPF_RET | BPF_K, action, 0, 0);
  }
  // Argument `index`, whose low half must be `value`: then `action`, otherwise `otherwise`.
  void rule_with_argument(long number, unsigned index, uint32_t value, uint32_t action,
                          uint32_t otherwise) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 4);
    load(offsetof(seccomp_data, args) + index * 8);
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    add(BPF_RET | BPF_K, action, 0, 0);
    add(BPF_RET | BPF_K, otherwise, 0, 0);
  }
  // Calls made by the instruction that ends at `address` are always allowed.
  void allow_from(const void* address) {
    const auto value = reinterpret_cast<uintptr_t>(address);
    load(offsetof(seccomp_data, instruction_pointer));
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(value), 0, 3);
    load(offsetof(seccomp_data, instruction_pointer) + 4);
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(value >> 32), 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    load(offsetof(seccomp_data, nr));
  }
  void install(uint32_t default_action, bool all_threads = false) {
    add(BPF_RET | BPF_K, default_action, 0, 0);
    const sock_fprog program = {static_cast<unsigned short>(count_), code_};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    const unsigned flags = all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    CHECK_MSG(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0,
              "this kernel refuses seccomp filters");
  }

 private:
  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset), 0, 0); }
  void add(unsigned code, uint32_t k, uint8_t if_true, uint8_t if_false) {
    CHECK(count_ < sizeof code_ / sizeof code_[0]);
    code_[count_++] = {static_cast<uint16_t>(code), if_true, if_false, k};
  }

  sock_filter code_[256];
  size_t count_ = 0;
};

}  // namespace alloctest
