# about: CPython's own tests (Lib/test), each file in a process of its own
# program: /usr/bin/python3
# packages: libpython3.11-testsuite

# Without those that mostly wait, for the network or for other processes.
suite() {
  $RUN /usr/bin/python3 -m test -j1 --timeout 1200 --junit-xml "$LOG.xml" -x \
    test_asyncio test_concurrent_futures test_multiprocessing_{fork,forkserver,spawn,main_handling} test_socket
}
# What crashed has no cases.
results() {
  sed -nE 's/^[0-9].* (test_\w+) (crashed|timed out|worker non-zero).*/fail \1/p' "$LOG"
  /usr/bin/python3 - "$LOG.xml" <<'END'
import sys
import xml.etree.ElementTree
for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
    if case.find("skipped") is None:
        failed = case.find("failure") is not None or case.find("error") is not None
        print("fail" if failed else "pass", case.get("name"))
END
}
