# about: GLib's own tests
# program: /usr/libexec/installed-tests/glib/hash
# packages: libglib2.0-tests

suite() {
  cd /usr/libexec/installed-tests/glib
  for described in /usr/share/installed-tests/glib/*.test; do
    case $described in *-slow.test | *performance.test) continue ;; esac
    command=$(sed -n 's/^Exec=//p' "$described")
    echo "## $(basename "$described" .test)"
    # A test that waits for a desktop waits for ever.
    $RUN timeout 300 dbus-run-session -- sh -c "$command" || echo "not ok - exit code $?"
  done
}
results() {
  sed -E 's/seed:[0-9]+/seed/' "$LOG" | awk '/^## / { file = $2 }
    /^ok [0-9]+ / && !/# SKIP/ { sub(/^ok [0-9]+ /, ""); print "pass " file " " $0 }
    /^not ok / && !/# TODO/ { sub(/^not ok ([0-9]+ )?/, ""); print "fail " file " " $0 }'
}
