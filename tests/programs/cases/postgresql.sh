# about: postgresql on a private socket under pgbench: balances checked, sorts, hashes, JSON, a restart
# programs: postgres initdb
# needs: setpriv

bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
[ -x "$bin/postgres" ] && [ -x "$bin/pgbench" ] || die "no postgres and pgbench below /usr/lib/postgresql"
# The server refuses to run as root.
as=
if [ "$(id -u)" -eq 0 ]; then
  as='setpriv --reuid=postgres --regid=postgres --clear-groups'
  chown postgres: .
fi

$as $RUN "$bin/initdb" -D data -U larder -A trust --no-sync --locale=C.UTF-8 >initdb.log 2>&1 ||
  die "initdb: $(tail -n 3 initdb.log)"
serve() {
  $as $RUN "$bin/postgres" -D "$PWD/data" -k "$PWD" -h '' -p "$PORT" -c fsync=off -c shared_buffers=32MB \
    -c max_parallel_workers_per_gather=2 -c min_parallel_table_scan_size=0 >>server.log 2>&1 &
  server=$!
  wait_for "$bin/pg_isready" -q -d postgres -h "$PWD" -p "$PORT" -U larder
  check_family "$server"
}
ask() { "$bin/psql" -X -q -A -t -h "$PWD" -p "$PORT" -U larder "$@"; }

serve
ask -d postgres -c 'CREATE DATABASE bank'
"$bin/pgbench" -h "$PWD" -p "$PORT" -U larder -i -q -s 2 bank >init.out 2>&1 || die "$(cat init.out)"
"$bin/pgbench" -h "$PWD" -p "$PORT" -U larder -c 8 -j 2 -t 250 --random-seed=1 bank >bench.out 2>&1 || die "$(cat bench.out)"
grep -E 'actually processed|failed transactions' bench.out
ask -d bank <<'END'
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),
       (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers),
       (SELECT count(*) FROM pgbench_history);
SET work_mem = '1MB';
CREATE TABLE word AS SELECT i, md5(i::text) AS name, i % 1013 AS kind FROM generate_series(1, 200000) i;
SELECT md5(string_agg(name, ',' ORDER BY name DESC)) FROM word;
SELECT count(*), max(n) FROM (SELECT kind, count(*) AS n FROM word GROUP BY kind) groups;
SELECT count(*) FROM word a JOIN word b ON left(a.name, 4) = reverse(right(b.name, 4)) AND a.kind = b.kind;
SELECT md5(jsonb_object_agg(name, kind)::text) FROM word WHERE i <= 20000;
CREATE INDEX ON word USING gin (string_to_array(name, 'a'));
SELECT count(*) FROM word WHERE name ~ '^(0|f)+[a-c]{2}';
SELECT length(repeat(string_agg(name, ''), 3)) FROM word;
SELECT 1 / 0;
END
stop "$server" INT
serve
ask -d bank -c 'SELECT count(*) FROM word'
stop "$server" INT
grep -oE "PANIC: .*|terminated by signal .*" server.log
exit 0
