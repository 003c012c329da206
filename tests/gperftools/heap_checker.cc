// gperftools' leak checker from a program, which checks its results itself. heap_checker.py checks
// the report at the end. Usage: heap_checker
// off|calls|cancels|leaks|cleans|never_asked|asked_too_early|not_ignored
#include <gperftools/heap-checker.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "../leak/unseen.h"

void* global;
uintptr_t hidden;

namespace {

int failures = 0;

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (condition) break;                                                  \
    ++failures;                                                            \
    fprintf(stderr, "FAILED heap_checker:%d: %s\n", __LINE__, #condition); \
  } while (false)

APART void lose(size_t bytes) {
  memset(opaque(malloc(bytes)), 1, bytes);
  wipe_stack();
}

// A list of two, hidden.
struct Node {
  Node* next;
  char payload[88];
};
APART uintptr_t hide_two() {
  auto* node = static_cast<Node*>(malloc(sizeof(Node)));
  node->next = static_cast<Node*>(malloc(sizeof(Node)));
  node->next->next = nullptr;
  uintptr_t masked = ~reinterpret_cast<uintptr_t>(opaque(node));
  wipe_stack();
  return masked;
}
APART void free_two(uintptr_t masked) {
  auto* node = reinterpret_cast<Node*>(~masked);
  free(node->next);
  free(node);
}
APART void ignore(uintptr_t masked, size_t into) {
  HeapLeakChecker::IgnoreObject(reinterpret_cast<char*>(~masked) + into);
  wipe_stack();
}
APART void ignore_no_longer(uintptr_t masked) {
  HeapLeakChecker::UnIgnoreObject(reinterpret_cast<void*>(~masked));
  wipe_stack();
}

uintptr_t cleaned;
bool wants_cleanup = false;
REGISTER_HEAPCHECK_CLEANUP(two, if (wants_cleanup) free_two(cleaned))

void expect(HeapLeakChecker* checker, ssize_t bytes, ssize_t objects, int line) {
  bool none = checker->NoLeaks();
  if (none == (objects == 0) && checker->BytesLeaked() == bytes &&
      checker->ObjectsLeaked() == objects)
    return;
  ++failures;
  fprintf(stderr, "FAILED heap_checker:%d: %zd bytes in %zd objects\n", line,
          checker->BytesLeaked(), checker->ObjectsLeaked());
}
#define EXPECT_LEAKS(checker, bytes, objects) expect(&(checker), bytes, objects, __LINE__)

void check_parts() {
  lose(1000);
  HeapLeakChecker checker(std::string("part").c_str());
  EXPECT_LEAKS(checker, 0, 0);
  global = malloc(77);
  EXPECT_LEAKS(checker, 0, 0);
  lose(100);
  lose(5 << 20);
  EXPECT_LEAKS(checker, 100 + (5 << 20), 2);
  EXPECT(!checker.BriefSameHeap());
  HeapLeakChecker later("later");
  EXPECT_LEAKS(later, 0, 0);
  std::thread(lose, 33).join();
  EXPECT_LEAKS(later, 33, 1);
}

void check_disabler() {
  HeapLeakChecker checker("disabler");
  {
    HeapLeakChecker::Disabler outer;
    lose(10);
    {
      HeapLeakChecker::Disabler inner;
    }
    lose(11 << 20);
    hidden = hide_two();
    std::thread(lose, 12).join();  // not of this thread
  }
  EXPECT_LEAKS(checker, 12, 1);
  lose(14);
  EXPECT_LEAKS(checker, 26, 2);
}

void check_ignored() {
  HeapLeakChecker checker("ignored");
  uintptr_t two = hide_two();
  EXPECT_LEAKS(checker, 192, 2);
  ignore(two, 50);
  EXPECT_LEAKS(checker, 0, 0);
  ignore_no_longer(two);
  EXPECT_LEAKS(checker, 192, 2);
  free_two(two);
  EXPECT_LEAKS(checker, 0, 0);
  uintptr_t large = ~reinterpret_cast<uintptr_t>(opaque(malloc(5 << 20)));
  wipe_stack();
  EXPECT_LEAKS(checker, 5 << 20, 1);
  ignore(large, 4 << 20);
  EXPECT_LEAKS(checker, 0, 0);
  // No heap owns it.
  HeapLeakChecker::IgnoreObject(&checker);
  HeapLeakChecker::IgnoreObject(reinterpret_cast<char*>(~uintptr_t{0}));
}

// Other threads are not disturbed, nor does an ignored signal stop them.
void check_waiting() {
  int event = eventfd(0, 0), result = -2;
  std::thread waiting([event, &result] {
    int set = epoll_create1(0);
    epoll_event wanted = {EPOLLIN, {}}, got;
    epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted);
    result = epoll_wait(set, &got, 1, -1);
    close(set);
  });
  std::atomic<bool> enough = false;
  std::atomic<long> sent = 0;
  std::thread signalling([&] {
    while (!enough) {
      pthread_kill(waiting.native_handle(), SIGWINCH);
      ++sent;
    }
  });
  for (int i = 0; i < 100; ++i) {
    for (long before = sent; sent < before + 10;) std::this_thread::yield();
    HeapLeakChecker checker("waiting");
    EXPECT_LEAKS(checker, 0, 0);
  }
  enough = true;
  signalling.join();
  EXPECT(eventfd_write(event, 1) == 0);
  waiting.join();
  EXPECT(result == 1);
  close(event);
}

