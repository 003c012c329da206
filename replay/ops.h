// The operations that `larder replay` compiles a trace to; lab/src/replay/ops.rs writes them. Both
// are of one build: the magic number changes with the format.
//
// A file is a header, chunks, and a table. A chunk belongs to one thread: a header, then words of 8
// bytes. The table has the offset of each thread's first chunk, by the thread's number. A thread's
// chunks are in order in the file.
//
// A word: bits 0 to 4 are the code, 5 to 31 a slot or another small number, 32 to 63 a value.
// Prefixes apply to the next operation of their thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace replay {

inline constexpr char kMagic[8] = {'L', 'R', 'D', 'O', 'P', 'S', '0', '1'};

struct Header {
  char magic[8];
  uint64_t slots;         // most blocks that live at a time
  uint64_t threads;       // in the table
  uint64_t table;         // its offset
  uint64_t most_threads;  // that live at a time
};

struct ChunkHeader {
  uint32_t words;
  uint32_t reserved;
  uint64_t next;  // the offset of the thread's next chunk, 0 at its end
};

inline constexpr size_t kChunkBytes = 32 << 10;
inline constexpr size_t kChunkWords = (kChunkBytes - sizeof(ChunkHeader)) / sizeof(uint64_t);

enum class Code : uint8_t {
  kEnd = 0,
  kAlign,   // prefix; value: the logarithm of the alignment
  kWait,    // prefix; value: the turn that the slot must have reached
  kHigh,    // prefix; value: the upper half of the size
  kLap,     // value: the lap that begins here; two words follow, see pace.h
  kSpawn,   // value: the thread that starts
  kMalloc,  // from here on: small is the slot, value the lower half of the size
  kCalloc,
  kAlignedAlloc,
  kPosixMemalign,
  kMemalign,
  kValloc,
  kPvalloc,
  kNew,
  kNewArray,
  kRealloc,
  kFree,  // the size is what the caller stated, or 0
  kDelete,
  kDeleteArray,
};

inline constexpr unsigned kCodeBits = 5;
inline constexpr unsigned kSmallBits = 27;

}  // namespace replay
