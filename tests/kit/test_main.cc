// NAME_test [OPERATIONS [SEED]]: random operations, in rounds that each begin with a new structure.
#include <algorithm>
#include <cinttypes>

#include "kit.h"

int main(int count, char** words) {
  uint64_t operations = count > 1 ? std::strtoull(words[1], nullptr, 10) : 100000;
  uint64_t seed = count > 2 ? std::strtoull(words[2], nullptr, 10) : 1;
  Choices rounds(seed, 0);
  std::printf("%s: %" PRIu64 " operations, seed %" PRIu64 "\n", kPart, operations, seed);
  for (uint64_t done = 0; done < operations;) {
    uint64_t longest = uint64_t{1} << rounds.below(17);
    uint64_t round = std::min(1 + rounds.below(longest), operations - done);
    Choices choices(rounds.word(), round);
    run(choices);
    CHECK(failing::blocks.empty());
    done += round;
  }
  return 0;
}
