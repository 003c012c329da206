// A program for another C library or processor: `storm` for the allocator, `work` for what is
// recorded, `shell` for a child of this machine's.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char* volatile last;

static void check(int fine, const char* what) {
  if (fine) return;
  fprintf(stderr, "program: %s\n", what);
  _exit(3);
}

// Each object is filled with its slot's number.
static void* churn(void* seed) {
  enum { kSlots = 256, kSteps = 200000 };
  unsigned char* objects[kSlots] = {0};
  size_t sizes[kSlots] = {0};
  uint32_t random = (uint32_t)(uintptr_t)seed;
  for (int step = 0; step < kSteps; ++step) {
    random = random * 1664525 + 1013904223;
    unsigned slot = random >> 24;
    size_t size = 1 + (random >> 8) % (step % 1000 == 0 ? 3000000 : 3000);
    unsigned char* object = objects[slot];
    if (object != NULL)
      check(object[0] == slot && object[sizes[slot] - 1] == slot, "an object changed");
    if (object != NULL && random % 2 == 0) {
      free(object);
      objects[slot] = NULL;
      continue;
    }
    size_t both = sizes[slot] < size ? sizes[slot] : size;
    objects[slot] = realloc(object, size);
    check(objects[slot] != NULL && malloc_usable_size(objects[slot]) >= size, "no memory");
    if (object != NULL)
      check(objects[slot][both - 1] == slot || both < sizes[slot], "realloc lost the contents");
    memset(objects[slot], (int)slot, sizes[slot] = size);
  }
  for (int slot = 0; slot < kSlots; ++slot) free(objects[slot]);
  return NULL;
}

static int storm(void) {
  enum { kThreads = 8, kForks = 20 };
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; ++i)
    check(pthread_create(&threads[i], NULL, churn, (void*)i) == 0, "no thread");
  for (int i = 0; i < kForks; ++i) {
    pid_t child = fork();
    if (child == 0) {
      churn((void*)99);
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a child failed");
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  void* aligned = NULL;
  check(posix_memalign(&aligned, 4096, 100) == 0 && (uintptr_t)aligned % 4096 == 0,
        "posix_memalign");
  free(aligned);
  aligned = aligned_alloc(64, 128);
  check(aligned != NULL && (uintptr_t)aligned % 64 == 0, "aligned_alloc");
  free(aligned);
  return 0;
}

static void spin(void) {
  for (volatile long i = 0; i < 300000000; ++i) {
  }
}

static void copy(void) {
  static char from[1 << 20], to[1 << 20];
  for (int i = 0; i < 100; ++i) {
    memcpy(to, from, sizeof to);
    last = to;
  }
}

static void read_bytes(void) {
  char byte;
  int file = open("/dev/zero", O_RDONLY);
  for (int i = 0; i < 500; ++i) check(read(file, &byte, 1) == 1, "/dev/zero");
  close(file);
}

static void lose(void) {
  for (int i = 0; i < 100; ++i) last = malloc(100);
  last = NULL;
}

static char* keep(void) { return malloc(10 << 20); }

static void* in_thread(void* kept) {
  spin();
  lose();
  return kept;
}

static int work(void) {
  static char* volatile kept;
  kept = keep();
  check(kept != NULL, "no memory");
  pthread_t thread;
  check(pthread_create(&thread, NULL, in_thread, kept) == 0, "no thread");
  pthread_join(thread, NULL);
  copy();
  read_bytes();
  last = strdup("a string");
  free(last);
  return 0;
}

int main(int count, char** words) {
  check(count == 2, "usage: program storm|work|shell|wait");
  if (strcmp(words[1], "storm") == 0) return storm();
  if (strcmp(words[1], "shell") == 0) return system("echo glibc") == 0 ? 0 : 1;
  int result = work();
  if (strcmp(words[1], "wait") == 0) {
    puts("ready");
    fflush(stdout);
    check(getchar() == EOF, "no end");
  }
  return result;
}
