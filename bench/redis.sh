#!/bin/sh
# redis.sh REQUESTS: a redis server on a unix socket, loaded by redis-benchmark.
#
# The server runs under the LD_PRELOAD that this script was given; the load generator does not.
# Strings, lists, hashes and sorted sets: many small objects of mixed lifetimes.
set -eu
requests=${1:?usage: redis.sh REQUESTS}
directory=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$directory"
}
trap cleanup EXIT
socket=$directory/socket
plain() { env -u LD_PRELOAD -u LD_DEBUG -u LD_DEBUG_OUTPUT "$@"; }

redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no \
  --dir "$directory" >"$directory/log" 2>&1 &
server=$!
tries=0
until plain redis-cli -s "$socket" ping >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ "$tries" -gt 1000 ]; then
    echo "redis.sh: the server does not answer:" >&2
    cat "$directory/log" >&2
    exit 1
  fi
  sleep 0.01
done
plain redis-benchmark -s "$socket" -n "$requests" -c 20 -P 16 -r 100000 -d 100 -q \
  -t set,get,incr,lpush,lpop,sadd,hset,zadd >/dev/null
plain redis-cli -s "$socket" shutdown nosave >/dev/null 2>&1 || true
wait "$server"
server=
