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
  for (; i + 8 <= to; i += 8) {
    uint64_t word = word_at(key, i);
    memcpy(p + i, &word, 8);
  }
  for (; i < to; ++i) p[i] = byte_at(key, i);
}

bool check_pattern(const unsigned char* p, size_t bytes, uint64_t id, Damage* damage) {
  uint64_t key = key_of(id);
  size_t i = 0;
  constexpr size_t kChunk = 512;
  for (; i + kChunk <= bytes; i += kChunk) {
    uint64_t wrong = 0;
    uint64_t expected = word_at(key, i);
    for (size_t j = 0; j < kChunk; j += 8, expected += kStep) {
      uint64_t word;
      memcpy(&word, p + i + j, 8);
      wrong |= word ^ expected;
    }
    if (wrong != 0) return describe(p, bytes, key, i, damage), false;
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
