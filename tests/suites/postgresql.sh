# about: PostgreSQL's own tests of the server (src/test/regress), of its source
# program: tmp_install/usr/local/pgsql/bin/postgres
# packages: bison flex gcc make perl
# source: postgresql-15
# root: no

build() {
  ./configure --without-readline --without-zlib
  make -j "$JOBS"
  make -C src/test/regress -j "$JOBS"
  make temp-install
}
suite() {
  $RUN make check NO_TEMP_INSTALL=yes MAX_CONNECTIONS=1
}
results() {
  sed -nE 's/^(test|    ) *(\S+) +\.\.\. ok .*/pass \2/p; s/^(test|    ) *(\S+) +\.\.\. FAILED.*/fail \2/p' "$LOG"
}
