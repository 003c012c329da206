# about: Tcl's own tests
# program: /usr/bin/tclsh8.6
# packages: tcl8.6
# source: tcl8.6

suite() {
  cd tests
  $RUN tclsh8.6 all.tcl -verbose pe
}
results() {
  sed -nE 's/^\+\+\+\+ (\S+) PASSED$/pass \1/p; s/^==== (\S+) .*FAILED$/fail \1/p' "$LOG"
}
