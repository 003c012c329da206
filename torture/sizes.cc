#include "sizes.h"

namespace torture {

namespace {

// One below, at, or one above.
size_t about(Random& random, size_t size) { return size - 1 + random.below(3); }

// Powers of two and the eighths between them: bounds of most allocators' size classes.
size_t class_edge(Random& random) {
  size_t power = size_t{1} << random.between(3, 15);
  return about(random, power + power / 8 * random.below(8));
}

// Every number of bits is equally likely.
size_t log_uniform(Random& random, unsigned low_bits, unsigned high_bits) {
  size_t power = size_t{1} << random.between(low_bits, high_bits - 1);
  return power + random.below(power);
}

size_t large(Random& random, size_t most) {
  switch (random.below(5)) {
    case 0:
      return choose_border(random) % (most + 1);
    case 1:
      return about(random, size_t{16} * kKiB * random.between(2, 64));
    case 2:
      return about(random, kMiB * random.between(1, 8));
    case 3:
      return log_uniform(random, 15, 22);
    default:
      return log_uniform(random, 20, 26) % (most + 1);
  }
}

}  // namespace

size_t choose_border(Random& random) {
  static constexpr size_t kBorders[] = {16 * kKiB, 32 * kKiB, 512 * kKiB, kMiB, 2 * kMiB, 4 * kMiB};
  static constexpr size_t kSteps[] = {0, 1, 16, 64, 4096, 16 * kKiB - 1};
  size_t border = kBorders[random.below(sizeof kBorders / sizeof kBorders[0])];
  size_t step = kSteps[random.below(sizeof kSteps / sizeof kSteps[0])];
  return random.one_in(2) ? border + step : border - step;
}

size_t choose_burst(Random& random) {
  return random.one_in(8) ? log_uniform(random, 11, 17) : log_uniform(random, 3, 11);
}

size_t choose_size(Random& random, Mood mood, size_t most) {
  unsigned roll = unsigned(random.below(1000));
  size_t size;
  if (roll < 10)
    size = 0;
  else if (roll < 14)
    size = large(random, most);
  else if (roll < 400 || mood == Mood::kMixed)
    size = roll % 2 == 0 ? random.between(1, 64) : log_uniform(random, 0, 14);
  else if (mood == Mood::kTiny)
    size = random.between(1, 128);
  else if (mood == Mood::kClassEdges)
    size = class_edge(random);
  else if (mood == Mood::kPages)
    size = about(random, 4096 * random.between(1, roll < 900 ? 16 : 64));
  else
    size = roll < 960 ? log_uniform(random, 8, 18) : large(random, most);
  return size <= most ? size : size % (most + 1);
}

size_t choose_align(Random& random, size_t least) {
  unsigned roll = unsigned(random.below(1000));
  unsigned most_bits = roll < 800 ? 8 : roll < 970 ? 13 : roll < 996 ? 16 : 22;
  size_t align = size_t{1} << random.between(0, most_bits);
  return align < least ? least : align;
}

}  // namespace torture
