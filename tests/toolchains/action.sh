# The GitHub Action, in a user's folder, with Larder as it was cached.
temp=$root/temp work=$root/work steps=$PWD/tests/toolchains/action_steps.py
mkdir -p "$temp" "$work"
cp -a out "$temp/larder"
cat >"$work/app.c" <<'C'
#include <stdlib.h>
#include <string.h>
int main(int count, char** words) {
  if (count > 1 && strcmp(words[1], "--fail it") == 0) return 7;
  for (int i = 0; i < (count > 1 ? 30 : 10); ++i) {
    volatile char* p = malloc(100);
    free((void*)p);
  }
}
C
printf '[limits]\nallocations = "<= 12"\n' >"$work/larder.toml"

# In the user's folder; the runner says where else to write.
action() { (cd "$work" && rm -f "$temp/summary" "$temp/output" && "$steps" "$temp" "$@"); }

passes() { action command=./app && grep '^larder: work: within budget' "$temp/summary" && [ -s "$work/larder-trend.html" ]; }

marks_the_line() {
  local said
  said=$(action command='./app --more') && return 1
  tee /dev/stderr <<<"$said" |
    grep '^::error file=.*app\.c,line=6,title=larder check::work: over budget: allocations 30 where' &&
    grep '^  site: main at ' "$temp/summary" && grep '^page=larder-trend.html$' "$temp/output"
}

shows_a_failure() {
  local said
  said=$(action command='./app "--fail it"') && return 1
  tee /dev/stderr <<<"$said" | grep '^::error title=larder check::.*7'
}

takes_options() { action command=./app budget=other.toml options='--update --full-names' && grep '^allocations = 10$' "$work/other.toml"; }

check action-program gcc -g -O0 "$work/app.c" -o "$work/app"
check action-passes passes
check action-marks-the-line marks_the_line
check action-shows-a-failure shows_a_failure
check action-takes-options takes_options
