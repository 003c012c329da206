# about: sort, xz and tar in threads on a large file
# programs: sort xz tar grep awk|mawk|gawk
# needs: sort xz tar awk

awk 'BEGIN { x = 42; for (i = 0; i < 400000; i++) { x = (x * 1103515245 + 12345) % 2147483648; print x } }' >numbers
$RUN sort --parallel=4 -S 8M numbers | digest
$RUN sort -n -u numbers | digest
$RUN xz -T 2 -3 --block-size=500KiB -k numbers || exit 1
$RUN xz -dc numbers.xz | digest
$RUN tar --sort=name --mtime=@0 --owner=0 --group=0 -cf all.tar numbers numbers.xz || exit 1
$RUN tar -xOf all.tar numbers | digest
$RUN awk '{ seen[$1 % 100003]++ } END { print length(seen) }' numbers
$RUN grep -cE '(12|34)+5$' numbers
