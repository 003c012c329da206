// bench_cache: a cache of bounded size whose values change in size over time.
//
// Behaves like redis or memcached under a memory limit, and like the fragmentation tests by which
// log-structured allocation was argued for (Rumble et al., 2014): entries and keys of their own
// blocks, a table that doubles, the oldest evicted; values of 100 to 150 bytes first, then of 200
// to 250, then of 100 to 1,000, some grown by appending. What is held stays 64 MiB: the rest of the
// peak and of the idle memory is the allocator's.

#include <vector>

#include "workload.h"

namespace {

struct Entry {
  Entry* next;
  char* key;
  char* value;
  std::uint32_t key_size;
  std::uint32_t value_size;
  std::uint64_t hash;
};

class Cache {
 public:
  explicit Cache(std::size_t limit) : limit_(limit), table_(make_table(kFirstSlots)) {}

  ~Cache() {
    while (held_ > 0) evict();
    std::free(table_);
  }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  void set(std::uint64_t hash, std::size_t size) {
    if (Entry* known = find(hash); known != nullptr) {
      std::free(known->value);
      held_ -= known->value_size;
      fill(*known, size);
    } else {
      insert(hash, size);
    }
    while (held_ > limit_) evict();
  }

  void append(std::uint64_t hash, std::size_t more) {
    Entry* known = find(hash);
    if (known == nullptr || known->value_size + more > 4096) return;
    known->value =
        static_cast<char*>(bench::checked(std::realloc(known->value, known->value_size + more)));
    std::memset(known->value + known->value_size, 'a', more);
    known->value_size += static_cast<std::uint32_t>(more);
    held_ += more;
  }

 private:
  static constexpr std::size_t kFirstSlots = 1024;

  static Entry** make_table(std::size_t slots) {
    return static_cast<Entry**>(bench::checked(std::calloc(slots, sizeof(Entry*))));
  }
  Entry** slot(std::uint64_t hash) const { return &table_[hash & (slots_ - 1)]; }

  Entry* find(std::uint64_t hash) const {
    Entry* entry = *slot(hash);
    while (entry != nullptr && entry->hash != hash) entry = entry->next;
    return entry;
  }

  void fill(Entry& entry, std::size_t size) {
    entry.value = static_cast<char*>(bench::checked(std::malloc(size)));
    std::memset(entry.value, 'v', size);
    entry.value_size = static_cast<std::uint32_t>(size);
    held_ += size;
  }

  void insert(std::uint64_t hash, std::size_t size) {
    auto* entry = static_cast<Entry*>(bench::checked(std::malloc(sizeof(Entry))));
    entry->hash = hash;
    entry->key_size = static_cast<std::uint32_t>(12 + hash % 29);
    entry->key = static_cast<char*>(bench::checked(std::malloc(entry->key_size)));
    std::memset(entry->key, 'k', entry->key_size);
    fill(*entry, size);
    held_ += sizeof(Entry) + entry->key_size;
    entry->next = *slot(hash);
    *slot(hash) = entry;
    order_.push_back(hash);
    if (++entries_ > slots_) grow();
  }

  void grow() {
    Entry** const before = table_;
    const std::size_t slots_before = slots_;
    slots_ *= 2;
    table_ = make_table(slots_);
    for (std::size_t i = 0; i < slots_before; ++i) {
      while (Entry* entry = before[i]) {
        before[i] = entry->next;
        entry->next = *slot(entry->hash);
        *slot(entry->hash) = entry;
      }
    }
    std::free(before);
  }

  // The oldest entry; the list of ages is compacted occasionally.
  void evict() {
    const std::uint64_t hash = order_[oldest_++];
    if (oldest_ > 65536) {
      order_.erase(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(oldest_));
      oldest_ = 0;
    }
    Entry** link = slot(hash);
    while ((*link)->hash != hash) link = &(*link)->next;
    Entry* entry = *link;
    *link = entry->next;
    held_ -= sizeof(Entry) + entry->key_size + entry->value_size;
    --entries_;
    std::free(entry->key);
    std::free(entry->value);
    std::free(entry);
  }

  const std::size_t limit_;
  std::size_t slots_ = kFirstSlots;
  Entry** table_;
  std::size_t entries_ = 0;
  std::size_t held_ = 0;
  std::vector<std::uint64_t> order_;
  std::size_t oldest_ = 0;
};

struct Hour {
  std::size_t smallest;
  std::size_t range;
};

}  // namespace

int main() {
  constexpr Hour kHours[] = {{100, 50}, {200, 50}, {100, 900}};
  const double scale = bench::scale();
  const std::size_t limit = bench::work(64 * bench::kMiB);
  const std::size_t turns = bench::work(600'000);
  const auto keys = static_cast<std::size_t>(900'000 * scale) + 1000;
  bench::Random random(5);
  const bench::Stopwatch watch;
  Cache cache(limit);
  for (const Hour& hour : kHours) {
    for (std::size_t i = 0; i < turns; ++i) {
      // The key's number times an odd constant: spread, and no two keys are equal.
      const std::uint64_t hash = (random.below(keys) + 1) * 0x9E3779B97F4A7C15u >> 8;
      if (i % 8 == 0) {
        cache.append(hash, 1 + random.below(64));
      } else {
        cache.set(hash, hour.smallest + random.below(hour.range));
      }
    }
  }
  watch.report(std::size(kHours) * turns);
  return 0;
}
