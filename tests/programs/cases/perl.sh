# about: a Perl script: hashes, regular expressions, sorting, fork
# programs: perl
# needs: perl

cat >script.pl <<'END'
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

my ($state, %count, @words) = (12345);
sub next_number { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return $state >> 8 }
for (1 .. 200_000) {
    my $word = join '', map { chr(97 + next_number() % 7) } 1 .. 1 + next_number() % 12;
    push @words, $word;
    $count{$word}++;
}
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$_ $count{$_}\n" for @top[0 .. 9];
my $text = join ' ', sort @words;
print sha256_hex($text), "\n";
(my $changed = $text) =~ s/(a+)(b+)/$2$1/g;
print sha256_hex($changed), "\n";
my @pids = map { my $n = $_; my $pid = fork // die; if (!$pid) { my @x = ('x' x 1000) x ($n * 100); exit(@x / 100) } $pid } 1 .. 10;
print join(' ', map { waitpid $_, 0; $? >> 8 } @pids), "\n";
END
$RUN perl script.pl
