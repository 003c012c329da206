# What every case may use; bash reads it before the script (BASH_ENV).
#
#   RUN       how to start the program under test: empty, or a command that takes it as arguments
#   LIBRARY   the library that must be mapped; empty when the program runs as it is
#   HANG_S    what takes so long hangs
#   PORT PORT2  free ports of 127.0.0.1       CASE  the folder of the cases

set -uo pipefail
unset BASH_ENV

# Says what is wrong and gives up; the code is no program's own.
die() {
  echo "case: $*" >&2
  exit 99
}

digest() { sha256sum | cut -d ' ' -f 1; }

# wait_for COMMAND...: until the command succeeds.
wait_for() {
  local limit=$((SECONDS + HANG_S / 2))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt "$limit" ] || die "still not: $*"
    sleep 0.05
  done
}

port_is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# check_mapped PID: the process runs on the library, when it should.
check_mapped() {
  local maps
  maps=$(cat "/proc/$1/maps" 2>/dev/null) || die "process $1 is gone"
  [ -z "$LIBRARY" ] || grep -qF "$LIBRARY" <<<"$maps" || die "process $1 does not map $LIBRARY"
}

descendants() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
    echo "$child"
    descendants "$child"
  done
}

# check_family PID: so does every process it has started and that is still there.
check_family() {
  local child maps
  check_mapped "$1"
  [ -n "$LIBRARY" ] || return 0
  for child in $(descendants "$1"); do
    maps=$(cat "/proc/$child/maps" 2>/dev/null) && [ -n "$maps" ] || continue
    grep -qF "$LIBRARY" <<<"$maps" || die "process $child does not map $LIBRARY"
  done
}

# stop PID SIGNAL: ends a server of ours and says with which code.
stop() {
  local code
  kill -"$2" "$1" || die "process $1 is gone before its end"
  wait "$1"
  code=$?
  echo "stopped with $code"
}
