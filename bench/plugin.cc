// A library that `bench_stacks plugins` loads and unloads; compiled twice, with frames of other
// sizes (PLUGIN_ROOM), so that unwinding rules of the one are wrong for the other at the same
// address.

#include <cstddef>
#include <cstdlib>
#include <string>

namespace {

[[gnu::noinline]] std::size_t recurse(std::size_t depth) {
  volatile char room[PLUGIN_ROOM];
  room[depth] = 1;
  const std::string text(depth + 20, 'p');
  return depth == 0 ? text.size() : recurse(depth - 1) + static_cast<std::size_t>(room[depth]);
}

}  // namespace

extern "C" std::size_t plugin_work(std::size_t depth) { return recurse(depth); }
