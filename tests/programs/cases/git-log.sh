# about: git: log with patches, blame, repack in threads, clone, fsck of a generated repository
# programs: git
# needs: git perl

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat
git init -q -b main repository
cd repository || exit 1
perl -e '
  my $mark = 0;
  for my $commit (1 .. 400) {
    my $text = join "", map { my $n = $_; "line $n of commit " . int(($commit + $n % 17) / 17) . "\n" } 1 .. 200 + $commit;
    printf "commit refs/heads/main\ncommitter A <a\@example.org> %d +0000\ndata 10\ncommit %03d\n", 1600000000 + $commit * 60, $commit;
    for my $file ($commit % 23, $commit % 7) {
      printf "M 100644 inline dir%d/file%d.txt\ndata %d\n%s\n", $file % 5, $file, length $text, $text;
    }
    print "\n";
  }' | git fast-import --quiet || exit 1

$RUN git log --stat -p --no-color >../log.txt || exit 1
wc -l <../log.txt
digest <../log.txt
$RUN git blame --date=iso dir2/file2.txt | digest
$RUN git -c pack.threads=4 repack -q -a -d -f --depth=50 --window=50 || exit 1
$RUN git count-objects -v | grep -E '^(count|in-pack|packs|garbage)'
$RUN git clone -q --no-local . ../clone || exit 1
$RUN git -C ../clone fsck --strict 2>&1 | grep -v '^notice'
git -C ../clone rev-parse HEAD
$RUN git -C ../clone grep -c 'line 7 of' -- dir1 | sort
$RUN git log --oneline -- no-such-path; echo "nothing: $?"
$RUN git rev-parse --verify -q no-such-branch; echo "no branch: $?"
