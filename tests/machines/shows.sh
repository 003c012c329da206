# What the scripts of this folder share; they end with `exit $failed`.
failed=0
# `shows NAME WORDS COMMAND...`: the command succeeds, and the words, a pattern, are in what it prints.
shows() {
  local name=$1 words=$2 status=0
  shift 2
  rm -rf trace
  "$@" >printed 2>&1 </dev/null || status=$?
  echo "code $status" >>printed
  if [ $status -eq 0 ] && grep -E "$words" printed >/dev/null; then
    echo "passed: $name"
  else
    echo "failed: $name: no '$words' in:"
    cat printed
    failed=1
  fi
}
