# about: SQLite's own tests, of its source (veryquick.test, which its `make test` runs)
# program: testfixture
# packages: gcc make tcl8.6-dev
# source: sqlite3
# root: no

build() {
  ./configure --with-tcl=/usr/lib/tcl8.6
  make -j "$JOBS" testfixture
}
suite() {
  $RUN ./testfixture test/veryquick.test
}
# It stops at once where it does not like the machine.
results() {
  grep -q '^[0-9]* errors out of [0-9]* tests' "$LOG"
  sed -nE 's/^(\S+)\.\.\. Ok$/pass \1/p; s/^! (\S+) expected: .*/fail \1/p' "$LOG"
}
