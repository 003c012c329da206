# about: redis-server under redis-benchmark, data checked, saved by a fork and read back
# programs: redis-server
# needs: redis-server redis-benchmark redis-cli

serve() {
  $RUN redis-server --bind 127.0.0.1 --port "$PORT" --dir "$PWD" --save '' --appendonly no \
    --daemonize no --enable-debug-command local --logfile server.log &
  server=$!
  wait_for redis-cli -p "$PORT" ping
  check_mapped "$server"
}
ask() { redis-cli -p "$PORT" "$@"; }

serve
redis-benchmark -p "$PORT" -q -n 10000 -r 5000 -c 20 -d 100 \
  -t set,get,incr,lpush,rpush,lpop,sadd,hset,spop,zadd,lrange_100,mset >benchmark.out 2>&1 || exit 1
tr '\r' '\n' <benchmark.out | grep -c 'requests per second'
# The freeing goes to a thread of its own.
ask flushall async
# Sizes from 1 byte to a quarter of a megabyte, and values that grow in place.
ask eval 'for i = 1, 2000 do redis.call("SET", "key:" .. i, string.rep(i % 10, i * i / 16 + 1)) end return 2000' 0
for number in $(seq 1 200); do echo "APPEND grown $(printf '%01000d' "$number")"; done | ask >/dev/null
seq 1 700000 | ask -x set large
ask eval 'for i = 1, 20000 do redis.call("HSET", "hash", i, i * 2); redis.call("ZADD", "sorted", i, i); redis.call("RPUSH", "list", i) end return 20000' 0
ask unlink $(seq -f 'key:%g' 2 2 2000)
before=$(ask debug digest)
echo "$before"
ask strlen grown
ask eval 'local sum = 0 for _, v in ipairs(redis.call("HVALS", "hash")) do sum = sum + v end return sum' 0
ask bgsave >/dev/null
wait_for bash -c "redis-cli -p $PORT info persistence | grep -q 'rdb_bgsave_in_progress:0'"
ask info persistence | tr -d '\r' | grep rdb_last_bgsave_status
ask memory purge
stop "$server" TERM
serve
[ "$(ask debug digest)" = "$before" ] && echo 'read back what was saved'
ask shutdown nosave
wait "$server"
echo "ended with $?"
