#!/bin/bash
# One seed, two mallocs, several threads: the streams do the same, however fast they are.
# Usage: repeats.sh LARDER_TORTURE LIBRARY
set -euo pipefail

# What depends on the seed alone: operations, rounds, threads, forks.
counts() {
  LD_PRELOAD=$2 "$1" --threads 4 --rounds 1 --seconds 600 --seed 5 |
    grep -o '"operations":.*"forks":[0-9]*'
}

glibc=$(counts "$1" "")
other=$(counts "$1" "$2")
echo "$glibc"
echo "$other"
[ "$glibc" = "$other" ]
