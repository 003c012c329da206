# about: z3 solves a satisfiable and an unsatisfiable problem
# programs: z3
# needs: z3 perl

# Ten queens with a bit vector each, and nine pigeons in eight holes.
perl -e '
  my $n = 10;
  print "(set-option :produce-models true)\n";
  print "(declare-const q$_ (_ BitVec 8))\n(assert (bvult q$_ #x0a))\n" for 0 .. $n - 1;
  for my $i (0 .. $n - 1) { for my $j ($i + 1 .. $n - 1) {
    my $d = sprintf "#x%02x", $j - $i;
    print "(assert (distinct q$i q$j))(assert (distinct (bvadd q$i $d) q$j))(assert (distinct (bvsub q$i $d) q$j))\n";
  } }
  print "(check-sat)\n(get-model)\n";' >queens.smt2
perl -e '
  my ($p, $h) = (9, 8);
  for my $i (1 .. $p) { print "(declare-const p${i}_$_ Bool)\n" for 1 .. $h;
    print "(assert (or ", join(" ", map { "p${i}_$_" } 1 .. $h), "))\n"; }
  for my $k (1 .. $h) { for my $i (1 .. $p) { for my $j ($i + 1 .. $p) {
    print "(assert (not (and p${i}_$k p${j}_$k)))\n" } } }
  print "(check-sat)\n";' >pigeons.smt2
$RUN z3 queens.smt2
echo "queens: $?"
$RUN z3 pigeons.smt2
echo "pigeons: $?"
$RUN z3 -in <<<'(declare-const x Int)(assert (= (* x x) 1522756))(assert (> x 0))(check-sat)(get-value (x))(assert oops)'
echo "an error: $?"
