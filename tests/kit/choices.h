// What a test of the kit is driven by: random numbers from a seed, or the bytes of a fuzzer.
//
// One thread. Bytes that have run out read as zeros, and end the test at its next operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

class Choices {
 public:
  // So many operations.
  Choices(uint64_t seed, uint64_t operations) : state_(seed), left_(operations) {}
  // As many operations as the bytes decide.
  Choices(const uint8_t* bytes, size_t size) : at_(bytes), end_(bytes + size) {}

  // Begins an operation; false: the test ends.
  bool more() {
    if (at_ != nullptr ? at_ == end_ : left_ == 0) {
      return false;
    }
    left_--;
    return true;
  }

  uint64_t below(uint64_t limit) {
    if (at_ == nullptr) {
      return next() % limit;
    }
    uint64_t value = 0;
    for (uint64_t reach = 1; reach < limit && reach != 0; reach <<= 8) {
      value = value << 8 | (at_ == end_ ? 0 : *at_++);
    }
    return value % limit;
  }

  bool one_in(uint64_t n) { return below(n) == n - 1; }

  uint64_t word() {
    if (at_ == nullptr) {
      return next();
    }
    uint64_t high = below(uint64_t{1} << 32);
    return high << 32 | below(uint64_t{1} << 32);
  }

  // From so many different letters, so that equal pieces come up.
  std::string text(size_t size, unsigned letters) {
    std::string made(size, 'a');
    for (char& letter : made) {
      letter = char('a' + below(letters));
    }
    return made;
  }

 private:
  // splitmix64
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  uint64_t state_ = 0;
  uint64_t left_ = 0;
};

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      std::fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                            \
    }                                                                          \
  } while (0)

// Defined by each test: operations on one new structure beside its model, until the choices end.
extern const char* const kPart;
void run(Choices& choices);
