#!/bin/sh
# z3.sh ROUNDS: the SMT solver proves repeatedly that six pigeons do not fit into five holes.
#
# Integer arithmetic makes that hard enough: terms, clauses, rows of numbers and hash tables by the
# hundred thousand a round, in one thread, with vectors that grow: C++ at its most allocation-heavy.
# The shell is replaced by z3. The work of a round does not depend on addresses.
set -eu
rounds=${1:?usage: z3.sh ROUNDS}
problem=${TMPDIR:-/tmp}/pigeons-$$.smt2
awk -v rounds="$rounds" -v holes=5 'BEGIN {
  for (round = 0; round < rounds; round++) {
    print "(set-logic QF_UFLIA)"
    for (pigeon = 0; pigeon <= holes; pigeon++) {
      name = "pigeon" round "_" pigeon
      printf "(declare-const %s Int)(assert (and (>= %s 0) (< %s %d)))\n", name, name, name, holes
      for (other = 0; other < pigeon; other++)
        printf "(assert (not (= %s pigeon%d_%d)))\n", name, round, other
    }
    print "(check-sat)(reset)"
  }
}' >"$problem"
# Opened before it is removed, because the shell is replaced and cannot do it later.
exec <"$problem"
rm "$problem"
exec z3 -in
