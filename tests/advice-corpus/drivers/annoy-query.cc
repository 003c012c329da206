// Neighbours of points, from an index that is small enough for one leaf.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "annoylib.h"
#include "kissrandom.h"

#ifdef AFTER
using namespace Annoy;
using Index = AnnoyIndex<int, float, Euclidean, Kiss64Random, AnnoyIndexSingleThreadedBuildPolicy>;
#else
using Index = AnnoyIndex<int, float, Euclidean, Kiss64Random>;
#endif

int main(int argc, char** argv) {
  const int queries = argc > 1 ? std::atoi(argv[1]) : 3000;
  constexpr int kSize = 20;
  Index index(kSize);
  float point[kSize];
  for (int item = 0; item < 16; item++) {
    for (int at = 0; at < kSize; at++) point[at] = static_cast<float>(item * (at + 1) % 17);
    index.add_item(item, point);
  }
  index.build(2);
  long sum = 0;
  for (int query = 0; query < queries; query++) {
    for (int at = 0; at < kSize; at++) point[at] = static_cast<float>(query * (at + 2) % 13);
    std::vector<int> found;
    index.get_nns_by_vector(point, 3, 16, &found, nullptr);
    sum += static_cast<long>(found.size());
  }
  std::printf("%ld neighbours\n", sum);
  return 0;
}
