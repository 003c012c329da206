# about: exit codes and deaths by signal are kept
# programs: bash true cat
# needs: bash

$RUN true && echo "true: 0"
$RUN bash -c 'exit 37'
echo "exit 37: $?"
$RUN bash -c 'kill -TERM $$'
echo "SIGTERM: $?"
{ $RUN bash -c 'ulimit -c 0; kill -SEGV $$'; } 2>/dev/null
echo "SIGSEGV: $?"
$RUN cat no-such-file
echo "cat: $?"
$RUN bash -c 'echo one; echo two >&2; cat' <<<three
