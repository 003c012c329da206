// A table of numbers beside std::map; some hashes collide wholly, some in their low bits.

#include <map>
#include <memory>
#include <vector>

#include "kit.h"

const char* const kPart = "hash";

namespace {

struct Item {
  uint64_t key;
  larder_hash_node link;
};

bool same_key(const larder_hash_node* node, const void* key) {
  return LARDER_HASH_ENTRY(node, Item, link)->key == *static_cast<const uint64_t*>(key);
}

uint64_t hash_of(uint64_t key) {
  switch (key % 4) {
    case 0:
      return key / 64;
    case 1:
      return key << 40;
    default:
      return larder_hash_bytes(&key, sizeof key, 1);
  }
}

class Table {
 public:
  Table() { larder_hash_init(&table_); }
  ~Table() {
    larder_hash_release(&table_);
    CHECK(table_.count == 0 && larder_hash_next(&table_, nullptr) == nullptr);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void step(Choices& choices) {
    uint64_t key = choices.below(choices.one_in(4) ? 4096 : 64);
    switch (choices.below(8)) {
      case 0:
      case 1:
      case 2:
        insert(choices, key);
        break;
      case 3:
      case 4:
        find(key);
        break;
      case 5:
      case 6:
        remove(key);
        break;
      default:
        if (choices.one_in(256)) {
          remove_some();
        } else if (choices.one_in(16)) {
          reserve(choices);
        }
    }
    CHECK(table_.count == model_.size() && table_.count <= table_.bucket_count);
    if (choices.one_in(512)) {
      compare();
    }
  }

  void compare() {
    size_t seen = 0;
    for (larder_hash_node* node = larder_hash_next(&table_, nullptr); node != nullptr;
         node = larder_hash_next(&table_, node)) {
      const Item* item = LARDER_HASH_ENTRY(node, Item, link);
      auto found = model_.find(item->key);
      CHECK(found != model_.end() && found->second.get() == item);
      seen++;
    }
    CHECK(seen == model_.size());
  }

 private:
  larder_hash_node* look_up(uint64_t key) {
    return larder_hash_find(&table_, hash_of(key), same_key, &key);
  }

  void insert(Choices& choices, uint64_t key) {
    if (look_up(key) != nullptr) {
      CHECK(model_.count(key) == 1);
      return;
    }
    auto item = std::make_unique<Item>();
    item->key = key;
    failing::Chance chance(choices);
    bool inserted = larder_hash_insert(&table_, &item->link, hash_of(key));
    CHECK(chance.agrees(inserted));
    if (inserted) {
      CHECK(model_.emplace(key, std::move(item)).second);
    }
  }

  void find(uint64_t key) {
    larder_hash_node* node = look_up(key);
    auto found = model_.find(key);
    CHECK((node == nullptr) == (found == model_.end()));
    CHECK(node == nullptr || LARDER_HASH_ENTRY(node, Item, link) == found->second.get());
  }

  void remove(uint64_t key) {
    larder_hash_node* node = look_up(key);
    CHECK((node != nullptr) == (model_.count(key) == 1));
    if (node != nullptr) {
      larder_hash_remove(&table_, node);
      model_.erase(key);
      CHECK(look_up(key) == nullptr);
    }
  }

  void remove_some() {
    for (larder_hash_node *node = larder_hash_next(&table_, nullptr), *next; node != nullptr;
         node = next) {
      next = larder_hash_next(&table_, node);
      uint64_t key = LARDER_HASH_ENTRY(node, Item, link)->key;
      if (key % 3 == 0) {
        larder_hash_remove(&table_, node);
        model_.erase(key);
      }
    }
  }

  void reserve(Choices& choices) {
    size_t more = choices.below(200);
    failing::Chance chance(choices);
    bool reserved = larder_hash_reserve(&table_, table_.count + more);
    CHECK(chance.agrees(reserved));
    if (!reserved) {
      return;
    }
    failing::countdown = 0;
    for (uint64_t key = 100000; more > 0; key++, more--) {
      auto item = std::make_unique<Item>();
      item->key = key;
      if (look_up(key) == nullptr) {
        CHECK(larder_hash_insert(&table_, &item->link, hash_of(key)));
        CHECK(model_.emplace(key, std::move(item)).second);
      }
    }
  }

  larder_hash table_;
  std::map<uint64_t, std::unique_ptr<Item>> model_;
};

}  // namespace

void run(Choices& choices) {
  Table table;
  while (choices.more()) {
    table.step(choices);
  }
  table.compare();
}
