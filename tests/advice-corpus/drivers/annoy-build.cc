// An index of points that are divided into leaves, built again and again.
#include <cstdio>
#include <cstdlib>

#include "annoylib.h"
#include "kissrandom.h"

#ifdef AFTER
using namespace Annoy;
using Index = AnnoyIndex<int, float, Euclidean, Kiss64Random, AnnoyIndexSingleThreadedBuildPolicy>;
#else
using Index = AnnoyIndex<int, float, Euclidean, Kiss64Random>;
#endif

int main(int argc, char** argv) {
  const int indexes = argc > 1 ? std::atoi(argv[1]) : 200;
  constexpr int kSize = 4;
  int items = 0;
  for (int number = 0; number < indexes; number++) {
    Index index(kSize);
    for (int item = 0; item < 20; item++) {
      float point[kSize];
      for (int at = 0; at < kSize; at++)
        point[at] = static_cast<float>((item * 7 + at * number) % 19);
      index.add_item(item, point);
    }
    index.build(10);
    items += index.get_n_items();
  }
  std::printf("%d items\n", items);
  return 0;
}
