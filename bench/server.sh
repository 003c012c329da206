# Sourced by the workloads with more than one process: a folder of their own, clean-up however they end,
# load generators that run without the allocator, and the figures of the measured process.
#
# The workload itself is started with the allocator as LD_PRELOAD; processes that are not measured are
# started by `plain`. The figures are one line of JSON.
set -eu
PATH=$PATH:/usr/sbin:/sbin
program=${0##*/}
directory=$(mktemp -d)
started=

# Runs a command without the variables that choose malloc and check it. Not for a process that is stopped
# by its number: that would be the number of the shell that waits for it.
plain() { env -u LD_PRELOAD -u LD_DEBUG -u LD_DEBUG_OUTPUT -u LD_BIND_NOW "$@"; }

# For the rest of a subshell.
without_allocator() { unset LD_PRELOAD LD_DEBUG LD_DEBUG_OUTPUT LD_BIND_NOW; }

# Runs on failures and signals, too.
tidy() {
  status=$?
  trap - EXIT
  for process in $started; do kill "$process" 2>/dev/null || true; done
  for process in $started; do wait "$process" 2>/dev/null || true; done
  plain rm -rf "$directory"
  exit "$status"
}
trap tidy EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "$program: $*" >&2
  exit 1
}

# await WHAT LOG COMMAND...: waits until the command succeeds, up to ten seconds, and while the started
# process runs: one that has ended has no /proc/PID/exe.
await() {
  what=$1 log=$2 tries=0
  shift 2
  until plain "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ -e "/proc/${started##* }/exe" ] || tries=1001
    if [ "$tries" -gt 1000 ]; then
      plain tail -n 5 "$log" >&2
      fail "$what does not answer"
    fi
    plain sleep 0.01
  done
}

# stop PROCESS: stops one of our processes, and waits for it.
stop() {
  kill "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
  started=$(echo " $started " | plain sed "s/ $1 / /")
}

# A port of the loopback interface that no process currently uses.
free_port() {
  plain python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

now() { plain date +%s.%N; }

# A folder that outlives this run, if the runner has one, for inputs that take long to generate.
cache=${BENCH_CACHE:-$directory}
plain mkdir -p "$cache"

# The figures of a process and of those children that have ended: "CPU_SECONDS PAGE_FAULTS".
used() {
  plain awk -v ticks="$(plain getconf CLK_TCK)" '{
    # The second field is a name in parentheses, which may contain anything.
    sub(/^.*\) /, "")
    printf "%.2f %d\n", ($12 + $13 + $14 + $15) / ticks, $8 + $9 + $10 + $11
  }' "/proc/$1/stat"
}

status_kib() { plain awk -v key="$2:" '$1 == key { print $2 }' "/proc/$1/status"; }

# report PROCESS SECONDS [FACTOR [PEAK_KIB]]: the line of a server that is still running. FACTOR turns
# time used into time for a fixed amount of work; the peak is that of the process if not given.
report() {
  process=$1 seconds=$2 factor=${3:-1}
  figures=$(used "$process")
  peak=${4:-$(status_kib "$process" VmHWM)}
  mappings=$(plain wc -l <"/proc/$process/maps")
  idle=
  if [ -n "${BENCH_IDLE:-}" ]; then
    plain sleep "$BENCH_IDLE"
    idle=", \"idle_rss_kib\": $(status_kib "$process" VmRSS)"
  fi
  echo "$figures" | plain awk -v s="$seconds" -v f="$factor" -v peak="$peak" -v maps="$mappings" \
    -v idle="$idle" '{
      printf "{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"page_faults\": %d, ", s * f, $1 * f, $2
      printf "\"peak_kib\": %d, \"mappings\": %d%s}\n", peak, maps, idle
    }'
}

since() { plain awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.6f\n", to - from }'; }
