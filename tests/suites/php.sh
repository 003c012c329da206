# about: PHP's own tests of the engine, arrays and strings, with USE_ZEND_ALLOC=0: all memory is malloc's
# program: /usr/bin/php8.2
# packages: php8.2-cli
# source: php8.2

# With the extensions of the package, which PHP opens with RTLD_DEEPBIND.
suite() {
  export USE_ZEND_ALLOC=0 NO_INTERACTION=1
  $RUN php8.2 run-tests.php -p /usr/bin/php8.2 -q --no-color Zend/tests ext/standard/tests/{array,strings}
}
results() {
  sed -nE 's/^(TEST.*)?PASS .*\[(.*)\].*/pass \2/p; s/^(TEST.*)?FAIL .*\[(.*)\].*/fail \2/p' "$LOG"
}
