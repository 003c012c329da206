# Debian's packages, installed by dpkg below an empty folder whose database has only what the packages depend on.
debs=$root/debs system=$root/system
architecture=$(dpkg --print-architecture) multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
# Compressing takes longer than all else.
export DPKG_DEB_COMPRESSOR_TYPE=none

deb_makes() { DEB_VERSION=$1 package/deb/build out "$debs/$1"; }

deb_is_the_same_again() {
  deb_makes 1-1 && mv "$debs/1-1" "$debs/first" && deb_makes 1-1 && diff -r "$debs/first" "$debs/1-1"
}

# Not root of its own: maintainers' scripts are what would need that, and there are none.
dpkg_there() {
  dpkg --force-not-root --force-unsafe-io --force-script-chrootless --root="$system" --log=/dev/null "$@"
}

empty_system() {
  mkdir -p "$system"/var/lib/dpkg/{info,updates,triggers} && dpkg-query --status libc6 libgcc-s1 libstdc++6 \
    >"$system/var/lib/dpkg/status" && files_of_system >"$root/files-before"
}

# But for dpkg's own.
files_of_system() { (cd "$system" && find . -path ./var -prune -o -print | sort); }

deb_installs() {
  dpkg_there --install "$debs/$1"/*.deb && [ "$(dpkg_there --list '*larder*' | grep -c "^ii .* $1 ")" = 5 ]
}

deb_changed_no_file() { dpkg_there --verify larder liblarder0 liblarder-dev && dpkg_there --audit; }

deb_records() {
  local larder=$system/usr/bin/larder said
  rm -rf "$root/deb.trace" && "$larder" record -o "$root/deb.trace" -- sh -c 'exit 0' &&
    "$larder" report "$root/deb.trace" | tee /dev/stderr | grep "^Mallocs: [1-9]" &&
    said=$("$larder" run -- cat /proc/self/maps) && grep "$(realpath "$system")/usr/lib/$multiarch/liblarder.so.0" <<<"$said"
}

deb_lab_runs() { "$system/usr/bin/larder" torture --seconds 1; }

# Prefixes stay what they are in the package: /usr.
deb_compiles() {
  local flags
  flags=$(PKG_CONFIG_SYSROOT_DIR=$system PKG_CONFIG_LIBDIR=$system/usr/lib/$multiarch/pkgconfig \
    PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config --cflags --libs "$1") &&
    read -ra flags <<<"$flags" && gcc "${@:2}" -o "$root/$1" "${flags[@]}" && [ "$("$root/$1")" = "$version" ]
}

deb_cmake() {
  mkdir "$root/deb-app" && cp tests/toolchains/*.[ct]* "$root/deb-app" &&
    cmake -G Ninja -S "$root/deb-app" -B "$root/deb-app/build" -DCMAKE_PREFIX_PATH="$system/usr" -DLANGUAGES=C \
      -DWANTED="$version" && cmake --build "$root/deb-app/build" --target larder prefixed kit &&
    [ "$("$root/deb-app/build/larder")" = "$version" ] && "$root/deb-app/build/kit"
}

deb_man_page() { gzip -dc "$system/usr/share/man/man1/larder-record.1.gz" | grep "^\.SH OPTIONS"; }

deb_debug_information() {
  gdb -nx -batch -iex "set debug-file-directory $system/usr/lib/debug" -ex 'info line malloc' \
    "$system/usr/lib/$multiarch/liblarder.so.0" 2>&1 | tee /dev/stderr | grep 'Line [0-9]* of ".*/alloc/core/'
}

# Packed relocations need 2.36, which no version of a function says.
deb_needs() { dpkg-deb --field "$debs/1-1/$1_1-1_$architecture.deb" Depends | tee /dev/stderr | grep "$2"; }

deb_for_another_processor() {
  local tree=$root/other other=arm64
  [ "$architecture" != arm64 ] || other=amd64
  dpkg-deb --raw-extract "$debs/1-1/liblarder0_1-1_$architecture.deb" "$tree" &&
    sed -i "s/^Architecture: .*/Architecture: $other/" "$tree/DEBIAN/control" &&
    dpkg-deb --build "$tree" "$root/other.deb" &&
    refuses_with "package architecture ($other) does not match system ($architecture)" \
      dpkg_there --install "$root/other.deb"
}

deb_leaves_nothing() {
  dpkg_there --purge larder liblarder0 liblarder-dev larder-dbgsym liblarder0-dbgsym &&
    diff "$root/files-before" <(files_of_system) && ! grep -i larder "$system/var/lib/dpkg/status"
}

check deb deb_makes 1-1
check deb-of-a-later-version deb_makes 1-2
check deb-needs-its-c-library deb_needs larder 'libc6 (>= 2\.36)'
check deb-into-an-empty-system empty_system
check deb-without-its-libraries refuses_with "larder depends on liblarder0 (= 1-1)" \
  dpkg_there --install "$debs/1-1/larder_1-1_$architecture.deb"
check deb-for-another-processor deb_for_another_processor
check deb-installs deb_installs 1-1
check deb-has-its-files deb_changed_no_file
check deb-records deb_records
check deb-lab-runs deb_lab_runs
check deb-man-page deb_man_page
check deb-debug-information deb_debug_information
check deb-compiles-with-pkg-config deb_compiles larder tests/toolchains/program.c \
  "-Wl,-rpath,$system/usr/lib/$multiarch"
check deb-compiles-with-the-archive deb_compiles larder-static tests/toolchains/program.c
check deb-compiles-with-cmake deb_cmake
check deb-upgrades deb_installs 1-2
check deb-records-after-the-upgrade deb_records
check deb-leaves-nothing deb_leaves_nothing
if [ $long = yes ]; then
  check deb-is-the-same-again deb_is_the_same_again
  unset DPKG_DEB_COMPRESSOR_TYPE
  check deb-as-shipped package/deb/build out "$debs/shipped"
  check deb-lintian lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
    "$debs"/shipped/*.deb
fi
