// bench_tiny bignum|trees: programs whose objects are nearly all smaller than 64 bytes.
//
// bignum behaves like cfrac (Zorn and Grunwald, 1992): each arithmetic step makes a fresh number
// of a few words and drops an old one. trees behaves like the GCBench family (Ellis, Kovac and
// Boehm): binary trees of 24-byte nodes, most short-lived, one kept. The fast path and the bytes
// an object really costs decide.

#include "workload.h"

namespace {

struct Number {
  std::uint32_t length;
  std::uint32_t digits[];
};

Number* make_number(std::uint32_t length) {
  auto* number = static_cast<Number*>(
      bench::checked(std::malloc(sizeof(Number) + length * sizeof(std::uint32_t))));
  number->length = length;
  return number;
}

Number* add(const Number* a, const Number* b) {
  const std::uint32_t length = (a->length > b->length ? a->length : b->length) + 1;
  Number* sum = make_number(length);
  std::uint64_t carry = 0;
  for (std::uint32_t i = 0; i < length; ++i) {
    carry += i < a->length ? a->digits[i] : 0;
    carry += i < b->length ? b->digits[i] : 0;
    sum->digits[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  if (sum->digits[length - 1] == 0) sum->length = length - 1;
  return sum;
}

// Keeps a prefix of the digits, like a reduction modulo a power of two.
Number* reduce(const Number* value, std::uint32_t limit) {
  const std::uint32_t length = value->length < limit ? value->length : limit;
  Number* reduced = make_number(length);
  std::memcpy(reduced->digits, value->digits, length * sizeof(std::uint32_t));
  return reduced;
}

std::size_t run_numbers() {
  const std::size_t steps = bench::work(8'000'000);
  Number* a = make_number(1);
  Number* b = make_number(1);
  a->digits[0] = b->digits[0] = 1;
  for (std::size_t i = 0; i < steps; ++i) {
    Number* sum = add(a, b);
    Number* next = reduce(sum, 1 + static_cast<std::uint32_t>(i % 11));
    std::free(sum);
    std::free(a);
    a = b;
    b = next;
  }
  bench::opaque(b);
  std::free(a);
  std::free(b);
  return steps * 2;
}

struct Node {
  Node* left;
  Node* right;
  std::uint64_t value;
};

Node* build(unsigned depth) {
  auto* node = static_cast<Node*>(bench::checked(std::malloc(sizeof(Node))));
  node->left = depth == 0 ? nullptr : build(depth - 1);
  node->right = depth == 0 ? nullptr : build(depth - 1);
  node->value = depth;
  return node;
}

void drop(Node* node) {
  if (node == nullptr) return;
  drop(node->left);
  drop(node->right);
  std::free(node);
}

std::size_t run_trees() {
  constexpr unsigned kShort = 12;
  Node* kept = build(bench::scale() < 0.1 ? 10 : 19);
  const std::size_t trees = bench::work(1500);
  for (std::size_t i = 0; i < trees; ++i) drop(bench::opaque(build(kShort)));
  drop(kept);
  return trees * ((2u << kShort) - 1);
}

}  // namespace

int main(int argc, char** argv) {
  const char* kind = argc > 1 ? argv[1] : "";
  const bench::Stopwatch watch;
  if (std::strcmp(kind, "bignum") == 0) {
    watch.report(run_numbers());
  } else if (std::strcmp(kind, "trees") == 0) {
    watch.report(run_trees());
  } else {
    std::fprintf(stderr, "usage: bench_tiny bignum|trees\n");
    return 2;
  }
  return 0;
}
