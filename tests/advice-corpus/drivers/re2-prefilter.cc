// Rules, of which each asks for one of two words, put into the tree that tells which of them a text
// with certain words can match.
#include <re2/prefilter.h>
#include <re2/prefilter_tree.h>
#include <re2/re2.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const int trees = argc > 1 ? std::atoi(argv[1]) : 100;
  static const char* const patterns[] = {
      "disk|network", "disk|cache",    "login|cache",
      "login|query",  "query|timeout", "timeout|network",
  };
  std::vector<std::unique_ptr<re2::RE2>> rules;
  for (const char* pattern : patterns) rules.emplace_back(new re2::RE2(pattern));
  std::size_t words = 0;
  for (int number = 0; number < trees; number++) {
    re2::PrefilterTree tree(3);
    for (const auto& rule : rules) tree.Add(re2::Prefilter::FromRE2(rule.get()));
    std::vector<std::string> atoms;
    tree.Compile(&atoms);
    words += atoms.size();
  }
  std::printf("%zu words\n", words);
  return 0;
}
