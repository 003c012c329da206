// Views of one block in several threads, which read, split, share and release them, while the first
// thread appends to its own.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "choices.h"
#include "larder/kit/buffer.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 500;

// The bytes of a view that begins at byte `first` of the stream.
void check(const larder_buffer& view, size_t first) {
  for (size_t i = 0; i < view.size; i++) {
    CHECK(view.data[i] == char((first + i) % 101));
  }
}

// Takes the view.
void read(larder_buffer view, size_t first) {
  larder_buffer front, copy;
  check(view, first);
  larder_buffer_split_front(&view, view.size / 2, &front);
  larder_buffer_share(&view, view.size / 2, view.size / 4, &copy);
  check(front, first);
  size_t half = front.size;
  larder_buffer_release(&front);
  check(copy, first + half + view.size / 2);
  if (half % 2 == 0) {
    // Copies, unless this is the last view.
    CHECK(larder_buffer_append(&view, "x", 1) && view.data[view.size - 1] == 'x');
  }
  larder_buffer_release(&view);
  larder_buffer_release(&copy);
}

}  // namespace

int main() {
  larder_buffer stream;
  size_t first = 0;
  larder_buffer_init(&stream, LARDER_BUFFER_THREADS);
  for (int round = 0; round < kRounds; round++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
      larder_buffer view;
      larder_buffer_share(&stream, 0, stream.size, &view);
      threads.emplace_back(read, view, first);
    }
    for (size_t more = 50; more > 0; more--) {
      char next = char((first + stream.size) % 101);
      CHECK(larder_buffer_append(&stream, &next, 1));
    }
    check(stream, first);
    size_t dropped = round % 3 == 0 ? stream.size / 2 : 0;
    larder_buffer_drop_front(&stream, dropped);
    first += dropped;
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  CHECK(larder_buffer_is_unique(&stream));
  larder_buffer_release(&stream);
  return 0;
}
