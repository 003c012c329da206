# The installed tree, which was moved: CMake's find_package and pkg-config.
place=$root/moved/larder app=$root/app
major=${version%%.*}
export PKG_CONFIG_PATH=$place/lib/pkgconfig

configure() { cmake -G Ninja -S "$app" -B "$1" -DCMAKE_PREFIX_PATH="$place" "${@:2}" 2>&1; }

# The rest: options of CMake.
refuses() {
  rm -rf "$root/refused"
  refuses_with "$1" configure "$root/refused" "${@:2}"
}

runs_on_larder() {
  local said
  said=$("$@") && echo "$said" && [ "$said" = "$version" ]
}

compiles() {
  local package=$1 flags
  shift
  flags=$(pkg-config --cflags --libs "$package") && read -ra flags <<<"$flags" &&
    gcc "$@" -o "$app/$package" "${flags[@]}"
}

has_version() { runs_on_larder pkg-config --modversion "$1"; }

needs() { readelf --wide --dynamic --version-info "$1" | tee /dev/stderr | grep "NEEDED.*\[$2\.so\.$major\]"; }

needs_version() { needs "$1" liblarder && readelf --wide --dyn-syms "$1" | grep "larder_version@LARDER_0\.1 "; }

defines_malloc() { nm "$1" | grep ' T malloc$'; }

named() { readelf --dynamic "$place/lib/$1.so" | tee /dev/stderr | grep "SONAME.*\[$1\.so\.$major\]"; }

check install make install PREFIX="$root/first"
mkdir "$root/moved"
mv "$root/first" "$place"
mkdir "$app"
cp tests/toolchains/*.[ct]* "$app"

for library in liblarder liblarder_minimal liblarder_hardened; do check "$library-has-a-soname" named $library; done
check cmake-configures configure "$app/build" -DLANGUAGES=C -DWANTED="$version"
check cmake-builds cmake --build "$app/build"
for target in larder minimal hardened static prefixed; do check "cmake-$target" runs_on_larder "$app/build/$target"; done
check cmake-kit "$app/build/kit"
check program-needs-version needs_version "$app/build/larder"
check nothing-allocates-larder needs "$app/build/quiet-larder" liblarder
check nothing-allocates-minimal needs "$app/build/quiet-minimal" liblarder_minimal
check nothing-allocates-hardened needs "$app/build/quiet-hardened" liblarder_hardened
check nothing-allocates-static defines_malloc "$app/build/quiet-static"

path="-Wl,-rpath,$place/lib"
for package in larder larder-minimal larder-hardened larder-static; do
  check "$package.pc-compiles" compiles $package "$app/program.c" "$path"
  check "$package.pc-runs" runs_on_larder "$app/$package"
done
check larder-prefixed.pc-compiles compiles larder-prefixed -DPREFIXED "$app/program.c"
check larder-prefixed.pc-runs runs_on_larder "$app/larder-prefixed"
check larder-kit.pc-compiles compiles larder-kit "$app/kit.c"
check larder-kit.pc-version has_version larder-kit
for package in larder larder-minimal larder-hardened; do
  check "nothing-allocates-$package.pc" compiles $package "$app/quiet.c" -Wl,--as-needed
  check "nothing-allocates-$package.pc-needs" needs "$app/$package" "lib${package/-/_}"
done

check another-version refuses "version \"99\"" -DLANGUAGES=NONE -DWANTED=99
other=aarch64
[ "$(uname -m)" != aarch64 ] || other=x86_64
check another-processor refuses "glibc, not for Linux on $other." \
  -DLANGUAGES=NONE -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$other
# What musl has here.
mkdir "$root/musl"
touch "$root/musl/features.h"
check another-libc refuses "glibc, not for another C library." -DLANGUAGES=C -DCMAKE_C_FLAGS="-I$root/musl"
