#!/bin/sh
# git.sh COMMITS: git shows every change of a repository's history, and repacks it.
#
# Trees, blobs and diffs: large texts inflated and dropped, hash tables of objects, and deltas searched
# by two threads. The repository is made here, by fast-import, without the allocator; time and memory
# are those of log and repack.
commits=${1:?usage: git.sh COMMITS}
. "$(dirname "$0")/server.sh"
[ "$commits" -ge 5 ] || commits=5
measure=$(dirname "$0")/../larder-measure
export GIT_CONFIG_NOSYSTEM=1 HOME="$directory" GIT_TERMINAL_PROMPT=0

made=$cache/git-$commits
if [ ! -d "$made" ]; then
  plain git init -q --bare "$directory/made"
  plain awk -v commits="$commits" 'BEGIN {
    for (c = 1; c <= commits; c++) {
      message = "Change " c "\n"
      printf "commit refs/heads/main\ncommitter Bench <bench@localhost> %d +0000\n", 1700000000 + c * 60
      printf "data %d\n%s", length(message), message
      # A few of forty files change in each commit; a changed file has some other lines.
      for (f = c % 7; f < 40; f += c == 1 ? 1 : 13) {
        text = ""
        for (line = 0; line < 120; line++) {
          text = text "line " line " of file " f ": " \
            ((line * 31 + f) % 17 == c % 17 ? "changed by " c : "as it was from the beginning") "\n"
        }
        printf "M 100644 inline folder%d/file%d.txt\ndata %d\n%s\n", f % 5, f, length(text), text
      }
    }
  }' | plain git -C "$directory/made" fast-import --quiet
  mv "$directory/made" "$made"
fi
plain cp -a "$made" "$directory/repository"

cat >"$directory/work" <<'END'
set -e
git -C "$1" log -p --stat -M main >"$1/log"
git -C "$1" -c pack.threads=2 repack -adfq --window=20 --depth=50
END
env -u LD_PRELOAD "$measure" "${LD_PRELOAD:--}" "$directory/measured" 300 \
  sh "$directory/work" "$directory/repository" 2>"$directory/log"
plain grep -q '"exit_code": 0' "$directory/measured" || fail "git: $(plain tail -n 1 "$directory/log")"
plain grep -q '^+line .* changed by' "$directory/repository/log" || fail "git log shows no change"
plain sed 's/"wall_seconds"/"seconds"/' "$directory/measured"
