// How a program loses an object for sure: no register and no stack holds on to it by chance.
#pragma once

#include <string.h>

#define APART [[gnu::noinline]]

// Keeps the compiler from knowing what is done with it.
template <typename T>
T* opaque(T* p) {
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}

// What was left on the stack by frames that have returned is no reference; but frames that are
// still there may have holes where it shows.
APART inline void wipe_stack() {
  char room[16384];
  memset(opaque(room), 0, sizeof room);
  opaque(room);
}
