// A heap of 1 GiB in a million objects, of which a thousand are lost, to time a check. Usage:
// large_heap, under HEAPCHECK. The time is that from here to the process's end.
// With an argument it stays, for `larder leaks PID`.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr size_t kObjects = 1'000'000;
constexpr size_t kBytes = (size_t{1} << 30) / kObjects;

struct Object {
  Object* left;
  Object* right;
  char payload[kBytes - 2 * sizeof(Object*)];
};

}  // namespace

// In data: the first is the root.
Object** objects;

int main(int argc, char**) {
  objects = static_cast<Object**>(malloc(kObjects * sizeof(Object*)));
  for (size_t i = 0; i < kObjects; ++i) {
    objects[i] = static_cast<Object*>(malloc(sizeof(Object)));
    memset(objects[i], 0x5a, sizeof(Object));
    objects[i]->left = objects[i]->right = nullptr;
  }
  // A tree whose neighbours lie far apart. One in 500 of its leaves is not linked.
  auto shuffled = [](size_t i) { return objects[i * 611'953 % kObjects]; };
  for (size_t i = 1; i < kObjects; ++i) {
    if (i >= kObjects / 2 && i % 500 == 0) continue;
    Object* parent = shuffled((i - 1) / 2);
    (i % 2 != 0 ? parent->left : parent->right) = shuffled(i);
  }
  memset(static_cast<void*>(objects + 1), 0, (kObjects - 1) * sizeof(Object*));
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%ld.%09ld\n", long(now.tv_sec), now.tv_nsec);
  fflush(stdout);
  if (argc > 1) pause();
  return 0;
}
