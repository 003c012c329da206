// Patterns of a rule set, parsed, simplified and written again: each of those walks over the tree.
#include <re2/regexp.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 500;
  static const char* const patterns[] = {"abc", "[a-f]", "a.c", "^x$"};
  std::size_t letters = 0;
  for (int round = 0; round < rounds; round++) {
    for (const char* pattern : patterns) {
      re2::RegexpStatus status;
      re2::Regexp* parsed = re2::Regexp::Parse(pattern, re2::Regexp::LikePerl, &status);
      if (parsed == nullptr) return 1;
      letters += parsed->NumCaptures();
      letters += parsed->ToString().size();
      parsed->Decref();
    }
  }
  std::printf("%zu letters\n", letters);
  return 0;
}
