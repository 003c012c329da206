# Sourced by the workloads that consist of more than one process: a folder of their own, tidying up
# however they end, load generators that run without the allocator, and the figures of what is measured.
#
# The workload itself is started with the allocator as LD_PRELOAD; everything that is not measured
# goes through `plain`. What is measured is reported as one line of JSON.
set -eu
PATH=$PATH:/usr/sbin:/sbin
program=${0##*/}
directory=$(mktemp -d)
started=

# Without what makes the runner's choice of malloc, and its proof. Not for what is to be stopped by its
# number: that would be the shell's that waits for it.
plain() { env -u LD_PRELOAD -u LD_DEBUG -u LD_DEBUG_OUTPUT -u LD_BIND_NOW "$@"; }

# For the rest of a subshell.
without_allocator() { unset LD_PRELOAD LD_DEBUG LD_DEBUG_OUTPUT LD_BIND_NOW; }

# Runs on failures and signals as well.
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

# await WHAT LOG COMMAND...: until the command succeeds, ten seconds at most, and no longer than what
# was started is alive: the dead have no /proc/PID/exe.
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

# stop PROCESS: of ours, and waits for it.
stop() {
  kill "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
  started=$(echo " $started " | plain sed "s/ $1 / /")
}

# A port of the loopback interface that nobody uses now.
free_port() {
  plain python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

now() { plain date +%s.%N; }

# A folder that outlives this run, if the runner gives one, for inputs that are costly to make.
cache=${BENCH_CACHE:-$directory}
plain mkdir -p "$cache"

# The figures of a process and of those children that have ended: "CPU_SECONDS PAGE_FAULTS".
used() {
  plain awk -v ticks="$(plain getconf CLK_TCK)" '{
    # The second field is a name in parentheses, which may hold anything.
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
