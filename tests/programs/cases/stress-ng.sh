# about: stress-ng fills what it allocates with patterns and reads them back
# programs: stress-ng
# needs: stress-ng

# Without the library it only shows what the options print.
seconds=2
[ -n "$RUN" ] || seconds=1
for options in '--malloc 4' '--malloc 2 --malloc-bytes 2m --malloc-max 20000' '--malloc 2 --malloc-pthreads 8' '--fork 2 --pthread 2'; do
  $RUN stress-ng $options --verify --timeout ${seconds}s >"stress.log" 2>&1
  echo "$options: $?"
  grep -oE 'successful run completed|unsuccessful run completed|(fail|error): .*|[0-9]+ failures.*' stress.log | sed 's|\[[0-9]*\] ||'
done
exit 0