void check_global() {
  HeapLeakChecker* global_checker = HeapLeakChecker::GlobalChecker();
  EXPECT(global_checker != nullptr && global_checker == HeapLeakChecker::GlobalChecker());
  bool none = HeapLeakChecker::NoGlobalLeaks();
  EXPECT(!none && global_checker->BytesLeaked() >= 1000 && global_checker->ObjectsLeaked() >= 4);
}

void check_off() {
  HeapLeakChecker checker("off");
  lose(100);
  EXPECT(!HeapLeakChecker::IsActive() && HeapLeakChecker::GlobalChecker() == nullptr);
  EXPECT(HeapLeakChecker::NoGlobalLeaks() && checker.NoLeaks() && checker.QuickSameHeap());
  EXPECT(checker.BytesLeaked() == 0 && checker.ObjectsLeaked() == 0);
  HeapLeakChecker::CancelGlobalCheck();
  HeapLeakChecker::Disabler disabler;
  HeapLeakChecker::UnIgnoreObject(HeapLeakChecker::IgnoreObject(&checker));
  HeapLeakChecker::UnIgnoreObject(HeapLeakChecker::IgnoreObject(static_cast<int*>(global)));
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = argc == 2 ? argv[1] : "";
  HiddenPointer<int> pointer(&failures);
  EXPECT(pointer.get() == &failures);
  EXPECT(sizeof(HeapLeakChecker) == 56);
  EXPECT(HeapLeakChecker::IsActive() == (what != "off"));
  if (what == "off") {
    check_off();
  } else if (what == "calls" || what == "cancels") {
    check_parts();
    check_disabler();
    check_ignored();
    check_waiting();
    check_global();
    if (what == "cancels") HeapLeakChecker::CancelGlobalCheck();
  } else if (what == "cleans" || what == "leaks") {
    cleaned = hide_two();
    wants_cleanup = what == "cleans";
  } else if (what == "never_asked") {
    HeapLeakChecker checker("never asked");
  } else if (what == "asked_too_early") {
    HeapLeakChecker checker("early");
    printf("%zd\n", checker.BytesLeaked());
  } else if (what == "not_ignored") {
    HeapLeakChecker::UnIgnoreObject(global = malloc(3));
  } else {
    fprintf(stderr, "usage: see heap_checker.cc\n");
    return 2;
  }
  return failures == 0 ? 0 : 3;
}
