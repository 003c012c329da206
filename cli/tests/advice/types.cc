// The types that lines allocate: `type FUNCTION: NAME, SIZE`, or none.
//
// clang-format off: a line is read as a whole
// type push: int, 4
// type emplace: std::pair<int, int>, 8
// type push_unnamed: (anonymous namespace)::Local, 20
// type push_pointer: Foo*, 8
// type shared: std::_Sp_counted_ptr_inplace<Foo, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>, 40
// type unique: Foo, 24
// type unique_array: Foo, 24
// type list_node: std::_List_node<Foo>, 40
// type by_new: Foo, 24
// type by_new_array: ns::Bar, 40
// type string: none
// type with_count: none
// clang-format on
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct Foo {
  long a[3];
  explicit Foo(int x = 1) { a[0] = x; }
};
namespace ns {
struct Bar {
  char c[40];
};
struct Counted {
  int c[10];
  ~Counted() { c[0] = 0; }
};
}  // namespace ns
namespace {
struct Local {
  int a[5];
};
}  // namespace

#define CASE __attribute__((noinline)) void
CASE use(void* p) { __asm__ volatile("" ::"r"(p) : "memory"); }
CASE push(std::vector<int>& v, int x) { v.push_back(x); }
CASE emplace(std::vector<std::pair<int, int>>& v) { v.emplace_back(1, 2); }
CASE push_unnamed(std::vector<Local>& v) { v.push_back(Local()); }
CASE push_pointer(std::vector<Foo*>& v) { v.push_back(nullptr); }
CASE shared(int i) { use(std::make_shared<Foo>(i).get()); }
CASE unique(int i) { use(std::make_unique<Foo>(i).get()); }
CASE unique_array(int n) { use(std::make_unique<Foo[]>(n).get()); }
CASE list_node(int i) {
  std::list<Foo> list;
  list.emplace_back(i);
  use(&list);
}
CASE by_new() {
  Foo* foo = new Foo(3);
  use(foo);
  delete foo;
}
CASE by_new_array(int n) {
  auto* bars = new ns::Bar[n];
  use(bars);
  delete[] bars;
}
CASE string(int n) {
  std::string text(40 + n, 'x');
  use(&text);
}
CASE with_count(int n) {
  auto* some = new ns::Counted[n];
  use(some);
  delete[] some;
}

int main() {
  constexpr int kColumns = 200;
  std::vector<std::vector<int>> ints(kColumns);
  std::vector<std::vector<std::pair<int, int>>> pairs(kColumns);
  std::vector<std::vector<Local>> locals(kColumns);
  std::vector<std::vector<Foo*>> pointers(kColumns);
  for (int i = 0; i < kColumns; i++) {
    for (int j = 0; j < 20; j++) push(ints[i], j);
    for (int j = 0; j < 20; j++) emplace(pairs[i]);
    for (int j = 0; j < 20; j++) push_unnamed(locals[i]);
    for (int j = 0; j < 20; j++) push_pointer(pointers[i]);
  }
  for (int i = 0; i < kColumns; i++) {
    shared(i);
    unique(i);
    unique_array(i % 5 + 1);
    list_node(i);
    by_new();
    by_new_array(i % 5 + 1);
    string(i);
    with_count(i % 5 + 1);
  }
  return 0;
}
