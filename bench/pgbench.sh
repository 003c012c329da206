#!/bin/sh
# pgbench.sh TRANSACTIONS: a PostgreSQL server on a unix socket, loaded by pgbench.
#
# Look-ups, the mixed transactions of TPC-B, and reports that sort, join and aggregate. PostgreSQL
# has memory contexts, which allocate blocks of 1 KiB to 8 MiB and free them in bulk, in one process a
# connection. Peak memory is the largest sum of the processes' anonymous memory, sampled ten times a
# second: shared memory is the same under any malloc.
transactions=${1:?usage: pgbench.sh TRANSACTIONS}
. "$(dirname "$0")/server.sh"
[ "$transactions" -ge 40 ] || transactions=40

tools=
for folder in /usr/lib/postgresql/*/bin; do
  [ ! -x "$folder/pgbench" ] || tools=$folder
done
[ -n "$tools" ] || fail "no /usr/lib/postgresql/*/bin/pgbench: apt-get install postgresql"

# The server refuses to run as root. In a namespace of its own the same user has another number, and
# can still read a library that only root can.
as_user=
if [ "$(plain id -u)" -eq 0 ]; then
  as_user='unshare --user --map-user=postgres --map-group=postgres'
  # shellcheck disable=SC2086
  plain $as_user true 2>"$directory/log" ||
    fail "$(plain cat "$directory/log"): as root this needs user namespaces; run it as another user"
fi

# serve FOLDER: becomes the server.
serve() {
  # shellcheck disable=SC2086
  exec $as_user "$tools/postgres" -D "$1" -k "$directory" -c listen_addresses= -c fsync=off \
    -c shared_buffers=32MB -c autovacuum=off -c max_connections=10 >>"$directory/log" 2>&1
}
client() {
  name=$1
  shift
  plain "$tools/$name" -h "$directory" -U bench "$@" >>"$directory/load" 2>&1 ||
    fail "$name: $(plain tail -n 1 "$directory/load")"
}
# Not by a client: an early connection appears as a crash in the log.
await_server() { await postgres "$directory/log" grep -q 'ready to accept' "$directory/log"; }

# The cluster with its tables is made once; each run works on a copy.
cluster=$cache/pgbench-cluster
if [ ! -d "$cluster" ]; then
  # shellcheck disable=SC2086
  plain $as_user "$tools/initdb" -D "$directory/made" -U bench -A trust --no-sync --no-locale -E UTF8 \
    >"$directory/log" 2>&1 || fail "initdb: $(plain tail -n 1 "$directory/log")"
  : >"$directory/log"
  (without_allocator && serve "$directory/made") &
  started=$!
  await_server
  client pgbench -i -q -s 1 postgres
  stop "$started"
  mv "$directory/made" "$cluster"
fi
plain cp -a "$cluster" "$directory/data"
plain chmod 700 "$directory/data"

cat >"$directory/report.sql" <<'END'
\set low random(1, 90000)
SELECT count(*), sum(length(line)) FROM (
  SELECT bid, string_agg(aid || ':' || abalance, ',' ORDER BY abalance, aid DESC) AS line
  FROM pgbench_accounts WHERE aid BETWEEN :low AND :low + 3000 GROUP BY bid, aid % 50) AS lines;
SELECT json_agg(row_to_json(a)) IS NOT NULL FROM pgbench_accounts a
  JOIN pgbench_accounts b ON b.aid = a.aid + 7 WHERE a.aid BETWEEN :low AND :low + 1000;
END

: >"$directory/log"
serve "$directory/data" &
server=$!
started=$server
await_server

# Prints the anonymous memory of all processes in KiB, whenever it exceeds the maximum so far.
watch_memory() {
  without_allocator
  highest=0
  while :; do
    files=/proc/$server/status
    for process in $(cat "/proc/$server/task/$server/children"); do
      files="$files /proc/$process/status"
    done
    # A process may have ended by now.
    # shellcheck disable=SC2086
    sum=$(awk '$1 == "RssAnon:" { sum += $2 } END { print sum + 0 }' $files 2>/dev/null) || sum=0
    if [ "$sum" -gt "$highest" ]; then
      highest=$sum
      echo "$highest"
    fi
    sleep 0.1
  done
}
watch_memory >"$directory/memory" 2>/dev/null &
watcher=$!
started="$started $watcher"

start=$(now)
client pgbench -n -c 2 -S -t $((transactions / 2)) postgres
client pgbench -n -c 2 -t $((transactions / 20)) postgres
client pgbench -n -c 2 -f "$directory/report.sql" -t $((transactions / 40)) postgres
seconds=$(since "$start")
stop "$watcher"
peak=$(plain tail -n 1 "$directory/memory")
[ -n "$peak" ] || fail "the memory of the server could not be read"
report "$server" "$seconds" 1 "$peak"
