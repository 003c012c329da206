// Leaks, and objects that seem to be leaks and are none, each by its name. check.py compares
// HEAPCHECK's report. Usage: planted NAME

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unseen.h"

// LeakSanitizer's calls, which Larder has.
extern "C" {
[[gnu::weak]] void __lsan_disable();
[[gnu::weak]] void __lsan_enable();
[[gnu::weak]] void __lsan_ignore_object(const void*);
[[gnu::weak]] void __lsan_do_leak_check();
[[gnu::weak]] int __lsan_do_recoverable_leak_check();
}

// Global: the compiler may drop writes to what cannot be read.
void* global;
uintptr_t hidden;
char* inside;
std::vector<int*>* in_global_vector;
std::vector<int*> destroyed_at_exit;
thread_local void* in_tls;

namespace {

struct Node {
  Node* next;
  char payload[40];
};
APART Node* node(Node* next) {
  auto* n = static_cast<Node*>(opaque(malloc(sizeof(Node))));
  n->next = next;
  return n;
}

APART void lose(size_t size) { memset(opaque(malloc(size)), 1, size); }

APART void direct() { lose(100); }
APART void zero_bytes() { opaque(malloc(0)); }
APART void chain() { opaque(node(node(node(nullptr)))); }
APART void ring() {
  Node* last = node(nullptr);
  last->next = node(node(last));
}
APART void ring_and_head() {
  Node* last = node(nullptr);
  last->next = node(last);
  opaque(node(last));
}
APART void self() {
  Node* n = node(nullptr);
  n->next = n;
}
APART void interior() { inside = static_cast<char*>(malloc(5000)) + 4000; }
APART void behind() { inside = static_cast<char*>(malloc(64)) + 64; }
APART void exclusive_or() { hidden = reinterpret_cast<uintptr_t>(malloc(64)) ^ 0xF03A5F7BF03A5F7B; }
APART void run() { lose(100 * 1024); }
APART void mapping() { lose(5 * 1024 * 1024); }
APART void mapping_inside() { inside = static_cast<char*>(malloc(8 << 20)) + (7 << 20); }
APART void aligned() {
  opaque(aligned_alloc(64, 640));
  void* p;
  if (posix_memalign(&p, 4096, 5000) != 0) abort();
  opaque(memalign(1 << 20, 70000));
}
APART void cpp() {
  opaque(new char[7]);
  opaque(new std::string(1000, 'x'));
  opaque(::operator new(24, std::align_val_t(64)));
}
APART void grown() {
  void* p = malloc(10);
  for (size_t size : {20, 3000, 200'000, 3'000'000, 50}) p = opaque(realloc(p, size));
}
APART void cleared() { opaque(calloc(3, 11)); }
APART void stale() {
  // A reused block has none of its old contents.
  auto** first = static_cast<void**>(malloc(48));
  *opaque(first) = malloc(33);
  free(first);
  global = opaque(malloc(48));
}
APART void unaligned() {
  char* packed = static_cast<char*>(malloc(48));
  global = packed;
  void* p = malloc(71);
  memcpy(packed + 3, &p, sizeof p);
}
APART void kept_in_mapping() {
  auto** page = static_cast<void**>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  page[17] = malloc(77);
}
APART void kept_in_constant_data() {
  void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static_cast<void**>(p)[3] = malloc(77);
  mprotect(p, 4096, PROT_READ);
}
APART void kept() {
  global = node(node(node(nullptr)));
  in_tls = malloc(55);
  in_global_vector = new std::vector<int*>{new int, new int};
  destroyed_at_exit.push_back(new int);
}

APART void* lose_in_thread(void*) {
  lose(123);
  in_tls = malloc(321);
  lose(5 << 20);
  return nullptr;
}
void ended_thread() {
  pthread_t t;
  for (int i = 0; i < 3; ++i) {
    pthread_create(&t, nullptr, lose_in_thread, nullptr);
    pthread_join(t, nullptr);
  }
}

// Threads with the only pointer to an object: on their stack, in a register, in thread-local
// storage.
std::atomic<int> ready{0};
APART void* hold_on_stack(void*) {
  void* volatile p = malloc(200);
  ++ready;
  for (;;) pause();
  free(p);
}
APART void* hold_in_register(void*) {
  void* p = malloc(201);
#if defined(__x86_64__)
  register void* held __asm__("r12") = p;
  p = nullptr;
  __asm__ volatile("lock incl %1\n1: pause\njmp 1b" : "+r"(held), "+m"(ready));
#else
  ++ready;
  for (;;) opaque(p);
#endif
  return p;
}
APART void* hold_in_vector_register(void*) {
#if defined(__x86_64__)
  uintptr_t p = reinterpret_cast<uintptr_t>(malloc(203));
  __asm__ volatile("movq %0, %%xmm7\nxor %0, %0\nxor %%eax, %%eax\nlock incl %1\n1: pause\njmp 1b"
                   : "+r"(p), "+m"(ready)
                   :
                   : "xmm7", "rax");
#else
  return hold_in_register(nullptr);
#endif
  return nullptr;
}
APART void* hold_in_tls(void*) {
  in_tls = malloc(202);
  ++ready;
  for (;;) pause();
}
void threads_hold() {
  pthread_t t;
  for (auto* hold : {hold_on_stack, hold_in_register, hold_in_vector_register, hold_in_tls})
    pthread_create(&t, nullptr, hold, nullptr);
  while (ready != 4) usleep(1000);
}

// A coroutine that waits, on a stack of its own making.
ucontext_t outer, inner;
void coroutine() {
  void* volatile p = malloc(88);
  swapcontext(&inner, &outer);
  free(p);
}
APART void suspended_coroutine() {
  char* stack = static_cast<char*>(
      mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  getcontext(&inner);
  inner.uc_stack.ss_sp = stack;
  inner.uc_stack.ss_size = 65536;
  inner.uc_link = &outer;
  makecontext(&inner, coroutine, 0);
  swapcontext(&outer, &inner);
}

APART void forked() {
  pid_t child = fork();
  if (child == 0) {
    lose(100);
    exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
}

void exits_within() {
  void* volatile p = malloc(60);
  exit(0);
  free(p);
}
void prints_without_newline() {
  lose(100);
  printf("not lost");
}
// A reader holds the file's lock.
void waits_for_input() {
  static int ends[2];
  if (pipe(ends) != 0) abort();
  static std::atomic<bool> begun{false};
  static FILE* input = fdopen(ends[0], "r");
  std::thread([] {
    char line[10];
    begun = true;
    if (fgets(line, sizeof line, input) != nullptr) abort();
  }).detach();
  while (!begun) usleep(1000);
  while (ftrylockfile(input) == 0) {
    funlockfile(input);
    usleep(1000);
  }
  lose(100);
  printf("not lost");
}
APART Node* make_head(Node* next) { return node(next); }
APART void lost_parts() { opaque(make_head(node(node(nullptr)))); }
void lsan_disabled() {
  __lsan_disable();
  __lsan_disable();
  lose(41);
  __lsan_enable();
  lose(42);
  __lsan_enable();
  lose(43);
}
APART void lsan_ignored() {
  __lsan_ignore_object(reinterpret_cast<char*>(opaque(node(node(nullptr)))) + 9);
}
void lsan_checks() {
  if (__lsan_do_recoverable_leak_check() != 0) printf("too early\n");
  lose(44);
  wipe_stack();
  if (__lsan_do_recoverable_leak_check() == 0) printf("not found\n");
}
void lsan_ends() {
  __lsan_do_leak_check();
  lose(45);
  wipe_stack();
  __lsan_do_leak_check();  // once is enough
}
void lsan_ends_leaking() {
  lose(46);
  wipe_stack();
  __lsan_do_leak_check();
  printf("not ended\n");
}
// Before main, by constructors of the program: see the one below.
void early() {}
void early_exits() {
  lose(62);
  wipe_stack();
  exit(0);
}
void fails_itself() {
  lose(100);
  wipe_stack();
  exit(3);
}
void many_sites() {
  void (*const sites[])() = {direct, run, cleared, zero_bytes};
  for (int i = 0; i < 3; ++i)
    for (auto* site : sites) site();
}
// A handler that interrupts the allocator defers its frees to the next free.
void freed_in_handler() {
  static void* blocks[200];
  static volatile int freed = 0;
  for (void*& block : blocks) block = malloc(40);
  signal(SIGALRM, [](int) {
    if (freed < 200) free(std::exchange(blocks[freed], nullptr));
    freed = freed + 1;
  });
  itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, nullptr);
  static void** kept = nullptr;
  while (freed < 200) {
    auto** p = static_cast<void**>(malloc(64));
    *p = kept;
    kept = p;
  }
  setitimer(ITIMER_REAL, nullptr, nullptr);
}
void sanitary() {
  free(malloc(3));
  std::thread([] { delete new int; }).join();
}

struct Case {
  const char* name;
  void (*plant)();
};
constexpr Case kCases[] = {
    {"direct", direct},
    {"zero_bytes", zero_bytes},
    {"chain", chain},
    {"ring", ring},
    {"ring_and_head", ring_and_head},
    {"self", self},
    {"interior", interior},
    {"behind", behind},
    {"exclusive_or", exclusive_or},
    {"run", run},
    {"mapping", mapping},
    {"mapping_inside", mapping_inside},
    {"aligned", aligned},
    {"cpp", cpp},
    {"grown", grown},
    {"cleared", cleared},
    {"stale", stale},
    {"unaligned", unaligned},
    {"kept", kept},
    {"kept_in_mapping", kept_in_mapping},
    {"kept_in_constant_data", kept_in_constant_data},
    {"ended_thread", ended_thread},
    {"threads_hold", threads_hold},
    {"suspended_coroutine", suspended_coroutine},
    {"forked", forked},
    {"exits_within", exits_within},
    {"prints_without_newline", prints_without_newline},
    {"waits_for_input", waits_for_input},
    {"early", early},
    {"early_exits", early_exits},
    {"lost_parts", lost_parts},
    {"lsan_disabled", lsan_disabled},
    {"lsan_ignored", lsan_ignored},
    {"lsan_checks", lsan_checks},
    {"lsan_ends", lsan_ends},
    {"lsan_ends_leaking", lsan_ends_leaking},
    {"fails_itself", fails_itself},
    {"many_sites", many_sites},
    {"freed_in_handler", freed_in_handler},
    {"sanitary", sanitary},
};

[[gnu::constructor]] void lose_before_main(int argc, char** argv, char**) {
  if (argc != 2 || strncmp(argv[1], "early", 5) != 0) return;
  lose(61);
  std::thread(lose, 63).join();
  wipe_stack();
}

}  // namespace

int main(int argc, char** argv) {
  for (const Case& c : kCases) {
    if (argc != 2 || strcmp(argv[1], c.name) != 0) continue;
    c.plant();
    wipe_stack();
    return 0;
  }
  fprintf(stderr, "usage: planted NAME\n");
  return 2;
}
