#!/bin/sh
# gcc.sh TYPES: g++ -O1 compiles a C++ file that instantiates much of the library for TYPES types.
#
# The compiler keeps its trees in pages that it maps itself, and takes the rest from malloc: hash
# tables, vectors, strings, bitmaps, obstacks of 4 KiB. Driver, compiler and assembler are measured
# together; the peak is that of the largest, cc1plus.
set -eu
types=${1:?usage: gcc.sh TYPES}
source=${TMPDIR:-/tmp}/instances-$$.cc
trap 'rm -f "$source" "$source.o"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
awk -v types="$types" 'BEGIN {
  split("algorithm any chrono deque filesystem functional future iostream map memory optional random " \
        "ranges set sstream string tuple unordered_map variant vector", headers, " ")
  for (i = 1; i in headers; i++) printf "#include <%s>\n", headers[i]
  for (t = 0; t < types; t++) {
    printf "struct T%d {\n  int key;\n  std::string name;\n  std::vector<double> values;\n", t
    printf "  auto operator<=>(const T%d&) const = default;\n};\n", t
    printf "std::size_t use%d(std::vector<T%d> in) {\n", t, t
    printf "  std::map<std::string, T%d> sorted;\n  std::unordered_map<int, std::shared_ptr<T%d>> known;\n", t, t
    printf "  std::variant<int, T%d, std::string> one = in.front();\n  std::set<T%d> distinct;\n", t, t
    print "  std::ranges::sort(in);\n  for (auto& each : in) {\n    sorted[each.name] = each;"
    printf "    known.emplace(each.key, std::make_shared<T%d>(each));\n    distinct.insert(each);\n  }\n", t
    print "  auto view = in | std::views::filter([](const auto& each) { return each.key % 3 == 0; }) |"
    print "              std::views::transform([](const auto& each) { return each.name.size(); });"
    print "  std::size_t sum = sorted.size() + known.size() + distinct.size();"
    print "  for (auto size : view) sum += size;"
    print "  std::function<std::size_t(int)> f = [in](int n) { return in[n].values.size(); };"
    print "  return sum + f(0) + std::visit([](const auto& v) { return sizeof(v); }, one);\n}"
  }
}' >"$source"
g++ -std=c++20 -O1 -c -o "$source.o" "$source"
