#include "block.h"

#include <string.h>

#include "memory.h"

namespace torture {

namespace {

uint64_t pattern_seed;

// Word i of a block's pattern is key + i * kStep: one addition a word, so that the loops below run
// at the speed of memory, and blocks with different keys differ in every word.
constexpr uint64_t kStep = 0x9E3779B97F4A7C15;

uint64_t key_of(uint64_t id) { return mix(pattern_seed ^ mix(id)); }

uint64_t word_at(uint64_t key, size_t offset) { return key + offset / 8 * kStep; }

// Two words at a time, which every machine's vector instructions do.
using Pair = uint64_t __attribute__((vector_size(16)));
Pair pair_at(uint64_t key, size_t offset) {
  uint64_t first = word_at(key, offset);
  return Pair{first, first + kStep};
}

unsigned char byte_at(uint64_t key, size_t offset) {
  return static_cast<unsigned char>(word_at(key, offset) >> (offset % 8 * 8));
}

void describe(const unsigned char* p, size_t bytes, uint64_t key, size_t from, Damage* damage) {
  *damage = {};
  damage->first = bytes;
  for (size_t i = from; i < bytes; ++i) {
    if (p[i] == byte_at(key, i)) continue;
    if (damage->bytes++ == 0) damage->first = i;
  }
  damage->shown = bytes - damage->first < 16 ? bytes - damage->first : 16;
  for (size_t i = 0; i < damage->shown; ++i) {
    damage->expected[i] = byte_at(key, damage->first + i);
    damage->found[i] = p[damage->first + i];
  }
}

}  // namespace

void set_pattern_seed(uint64_t seed) { pattern_seed = seed; }

void fill_pattern(unsigned char* p, size_t from, size_t to, uint64_t id) {
  uint64_t key = key_of(id);
  size_t i = from;
  for (; i < to && i % 8 != 0; ++i) p[i] = byte_at(key, i);
  Pair words = pair_at(key, i);
  for (; i + 16 <= to; i += 16, words += 2 * kStep) memcpy(p + i, &words, 16);
  if (i + 8 <= to) {
    memcpy(p + i, &words, 8);
    i += 8;
  }
  for (; i < to; ++i) p[i] = byte_at(key, i);
}

bool check_pattern(const unsigned char* p, size_t bytes, uint64_t id, Damage* damage) {
  uint64_t key = key_of(id);
  constexpr size_t kChunk = 512;
  size_t i = 0;
  for (size_t next; i + 16 <= bytes; i = next) {
    next = i + (bytes - i < kChunk ? (bytes - i) / 16 * 16 : kChunk);
    Pair wrong = {0, 0};
    Pair expected = pair_at(key, i);
    for (size_t j = i; j < next; j += 16, expected += 2 * kStep) {
      Pair words;
      memcpy(&words, p + j, 16);
      wrong |= words ^ expected;
    }
    if ((wrong[0] | wrong[1]) != 0) return describe(p, bytes, key, i, damage), false;
  }
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    memcpy(&word, p + i, 8);
    if (word != word_at(key, i)) return describe(p, bytes, key, i, damage), false;
  }
  for (; i < bytes; ++i)
    if (p[i] != byte_at(key, i)) return describe(p, bytes, key, i, damage), false;
  return true;
}

size_t first_nonzero(const unsigned char* p, size_t bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    memcpy(&word, p + i, 8);
    if (word != 0) break;
  }
  while (i < bytes && p[i] == 0) ++i;
  return i;
}

}  // namespace torture
