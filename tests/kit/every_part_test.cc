// The kit in C++17, and in a second file of one program.
extern "C" {
int use_every_part_in_c(void);
}
int use_every_part_in_cc(void);

#define USE_EVERY_PART use_every_part_in_cc
#include "every_part.h"

#include <cstdio>

int main() {
  int c = use_every_part_in_c(), cc = use_every_part_in_cc();
  if (c != 0 || cc != 0) {
    std::fprintf(stderr, "every_part.h:%d fails in C, :%d in C++ (0: none)\n", c, cc);
  }
  return c != 0 || cc != 0;
}
