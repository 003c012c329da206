#include "fork.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "index.h"
#include "worker.h"

namespace torture {

namespace {

constexpr size_t kMostInherited = 4096;
constexpr size_t kMostCheckedBytes = 16 * kMiB;

// What the child has found in the index; used only in the child.
Block inherited[kMostInherited];
size_t inherited_count;
unsigned own_stream;

void collect(const Block& block, void*) {
  if (stream_of(block.id) != own_stream && inherited_count < kMostInherited)
    inherited[inherited_count++] = block;
}

[[noreturn]] void child_work(Worker& worker) {
  in_child = true;
  alarm(settings.hang_seconds / 2 + 1);
  where->thread.store(int(syscall(SYS_gettid)));
  // This thread holds blocks of other threads; the index would return them a second time.
  for (Block& guest : worker.guests) {
    if (guest.p != nullptr) release(guest, 3);
    guest.p = nullptr;
  }
  own_stream = worker.stream;
  live_blocks::for_each(collect, nullptr);
  size_t checked = 0;
  for (size_t i = 0; i < inherited_count && checked < kMostCheckedBytes; ++i) {
    checked += inherited[i].usable;
    check(inherited[i]);
    if (worker.random.one_in(3)) release(inherited[i], unsigned(worker.random.next()));
  }
  check_inherited_small(worker);
  for (int i = 0; i < 300; ++i) step(worker);
  _exit(0);
}

void judge(int status, const Where* at) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) <= 3) end_like_child(WEXITSTATUS(status));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    fault(Fault::kHang, at, nullptr, nullptr, "a child of fork has not ended in %u s",
          settings.hang_seconds / 2 + 1);
  if (WIFSIGNALED(status))
    fault(Fault::kCrash, at, nullptr, nullptr, "a child of fork was ended by signal %d (%s)",
          WTERMSIG(status), sigabbrev_np(WTERMSIG(status)));
  fault(Fault::kCrash, at, nullptr, nullptr, "a child of fork ended with exit code %d",
        WEXITSTATUS(status));
}

}  // namespace

void fork_and_check(Worker& worker) {
  where->call.store("fork");
  lock_small();
  live_blocks::lock_all();
  pid_t child = fork();
  int error = errno;
  live_blocks::unlock_all();
  unlock_small();
  if (child == 0) child_work(worker);
  if (child < 0) {
    if (error != EAGAIN && error != ENOMEM) give_up("cannot fork (errno %d)", error);
    return;
  }
  totals.forks.fetch_add(1);
  where->call.store("waitpid for a child of fork");
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) give_up("cannot wait for a child (errno %d)", errno);
  }
  where->calls.fetch_add(1);
  judge(status, where);
  for (int i = 0; i < 16; ++i) {
    const Block& block = worker.blocks[worker.random.below(worker.places)];
    if (block.p != nullptr && block.usable <= kMiB) check(block);
  }
}

}  // namespace torture
