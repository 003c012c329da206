# about: OpenSSL's own tests, of its source
# program: apps/openssl
# packages: gcc make perl
# source: openssl

build() {
  ./config
  make -j "$JOBS" build_sw
}
suite() {
  $RUN make test HARNESS_JOBS=1
}
# Those that were skipped are in neither.
results() {
  sed -nE 's/^(\S+\.t) \.+ ok$/pass \1/p; s/^(\S+\.t) +\(Wstat: .*/fail \1/p' "$LOG"
}
