# about: bash's own tests, with Debian's bash
# program: /bin/bash
# packages: bash gcc
# source: bash

build() {
  for helper in recho zecho xcase printenv; do
    gcc -w -o "tests/$helper" "support/$helper.c" -I. -Iinclude -DHAVE_STDLIB_H -DHAVE_STRING_H -DHAVE_UNISTD_H
  done
}
# Each prints how its output differs from what is due; some differ with any bash that Debian builds.
suite() {
  cd tests
  export THIS_SH=/bin/bash BUILD_DIR="$PWD/.." BASH_TSTOUT="$TMPDIR/output" PATH="$PWD:$PATH"
  for test in run-*; do
    case $test in run-all | run-minimal | run-gprof) continue ;; esac
    echo "## $test"
    $RUN sh "$test" 2>&1 | grep -E '^[<>]' || true
  done
}
results() {
  awk '/^## / { if (test) print verdict, test; test = $2; verdict = "pass"; next } { verdict = "fail" }
    END { print verdict, test }' "$LOG"
}
