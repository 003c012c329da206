# about: NumPy's own tests, of the wheel on PyPI
# program: venv/bin/python3
# packages: python3-venv

# These versions, so that results can be compared.
build() {
  /usr/bin/python3 -m venv venv
  venv/bin/pip install --cache-dir "$CACHE/pip" numpy==1.26.4 pytest==8.3.4 hypothesis==6.122.3
}
suite() {
  $RUN venv/bin/python3 -m pytest --pyargs numpy -m 'not slow' -q -rA -p no:cacheprovider --hypothesis-seed=1
}
results() {
  sed -nE 's/^PASSED (.+)/pass \1/p; s/^(FAILED|ERROR) (\S+).*/fail \2/p' "$LOG"
}
