# about: jq's own tests, with Debian's jq
# program: /usr/bin/jq
# packages: jq
# source: jq

suite() {
  cd tests
  for file in jq base64 onig; do
    echo "## $file"
    $RUN jq -L "$PWD/modules" --run-tests "$file.test" || true
  done
}
results() {
  awk '/^## / { file = $2 }
    /^Testing .* at line number [0-9]+/ { test = file " line " $NF; verdict[test] = "pass" }
    /^\*\*\*/ { verdict[test] = "fail" }
    END { for (test in verdict) print verdict[test], test }' "$LOG"
}
