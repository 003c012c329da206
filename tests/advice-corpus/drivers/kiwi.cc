// A row of boxes, laid out again and again: expressions are built, made into constraints, and
// solved.
#include <kiwi/kiwi.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int layouts = argc > 1 ? std::atoi(argv[1]) : 50;
  double sum = 0;
  for (int layout = 0; layout < layouts; layout++) {
    kiwi::Solver solver;
    kiwi::Variable left[21];
    solver.addConstraint(left[0] == 0);
    for (int box = 0; box < 20; box++)
      solver.addConstraint(left[box + 1] >= left[box] + 10 + layout % 3);
    solver.updateVariables();
    sum += left[20].value();
  }
  std::printf("%.0f\n", sum);
  return 0;
}
