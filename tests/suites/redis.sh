# about: Redis's own tests, with its data in malloc's memory
# program: src/redis-server
# packages: gcc make tcl8.6
# source: redis

build() {
  make -j "$JOBS" MALLOC=libc USE_SYSTEM_JEMALLOC=no USE_SYSTEMD=no BUILD_TLS=no
}
# One server at a time, without what takes minutes a test.
suite() {
  $RUN ./runtest --clients 1 --tags -slow
}
results() {
  sed 's/\x1b\[[0-9;]*m//g' "$LOG" |
    sed -nE 's/^\[ok\]: (.*) \([0-9]+ ms\)$/pass \1/p; s/^\[(err|exception|timeout)\]: (.*)$/fail \2/p' |
    sed -E 's/0x[0-9a-f]+|[0-9]{3,}/N/g'
}
