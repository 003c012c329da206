"""Short jobs of real programs for compare.py; each runs in an empty folder.

`before` are shell lines that make what it needs, not looked at; `drive` is a client of a server, run until it succeeds,
which has to end the server; `env` are further variables.
"""

SOURCE = """cat > a.cc <<'END'
#include <algorithm>
#include <map>
#include <string>
#include <vector>
struct T { int key; std::string name; };
std::map<std::string, T> m;
int main() { std::vector<T> v{{2, "b"}, {1, "a"}};
  std::sort(v.begin(), v.end(), [](auto& a, auto& b) { return a.key < b.key; });
  for (auto& t : v) m[t.name] = t;
  return int(m.size()) - 2; }
END
cat > a.c <<'END'
#include <stdio.h>
int main(void) { printf("%d\\n", 1); return 0; }
END"""

PYTHON = """import collections, concurrent.futures, decimal, json, re, sqlite3, tempfile, zlib
rows = [{"key": i, "text": "word %d" % i} for i in range(2000)]
assert json.loads(json.dumps(rows)) == rows
base = sqlite3.connect(":memory:")
base.execute("create table t (key, text)")
base.executemany("insert into t values (:key, :text)", rows)
assert base.execute("select count(*) from t where text like '%9'").fetchone() == (200,)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(lambda row: len(re.findall("o", row["text"])), rows)) == 2000
zlib.decompress(zlib.compress(b"x" * 100000))
class Node: pass
for _ in range(1000):
    a, b = Node(), Node()
    a.b, b.a = b, a
"""

PERL = """use strict; my %words; my @list;
for my $i (1..5000) { $words{"word" . ($i % 700)}++; push @list, { key => $i, text => "t" x ($i % 50) }; }
my @sorted = sort { length($a->{text}) <=> length($b->{text}) } @list;
my $text = join ",", map { $_->{key} } @sorted; my $n = () = $text =~ /1(\\d+)2/g;
eval "sub f { return \\$_[0] + $n }"; f(1); my $self = {}; $self->{self} = $self;
"""

SQL = """create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into t select i, 'x'||i, i/3.0 from n;
create index i on t(b); select count(*), sum(c) from t where b like 'x1%'; update t set c=c+1 where a%3=0;
delete from t where a%5=0; vacuum; select group_concat(b) from (select b from t order by c desc limit 50);"""

REPOSITORY = """git init -q repo; cd repo; git config user.name a; git config user.email a@b
for i in 1 2 3 4 5; do seq $i 900 > file$i; git add .; git commit -q -m "change $i"; done; seq 3 700 > file2"""

PROJECT = """cat > CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(p CXX)
find_package(Threads)
add_executable(a a.cc)
END
""" + SOURCE

FORMULA = """cat > a.smt2 <<'END'
(declare-fun x () Int) (declare-fun y () Int) (declare-const s String) (declare-const v (_ BitVec 32))
(assert (and (> (* x y) 100) (< (+ x y) 30) (> x 0))) (assert (= (str.len s) 7)) (assert (str.contains s "abc"))
(assert (= (bvmul v #x00000007) #x12345679))
(check-sat) (get-model) (push) (assert (forall ((z Int)) (> (* z z) x))) (check-sat) (pop)
END"""


def direct(*run, before=(), **more):
    return {"run": list(run), "before": before, **more}


JOBS = {
    "gcc": direct("gcc", "-O2", "-g", "a.c", "-o", "a", before=[SOURCE]),
    "g++": direct("g++", "-std=c++20", "-O1", "-c", "a.cc", before=[SOURCE]),
    "python3": direct("/usr/bin/python3", "-c", PYTHON, env={"PYTHONMALLOC": "malloc"}),
    "perl": direct("perl", "-e", PERL),
    # At its end it unmaps some of its heap's pages, by address, and loses objects that the other pages do not point
    # to: mappings grow upwards in valgrind, and downwards otherwise. setarch -L makes them grow upwards everywhere.
    "ruby": direct("setarch", "-L", "ruby", "--disable-gems", "-e", "1"),
    "sqlite3": direct("sqlite3", ":memory:", SQL),
    "redis-server": direct("redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", drive=
                           "redis-cli -s socket ping && redis-benchmark -s socket -n 3000 -q -t set,lpush,sadd,hset,zadd,incr"
                           "&& redis-cli -s socket eval 'return redis.call(\"get\", \"a\")' 0 "
                           "&& { redis-cli -s socket shutdown nosave; true; }"),
    "curl": direct("curl", "-s", "-H", "a: b", "-o", "there", "file:///etc/passwd"),
    "git log": direct("git", "-C", "repo", "log", "-p", "--stat", before=[REPOSITORY]),
    "git status": direct("git", "-C", "repo", "status", before=[REPOSITORY]),
    "bash": direct("bash", "-c", "declare -A a; for i in {1..500}; do a[k$i]=$((i * i)); done; f() { local x=(\"$@\"); "
                   "echo ${#x[@]}; }; f {1..100}; [[ abc123 =~ ([a-z]+)([0-9]+) ]]; echo ${BASH_REMATCH[@]} ${a[@]//1/2}"),
    "jq": direct("jq", "-n", "[range(2000) | {key: ., text: \"word \\(.)\"}] | group_by(.key % 7) | map(length, "
                 "(.[0].text | test(\"w(o)rd\")))"),
    "awk": direct("awk", "BEGIN { for (i = 0; i < 3000; i++) a[\"k\" i % 700] = a[\"k\" i % 700] \"x\" i; "
                  "n = split(a[\"k1\"], b, /x/); gsub(/1/, \"22\", a[\"k2\"]); print n, a[\"k2\"] }"),
    "xz": direct("xz", "-9e", "-T2", "-k", "data", before=["seq 1 100000 > data"]),
    "z3": direct("z3", "a.smt2", before=[FORMULA]),
    "cmake": direct("cmake", "-S", ".", "-B", "b", "-G", "Ninja", before=[PROJECT]),
    "ninja": direct("ninja", "-C", "b", before=[PROJECT + "\ncmake -S . -B b -G Ninja"]),
    "gdb": direct("gdb", "-batch", "-ex", "break main", "-ex", "info functions main", "-ex", "list main", "a",
                  before=[SOURCE + "\ngcc -g a.c -o a"]),
}
