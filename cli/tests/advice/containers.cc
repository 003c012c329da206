// The C++ library's containers.
//
// case vector: finds reserve at push
// case shared: finds make-shared at shared
// case string: finds stack at string
// case reserved: nothing
// case made_shared: nothing
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {
struct Thing {
  long a[4];
};
constexpr int kThings = 200;
std::vector<std::vector<long>> columns(kThings);
std::vector<std::shared_ptr<Thing>> things(kThings);
volatile size_t sink;

[[gnu::noinline]] void push(std::vector<long>& column, long value) {
  column.push_back(value);  // @push
}
void drop_columns() {
  for (int i = 0; i < kThings; i++) std::vector<long>().swap(columns[(i * 7) % kThings]);
}
void case_vector() {
  for (int i = 0; i < kThings; i++) {
    for (long value = 0; value < 100; value++) push(columns[i], value);
  }
  drop_columns();
}
void case_reserved() {
  for (int i = 0; i < kThings; i++) {
    columns[i].reserve(100);
    for (long value = 0; value < 100; value++) push(columns[i], value);
  }
  drop_columns();
}

void case_shared() {
  for (int i = 0; i < kThings; i++) things[i].reset(new Thing());  // @shared
  for (int i = 0; i < kThings; i++) things[(i * 7) % kThings] = nullptr;
}
void case_made_shared() {
  for (int i = 0; i < kThings; i++) things[i] = std::make_shared<Thing>();
  for (int i = 0; i < kThings; i++) things[(i * 7) % kThings] = nullptr;
}

[[gnu::noinline]] void look_up(const char* key) {
  std::string text(key);  // @string
  sink = text.size();
}
void case_string() {
  for (int i = 0; i < kThings; i++) look_up("a key that is too long for the string itself");
}
}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#define CASE(name) \
  if (std::strcmp(argv[1], #name) == 0) case_##name()
  CASE(vector);
  CASE(shared);
  CASE(string);
  CASE(reserved);
  CASE(made_shared);
  return 0;
}
