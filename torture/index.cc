#include "index.h"

#include <unistd.h>

#include "bits.h"
#include "memory.h"

namespace torture::live_blocks {

namespace {

constexpr int kPieceShift = 18;
constexpr uintptr_t kPiece = uintptr_t{1} << kPieceShift;
constexpr size_t kShards = 256;

struct Node {
  uintptr_t start, end;
  Node *left, *right;
  uint64_t priority;
  Block block;
  bool first;   // the piece that holds the block's first byte
  bool filled;  // of the first piece
};

struct alignas(128) Shard {
  Lock lock;
  Node* root;
  Node* unused;  // linked by left
};

Shard* shards;
FindUnlisted find_unlisted = nullptr;
// Two blocks overlap: neither may be removed before the report has both.
std::atomic<bool> frozen;

Shard& shard_of(uintptr_t address) { return shards[mix(address >> kPieceShift) % kShards]; }

Node* take_node(Shard& shard) {
  if (shard.unused == nullptr) {
    constexpr size_t kBytes = 64 * kKiB;
    auto* fresh = static_cast<Node*>(map_pages(kBytes));
    if (fresh == nullptr) return nullptr;
    for (size_t i = 0; i < kBytes / sizeof(Node); ++i) {
      fresh[i].left = shard.unused;
      shard.unused = &fresh[i];
    }
  }
  Node* node = shard.unused;
  shard.unused = node->left;
  return node;
}

void give_node(Shard& shard, Node* node) {
  node->left = shard.unused;
  shard.unused = node;
}

// Everything that starts below `key` goes left.
void split(Node* tree, uintptr_t key, Node** left, Node** right) {
  while (tree != nullptr) {
    if (tree->start < key) {
      *left = tree;
      left = &tree->right;
      tree = tree->right;
    } else {
      *right = tree;
      right = &tree->left;
      tree = tree->left;
    }
  }
  *left = *right = nullptr;
}

Node* join(Node* left, Node* right) {
  Node* root = nullptr;
  Node** place = &root;
  while (left != nullptr && right != nullptr) {
    if (left->priority > right->priority) {
      *place = left;
      place = &left->right;
      left = left->right;
    } else {
      *place = right;
      place = &right->left;
      right = right->left;
    }
  }
  *place = left != nullptr ? left : right;
  return root;
}

// A piece that overlaps [start, end). Pieces are disjoint, so only the last one that starts before
// `end` can.
Node* overlapping(Node* tree, uintptr_t start, uintptr_t end) {
  Node* last = nullptr;
  while (tree != nullptr) {
    if (tree->start < end) {
      last = tree;
      tree = tree->right;
    } else {
      tree = tree->left;
    }
  }
  return last != nullptr && last->end > start ? last : nullptr;
}

Node* find(Node* tree, uintptr_t start) {
  while (tree != nullptr && tree->start != start)
    tree = start < tree->start ? tree->left : tree->right;
  return tree;
}

void insert_node(Shard& shard, Node* node) {
  Node** place = &shard.root;
  while (*place != nullptr && (*place)->priority > node->priority)
    place = node->start < (*place)->start ? &(*place)->left : &(*place)->right;
  split(*place, node->start, &node->left, &node->right);
  *place = node;
}

bool remove_at(Shard& shard, uintptr_t start) {
  Node** place = &shard.root;
  while (*place != nullptr && (*place)->start != start)
    place = start < (*place)->start ? &(*place)->left : &(*place)->right;
  Node* node = *place;
  if (node == nullptr) return false;
  *place = join(node->left, node->right);
  give_node(shard, node);
  return true;
}

uintptr_t start_of(const Block& block) { return reinterpret_cast<uintptr_t>(block.p); }
// A block of no bytes has a unique address, too.
uintptr_t end_of(const Block& block) {
  return start_of(block) + (block.usable != 0 ? block.usable : 1);
}
uintptr_t piece_end(uintptr_t start, uintptr_t end) {
  uintptr_t next = (start | (kPiece - 1)) + 1;
  return next < end ? next : end;
}

Added added(bits::Outcome outcome) {
  return outcome == bits::Outcome::kDone    ? Added::kDone
         : outcome == bits::Outcome::kTaken ? Added::kOverlaps
                                            : Added::kNoMemory;
}

}  // namespace

bool init() {
  shards = static_cast<Shard*>(map_pages(kShards * sizeof(Shard)));
  return shards != nullptr && bits::init();
}

namespace {

Added insert_piece(const Block& block, uintptr_t at, uintptr_t end, Block* other) {
  Shard& shard = shard_of(at);
  Guard guard(shard.lock);
  if (Node* hit = overlapping(shard.root, at, end)) {
    *other = hit->block;
    return Added::kOverlaps;
  }
  Node* node = take_node(shard);
  if (node == nullptr) return Added::kNoMemory;
  *node = {at,
           end,
           nullptr,
           nullptr,
           mix(at ^ block.id * 0x9E3779B97F4A7C15),
           block,
           at == start_of(block),
           false};
  insert_node(shard, node);
  return added(bits::set(at, end));
}

Added insert_listed(const Block& block, Block* other) {
  for (uintptr_t at = start_of(block); at < end_of(block); at = piece_end(at, end_of(block))) {
    Added outcome = insert_piece(block, at, piece_end(at, end_of(block)), other);
    if (outcome != Added::kDone) return outcome;
  }
  return Added::kDone;
}

// A listed block that overlaps this unlisted one.
bool find_listed(const Block& block, Block* other) {
  for (uintptr_t at = start_of(block); at < end_of(block); at = piece_end(at, end_of(block))) {
    Shard& shard = shard_of(at);
    Guard guard(shard.lock);
    Node* hit = overlapping(shard.root, at, piece_end(at, end_of(block)));
    if (hit == nullptr) continue;
    *other = hit->block;
    return true;
  }
  return false;
}

}  // namespace

void set_find_unlisted(FindUnlisted find) { find_unlisted = find; }

Added insert(const Block& block, Block* other) {
  Added outcome =
      block.listed ? insert_listed(block, other) : added(bits::set(start_of(block), end_of(block)));
  if (outcome != Added::kOverlaps || other->p != nullptr) return outcome;
  frozen.store(true);
  if (find_unlisted != nullptr && find_unlisted(block, other)) return outcome;
  if (!block.listed) find_listed(block, other);
  return outcome;
}

void mark_filled(const Block& block) {
  Shard& shard = shard_of(start_of(block));
  Guard guard(shard.lock);
  if (Node* node = find(shard.root, start_of(block))) node->filled = true;
}

bool remove(const Block& block) {
  // Relaxed: what is removed at that moment is missing in the report.
  while (frozen.load(std::memory_order_relaxed)) pause();
  if (!block.listed) return bits::clear(start_of(block), end_of(block));
  for (uintptr_t at = start_of(block); at < end_of(block); at = piece_end(at, end_of(block))) {
    Shard& shard = shard_of(at);
    Guard guard(shard.lock);
    bool had_bits = bits::clear(at, piece_end(at, end_of(block)));
    if (!remove_at(shard, at) || !had_bits) return false;
  }
  return true;
}

void lock_all() {
  for (size_t i = 0; i < kShards; ++i) shards[i].lock.lock();
}

void unlock_all() {
  for (size_t i = 0; i < kShards; ++i) shards[i].lock.unlock();
}

namespace {

void visit_tree(const Node* tree, void (*visit)(const Block&, void*), void* context) {
  if (tree == nullptr) return;
  visit_tree(tree->left, visit, context);
  if (tree->first && tree->filled) visit(tree->block, context);
  visit_tree(tree->right, visit, context);
}

}  // namespace

void for_each(void (*visit)(const Block& block, void* context), void* context) {
  for (size_t i = 0; i < kShards; ++i) visit_tree(shards[i].root, visit, context);
}

}  // namespace torture::live_blocks
