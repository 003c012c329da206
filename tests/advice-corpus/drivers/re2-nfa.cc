// Searches with a pattern that can begin anywhere, by the machine that follows all ways at once.
#include <re2/prog.h>
#include <re2/regexp.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  const int searches = argc > 1 ? std::atoi(argv[1]) : 500;
  re2::RegexpStatus status;
  re2::Regexp* parsed = re2::Regexp::Parse("([a-z]{1,60})9", re2::Regexp::LikePerl, &status);
  if (parsed == nullptr) return 1;
  re2::Prog* program = parsed->CompileToProg(0);
  std::string text;
  for (int letter = 0; letter < 120; letter++) text += static_cast<char>('a' + letter % 23);
  text += '9';
  std::size_t found = 0;
  for (int search = 0; search < searches; search++) {
    re2::StringPiece groups[2];
    if (program->SearchNFA(text, text, re2::Prog::kUnanchored, re2::Prog::kFirstMatch, groups, 2))
      found += groups[0].size() + groups[1].size();
  }
  delete program;
  parsed->Decref();
  std::printf("%zu letters\n", found);
  return 0;
}
