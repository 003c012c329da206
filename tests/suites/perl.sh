# about: Perl's own tests of the language (t/), with Debian's perl and its modules
# program: /usr/bin/perl
# packages: perl
# source: perl

build() {
  local libraries=/usr/lib/$(gcc -print-multiarch)
  mkdir all
  cp -r /usr/share/perl/5.36.0/. all
  cp -rL "$libraries/perl/5.36.0/." all
  cp -rLn "$libraries/perl-base/." all
  cp -rn lib/. all
  rm -r lib
  mv all lib
  ln -s /usr/bin/perl perl
  ln -s /usr/bin/perl t/perl
}
suite() {
  cd t
  $RUN ./perl TEST base/*.t cmd/*.t comp/*.t io/*.t re/*.t uni/*.t mro/*.t op/*.t
}
results() {
  sed -nE 's/^(t\/\S+) \.+ ?ok$/pass \1/p; t; s/^(t\/\S+) \.+ ?skipped.*/skip/; t; s/^(t\/\S+) \.+ ?.*/fail \1/p' "$LOG"
}
