// Growth without bound: what the process holds when nothing is allocated, round by round.
//
// REQUIRES: the calling thread is the only one that uses the allocator, and no block is live.
#pragma once

namespace torture {

// Makes and frees many blocks without keeping any, then compares with the rounds before. A fault if
// memory keeps rising.
void check_growth();

}  // namespace torture
