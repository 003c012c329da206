// The list, the hash table and the small array beside others.
#include <larder/kit/hash.h>
#include <larder/kit/list.h>
#include <larder/kit/small_array.h>

#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "compare.h"

#if HAVE_BOOST
#include <boost/container/small_vector.hpp>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/unordered_set.hpp>
#endif
#if HAVE_ABSL
#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>
#endif
#if HAVE_GLIB
#include <glib.h>
#endif

namespace {

constexpr size_t kJobs = 1000;
constexpr size_t kUsers = 10000;

struct Job {
  uint64_t number;
  larder_list_node link;
#if HAVE_BOOST
  boost::intrusive::list_member_hook<> hook;
#endif
};

std::vector<Job>& jobs() {
  static std::vector<Job> all = [] {
    std::vector<Job> made(kJobs);
    for (size_t i = 0; i < kJobs; i++) {
      made[i].number = i;
    }
    return made;
  }();
  return all;
}

// Every job is added, all are read, and every second one is removed, then the rest.
uint64_t list_kit() {
  std::vector<Job>& all = jobs();
  larder_list list;
  uint64_t sum = 0;
  larder_list_init(&list);
  for (Job& job : all) {
    larder_list_push_back(&list, &job.link);
  }
  LARDER_LIST_FOR_EACH(node, &list) { sum += LARDER_LIST_ENTRY(node, Job, link)->number; }
  for (size_t i = 0; i < kJobs; i += 2) {
    larder_list_remove(&all[i].link);
  }
  while (larder_list_pop_front(&list) != nullptr) {
    sum++;
  }
  return sum;
}

uint64_t list_std() {
  std::vector<Job>& all = jobs();
  std::list<Job*> list;
  std::vector<std::list<Job*>::iterator> places(kJobs);
  uint64_t sum = 0;
  for (Job& job : all) {
    places[job.number] = list.insert(list.end(), &job);
  }
  for (const Job* job : list) {
    sum += job->number;
  }
  for (size_t i = 0; i < kJobs; i += 2) {
    list.erase(places[i]);
  }
  for (; !list.empty(); list.pop_front()) {
    sum++;
  }
  return sum;
}

#if HAVE_BOOST
uint64_t list_boost() {
  std::vector<Job>& all = jobs();
  using Hook = boost::intrusive::member_hook<Job, decltype(Job::hook), &Job::hook>;
  boost::intrusive::list<Job, Hook, boost::intrusive::constant_time_size<false>> list;
  uint64_t sum = 0;
  for (Job& job : all) {
    list.push_back(job);
  }
  for (const Job& job : list) {
    sum += job.number;
  }
  for (size_t i = 0; i < kJobs; i += 2) {
    list.erase(list.iterator_to(all[i]));
  }
  for (; !list.empty(); list.pop_front()) {
    sum++;
  }
  return sum;
}
#endif

#if HAVE_GLIB
uint64_t list_glib() {
  std::vector<Job>& all = jobs();
  GQueue list = G_QUEUE_INIT;
  std::vector<GList*> places(kJobs);
  uint64_t sum = 0;
  for (Job& job : all) {
    g_queue_push_tail(&list, &job);
    places[job.number] = list.tail;
  }
  for (GList* node = list.head; node != nullptr; node = node->next) {
    sum += static_cast<Job*>(node->data)->number;
  }
  for (size_t i = 0; i < kJobs; i += 2) {
    g_queue_delete_link(&list, places[i]);
  }
  while (g_queue_pop_head(&list) != nullptr) {
    sum++;
  }
  return sum;
}
#endif

Task list_task() {
  Task task{"list", "add, read and remove an existing object", kJobs};
  task.add("kit", list_kit);
  task.add("std::list", list_std);
#if HAVE_BOOST
  task.add("Boost.Intrusive", list_boost);
#endif
#if HAVE_GLIB
  task.add("GQueue", list_glib);
#endif
  return task;
}

struct User {
  std::string name;
  larder_hash_node link;
};

// Apart, because offsetof needs a standard layout.
struct Hooked : User {
#if HAVE_BOOST
  boost::intrusive::unordered_set_member_hook<boost::intrusive::store_hash<true>> hook;
#endif
};

std::vector<Hooked>& users() {
  // Never freed, like the tables that find_all() keeps them in.
  static std::vector<Hooked>* all = [] {
    auto* made = new std::vector<Hooked>(kUsers);
    for (size_t i = 0; i < kUsers; i++) {
      (*made)[i].name = "user" + std::to_string(i * 7919);
    }
    return made;
  }();
  return *all;
}

uint64_t hash_of(std::string_view name) { return larder_hash_bytes(name.data(), name.size(), 1); }

bool has_name(const larder_hash_node* node, const void* name) {
  return LARDER_HASH_ENTRY(node, User, link)->name == *static_cast<const std::string_view*>(name);
}

// A table and how it is used; built anew for the first task, kept for the second.
struct KitTable {
  larder_hash table;
  KitTable() { larder_hash_init(&table); }
  ~KitTable() { larder_hash_release(&table); }
  KitTable(const KitTable&) = delete;
  void insert(User* user) { (void)larder_hash_insert(&table, &user->link, hash_of(user->name)); }
  User* find(std::string_view name) {
    larder_hash_node* node = larder_hash_find(&table, hash_of(name), has_name, &name);
    return node == nullptr ? nullptr : LARDER_HASH_ENTRY(node, User, link);
  }
  void remove(User* user) { larder_hash_remove(&table, &user->link); }
};

// Its keys are views of the names, so that it copies none.
template <typename Map>
struct MapTable {
  Map table;
  void insert(User* user) { table.emplace(user->name, user); }
  User* find(std::string_view name) {
    auto found = table.find(name);
    return found == table.end() ? nullptr : found->second;
  }
  void remove(User* user) { table.erase(user->name); }
};

#if HAVE_BOOST
struct UserHash {
  size_t operator()(const User& user) const { return hash_of(user.name); }
  size_t operator()(std::string_view name) const { return hash_of(name); }
};
struct UserEqual {
  bool operator()(const User& a, const User& b) const { return a.name == b.name; }
  bool operator()(std::string_view a, const User& b) const { return a == b.name; }
};

struct BoostTable {
  using Hook = boost::intrusive::member_hook<Hooked, decltype(Hooked::hook), &Hooked::hook>;
  using Set = boost::intrusive::unordered_set<Hooked, Hook, boost::intrusive::hash<UserHash>,
                                              boost::intrusive::equal<UserEqual>,
                                              boost::intrusive::power_2_buckets<true>>;
  // It does not grow by itself: the caller gives the buckets.
  std::unique_ptr<Set::bucket_type[]> buckets{new Set::bucket_type[16384]};
  Set table{Set::bucket_traits(buckets.get(), 16384)};
  ~BoostTable() { table.clear(); }
  void insert(Hooked* user) { table.insert(*user); }
  User* find(std::string_view name) {
    auto found = table.find(name, UserHash(), UserEqual());
    return found == table.end() ? nullptr : &*found;
  }
  void remove(Hooked* user) { table.erase(table.iterator_to(*user)); }
};
#endif

#if HAVE_GLIB
struct GlibTable {
  GHashTable* table = g_hash_table_new(g_str_hash, g_str_equal);
  ~GlibTable() { g_hash_table_destroy(table); }
  void insert(User* user) { g_hash_table_insert(table, user->name.data(), user); }
  User* find(std::string_view name) {
    return static_cast<User*>(g_hash_table_lookup(table, name.data()));
  }
  void remove(User* user) { g_hash_table_remove(table, user->name.c_str()); }
};
#endif

template <typename Table>
uint64_t build_and_empty() {
  Table table;
  uint64_t found = 0;
  for (Hooked& user : users()) {
    table.insert(&user);
  }
  found += table.find(users()[17].name) != nullptr;
  for (Hooked& user : users()) {
    table.remove(&user);
  }
  return found;
}

template <typename Table>
uint64_t find_all() {
  static Table* table = [] {
    auto* made = new Table;
    for (Hooked& user : users()) {
      made->insert(&user);
    }
    return made;
  }();
  uint64_t found = 0, state = 1;
  for (size_t i = 0; i < kUsers; i++) {
    const User& user = users()[random_number(&state) % kUsers];
    found += table->find(user.name) == &user;
  }
  return found;
}

template <template <typename> class Each>
Task hash_task(const char* what) {
  Task task{"hash", what, kUsers, {{"kit", Each<KitTable>::run}}};
  using StdMap = std::unordered_map<std::string_view, User*>;
  task.add("std::unordered_map", Each<MapTable<StdMap>>::run);
#if HAVE_BOOST
  task.add("Boost.Intrusive", Each<BoostTable>::run);
#endif
#if HAVE_ABSL
  using AbslMap = absl::flat_hash_map<std::string_view, User*>;
  task.add("absl::flat_hash_map", Each<MapTable<AbslMap>>::run);
#endif
#if HAVE_GLIB
  task.add("GHashTable", Each<GlibTable>::run);
#endif
  return task;
}

template <typename Table>
struct BuildAndEmpty {
  static uint64_t run() { return build_and_empty<Table>(); }
};
template <typename Table>
struct FindAll {
  static uint64_t run() { return find_all<Table>(); }
};

LARDER_SMALL_ARRAY(numbers, int, 16);

constexpr size_t kArrays = 1000;

// An array of 1 to 12 numbers, as most are that live within a call.
template <typename Array, typename Push>
uint64_t fill(uint64_t i, Array* array, Push push) {
  for (uint64_t n = 0; n <= i % 12; n++) {
    push(array, int(n + i));
  }
  keep(array);
  return 1;
}

template <typename Vector>
uint64_t fill_vectors() {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < kArrays; i++) {
    Vector array;
    fill(i, &array, [](Vector* to, int n) { to->push_back(n); });
    sum += uint64_t(array.back());
  }
  return sum;
}

Task small_array_task() {
  Task task{"small_array", "an array of 1 to 12 numbers", kArrays};
  task.add("kit", [] {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < kArrays; i++) {
      numbers array;
      numbers_init(&array);
      fill(i, &array, [](numbers* to, int n) { (void)numbers_push(to, n); });
      sum += uint64_t(array.data[array.count - 1]);
      numbers_release(&array);
    }
    return sum;
  });
  task.add("std::vector", fill_vectors<std::vector<int>>);
#if HAVE_BOOST
  task.add("boost::small_vector", fill_vectors<boost::container::small_vector<int, 16>>);
#endif
#if HAVE_ABSL
  task.add("absl::InlinedVector", fill_vectors<absl::InlinedVector<int, 16>>);
#endif
  return task;
}

}  // namespace

std::vector<Task> container_tasks() {
  return {list_task(), hash_task<BuildAndEmpty>("insert and remove an existing object"),
          hash_task<FindAll>("find, by a name"), small_array_task()};
}
