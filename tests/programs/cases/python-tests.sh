# about: a part of Python's own test suite
# programs: python3(\.\d+)?
# needs: python3
# record: off
# checks: itself

# Debian's, which its test suite belongs to, whatever else is called python3.
python=/usr/bin/python3
for test in test_json test_dict test_list test_set test_unicode test_bytes test_re test_array \
  test_collections test_deque test_pickle test_zlib test_bz2 test_decimal test_threading test_queue \
  test_concurrent_futures.test_none test_gc test_weakref test_memoryview test_mmap test_fork1 test_subprocess \
  test_sort test_heapq test_itertools test_struct test_xml_etree test_sqlite3.test_dbapi; do
  "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('test.$test') is None)" 2>/dev/null || continue
  echo "$test"
done >names

# test_subprocess minds every open file, so the loader keeps no record here.
$RUN "$python" -c 'import os; maps = open("/proc/self/maps").read(); raise SystemExit(os.environ["LIBRARY"] not in maps)' ||
  die "$python does not map $LIBRARY"
$RUN "$python" -m test -v $(cat names) >suite.log 2>&1
code=$?
# The totals and every test that does not pass; times and the random seed are left out.
grep -E '^(Ran|OK|FAILED|FAIL:|ERROR:|[0-9]+ tests? |All [0-9]+ tests|Tests result|Result)' suite.log |
  sed -E 's/ in [0-9.]+s$//; s/\(([0-9.]+ (sec|min|ms) ?)+\)//'
exit $code
