#!/bin/sh
# redis.sh REQUESTS: a redis server on a unix socket, loaded by redis-benchmark.
#
# Strings, lists, hashes and sorted sets: many small objects of mixed lifetimes, in one thread. The
# server is measured, the load generator runs without the allocator. Time is that of the load.
requests=${1:?usage: redis.sh REQUESTS}
. "$(dirname "$0")/server.sh"
[ "$requests" -ge 200 ] || requests=200
socket=$directory/socket

redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no \
  --dir "$directory" >"$directory/log" 2>&1 &
server=$!
started=$server
await redis-server "$directory/log" redis-cli -s "$socket" ping

start=$(now)
plain redis-benchmark -s "$socket" -n "$requests" -c 20 -P 16 -r 100000 -d 100 -q \
  -t set,get,incr,lpush,lpop,sadd,hset,zadd >"$directory/load"
seconds=$(since "$start")
report "$server" "$seconds"
