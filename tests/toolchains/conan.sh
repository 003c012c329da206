# Conan's package, created in an empty home without a network, and the programs of this folder on its targets. Conan
# itself comes from PyPI, once.
conan_version=2.34.0
conan_place=${LARDER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/larder}/conan-$conan_version
export CONAN_HOME=$root/conan-home

conan_is_there() {
  [ -x "$conan_place/bin/conan" ] || { /usr/bin/python3 -m venv --clear "$conan_place" &&
    "$conan_place/bin/pip" install -q --disable-pip-version-check "conan==$conan_version"; }
}

conan() { "$conan_place/bin/conan" "$@"; }

conan_creates() {
  conan create package/conan --no-remote -c tools.cmake.cmake_layout:test_folder="$root/conan-test" "$@"
}

# No part of the tool, whose programs are found from its own place.
conan_has_the_libraries() {
  diff <(cd "$CONAN_HOME"/p/b/*/p && find . -name '*.so' -o -name '*.a' -o -name '*Config.cmake' -o -name larder.h | sort) - <<'FILES'
./include/larder/larder.h
./lib/cmake/Larder/LarderConfig.cmake
./lib/liblarder.a
./lib/liblarder.so
./lib/liblarder_hardened.so
./lib/liblarder_minimal.so
./lib/liblarder_prefixed.a
FILES
}

check conan-is-there conan_is_there
check conan-has-a-profile conan profile detect
check conan-creates conan_creates
check conan-has-the-libraries conan_has_the_libraries
check conan-refuses-windows refuses_with "Larder is for Linux on x86-64 or aarch64 with glibc, not for Windows" \
  conan_creates -s:h os=Windows
check conan-leaves-nothing-to-commit git check-ignore package/conan/test_package/build/
