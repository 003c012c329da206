// Long texts, of which each is compared with the one before it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifdef BEFORE
#include <editdistance/_editdistance.h>
#else
#include <src/editdistance/_editdistance.h>
#endif

int main(int argc, char** argv) {
  const int comparisons = argc > 1 ? std::atoi(argv[1]) : 20;
  std::vector<std::int64_t> one(700), other(700);
  unsigned long differences = 0;
  for (int comparison = 0; comparison < comparisons; comparison++) {
    for (int letter = 0; letter < 700; letter++) {
      one[letter] = letter * (comparison + 1) % 23;
      other[letter] = letter * (comparison + 2) % 29;
    }
    differences += edit_distance(one.data(), 700, other.data(), 700);
  }
  std::printf("%lu differences\n", differences);
  return 0;
}
