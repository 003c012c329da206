// Runs all tasks and prints a table: kit_compare [PART...]. The contestants of a task run by turns
// (A B C A B C …), so that what else the machine does meets all of them alike.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "compare.h"

namespace {

constexpr int kRounds = 21;
constexpr double kRoundNs = 2e6;  // of each contestant, at least

double run_ns(const Contestant& contestant, size_t times, uint64_t expected) {
  auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < times; i++) {
    if (contestant.run() != expected) {
      std::fprintf(stderr, "%s has another result\n", contestant.name);
      std::exit(1);
    }
  }
  std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  return took.count() / double(times);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Result {
  double ns;     // an operation
  double ratio;  // to the kit in the same round
};

std::vector<Result> measure(const Task& task) {
  size_t count = task.contestants.size();
  uint64_t expected = task.contestants[0].run();
  std::vector<size_t> times(count);
  for (size_t i = 0; i < count; i++) {
    double once = run_ns(task.contestants[i], 3, expected);
    times[i] = 1 + size_t(kRoundNs / once);
  }
  std::vector<std::vector<double>> ns(count), ratios(count);
  for (int round = 0; round < kRounds; round++) {
    for (size_t i = 0; i < count; i++) {
      ns[i].push_back(run_ns(task.contestants[i], times[i], expected) / double(task.operations));
      ratios[i].push_back(ns[i].back() / ns[0].back());
    }
  }
  std::vector<Result> results(count);
  for (size_t i = 0; i < count; i++) {
    results[i] = {median(ns[i]), median(ratios[i])};
  }
  return results;
}

void print_row(const Task& task, const std::vector<Result>& results) {
  std::printf("| %s | %s | %.1f |", task.part, task.what, results[0].ns);
  for (size_t i = 1; i < results.size(); i++) {
    std::printf("%s %s %.2f", i > 1 ? "," : "", task.contestants[i].name, results[i].ratio);
  }
  std::printf(" |\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  std::printf("Medians of %d rounds. Others: their time / the kit's; above 1 the kit is faster.\n",
              kRounds);
  if (*MISSING != 0) {
    std::printf("Not installed: %s\n", MISSING);
  }
  std::printf("\n| part | operation | kit, ns | others |\n|---|---|---:|---|\n");
  for (const auto& tasks : {container_tasks(), memory_tasks(), string_tasks(), number_tasks()}) {
    for (const Task& task : tasks) {
      bool wanted = count == 1;
      for (int i = 1; i < count; i++) {
        wanted = wanted || std::strcmp(words[i], task.part) == 0;
      }
      if (wanted) {
        print_row(task, measure(task));
      }
    }
  }
  return 0;
}
