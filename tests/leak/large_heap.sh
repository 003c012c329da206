#!/bin/sh
# Seconds that a check of 1 GiB in a million objects takes. Usage: large_heap.sh [BUILD]
build=${1:-build/release}
begin=$(HEAPCHECK=normal LD_PRELOAD="$build/liblarder.so" "$build/tests/leak/leak_large_heap")
end=$(awk '{ print $1 }' /proc/uptime)
echo "$begin $end" | awk '{ printf "check: %.2f s\n", $2 - $1 }'
