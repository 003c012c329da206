// What the fuzzer does for hours, for a second and the same every time: a target with each file of
// its corpus, and with seeded mutants of them.
//
// Usage: PROGRAM CORPUS MUTANTS [FILE]. Exit 0: nothing was found; 1: an input breaks the target,
// and is left in FILE; 2: wrong usage.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "torture/memory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
using torture::Random;

std::vector<std::string> paths_in(const char* folder) {
  std::vector<std::string> paths;
  DIR* entries = opendir(folder);
  while (dirent* entry = entries != nullptr ? readdir(entries) : nullptr)
    if (entry->d_name[0] != '.') paths.push_back(std::string(folder) + "/" + entry->d_name);
  if (entries != nullptr) closedir(entries);
  std::sort(paths.begin(), paths.end());
  return paths;
}

Bytes read(const std::string& path) {
  Bytes bytes(1 << 16);
  FILE* file = fopen(path.c_str(), "rb");
  bytes.resize(file != nullptr ? fread(bytes.data(), 1, bytes.size(), file) : 0);
  if (file != nullptr) fclose(file);
  return bytes;
}

// [from, to) of the bytes, up to `most`.
Bytes part_of(const Bytes& bytes, size_t most, Random& random) {
  size_t from = random.below(bytes.size() + 1);
  size_t to = std::min(bytes.size(), from + random.below(most));
  return Bytes(bytes.begin() + long(from), bytes.begin() + long(to));
}

void mutate(Bytes& bytes, const std::vector<Bytes>& files, Random& random) {
  if (bytes.empty()) bytes.push_back(0);
  auto at = bytes.begin() + long(random.below(bytes.size()));
  switch (random.below(6)) {
    case 0:
      *at ^= uint8_t(1 << random.below(8));
      return;
    case 1:
      *at = uint8_t(random.next());
      return;
    case 2:
      bytes.erase(at, bytes.end());
      return;
    case 3:
      bytes.erase(at, std::min(bytes.end(), at + long(random.below(64))));
      return;
    default: {
      Bytes part =
          part_of(random.one_in(2) ? bytes : files[random.below(files.size())], 256, random);
      bytes.insert(at, part.begin(), part.end());
    }
  }
}

const char* found;  // where the input is left; may be null
const Bytes* tried;

void leave_input(int number) {
  int file = found != nullptr ? open(found, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
  bool left = file >= 0 && write(file, tried->data(), tried->size()) == ssize_t(tried->size());
  dprintf(STDERR_FILENO, "an input of %zu bytes ends with signal %d; it is left in %s\n",
          tried->size(), number, left ? found : "no file");
  _exit(1);
}

void try_input(const Bytes& bytes) {
  tried = &bytes;
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int count, char** words) {
  if (count < 3 || count > 4)
    return fprintf(stderr, "usage: %s CORPUS MUTANTS [FILE]\n", words[0]), 2;
  found = words[3];
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGILL})
    signal(number, leave_input);
  std::vector<Bytes> files;
  for (const std::string& path : paths_in(words[1])) files.push_back(read(path));
  if (files.size() < 5) return fprintf(stderr, "%s holds no corpus\n", words[1]), 2;
  for (const Bytes& bytes : files) try_input(bytes);
  Random random(0x5EED);
  uint64_t mutants = strtoull(words[2], nullptr, 10);
  for (uint64_t i = 0; i < mutants; ++i) {
    Bytes mutant = files[random.below(files.size())];
    for (uint64_t left = random.between(1, 6); left > 0; --left) mutate(mutant, files, random);
    try_input(mutant);
  }
  printf("%zu files, %llu mutants\n", files.size(), static_cast<unsigned long long>(mutants));
  return 0;
}
