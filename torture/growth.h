// Detects unbounded growth: what the process holds when nothing is allocated, by round.
//
// REQUIRES: the calling thread is the only one that uses the allocator, and no block is live.
#pragma once

namespace torture {

// Allocates and frees many blocks, then compares with the previous rounds. A fault if memory keeps
// rising.
void check_growth();

}  // namespace torture
