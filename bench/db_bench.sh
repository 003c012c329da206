#!/bin/sh
# db_bench.sh KEYS: RocksDB's own benchmark fills a database at random, reads it and walks it.
#
# Memtables take blocks from arenas, each read takes block-cache entries and pinned values, and
# compaction threads free what writers made. Nothing waits for the disk: no write is synchronous.
keys=${1:?usage: db_bench.sh KEYS}
. "$(dirname "$0")/server.sh"
[ "$keys" -ge 1000 ] || keys=1000
measure=$(dirname "$0")/../larder-measure

env -u LD_PRELOAD "$measure" "${LD_PRELOAD:--}" "$directory/measured" 300 \
  db_bench --db="$directory/db" --benchmarks=fillrandom,readrandom,readseq,seekrandom --seed=1 \
  --num="$keys" --reads="$keys" --threads=2 --value_size=100 --write_buffer_size=4194304 \
  --cache_size=8388608 --compression_type=none --statistics=0 --disable_auto_compactions=0 \
  >"$directory/log" 2>&1
plain grep -q '"exit_code": 0' "$directory/measured" || fail "db_bench: $(plain tail -n 1 "$directory/log")"
plain sed 's/"wall_seconds"/"seconds"/' "$directory/measured"
