# churn.pl SCALE: a log written and analysed: hashes of hashes, split, join, sort, substitutions.
#
# Each scalar's text and each hash entry is a block of its own, of a few bytes to some hundred, and
# strings grow by realloc: perl asks malloc more often than most.
use strict;
use warnings;

my $count = int(120_000 * $ARGV[0]);
$count = 100 if $count < 100;
my $log = '';
for my $i (0 .. $count - 1) {
  $log .= sprintf "%05d host-%d GET /page/%d/%s %d\n", $i, $i % 97, $i * 7919 % 1009,
      'x' x ($i % 40), $i % 5 ? 200 : 404;
}
my (%hosts, %pages, @failed);
for my $line (split /\n/, $log) {
  my ($time, $host, $method, $path, $status) = split ' ', $line;
  $hosts{$host}{$path}++;
  push @{ $pages{$path} }, $time;
  (my $short = $path) =~ s{/x+$}{/x};
  push @failed, { time => $time, path => $short, text => "$method $short failed" } if $status == 404;
}
my @busy = sort { @{ $pages{$b} } <=> @{ $pages{$a} } || $a cmp $b } keys %pages;
my %longest = map { $_ => join ',', sort keys %{ $hosts{$_} } } keys %hosts;
my $text = join "\n", map { "$_->{time} $_->{text}" } sort { $a->{path} cmp $b->{path} } @failed;
die 'wrong' unless @busy && keys(%longest) <= 97 && length($text) > @failed * 20;
