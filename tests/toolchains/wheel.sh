# Python's wheel, in a fresh environment without a network.
wheels=$root/wheels venv=$root/venv
wheel_file() { echo "$wheels"/larder-"$version"-*.whl; }

wheel_is_the_same_again() { package/wheel out "$root/wheels-again" && diff -r "$wheels" "$root/wheels-again"; }

# The newest version of glibc that a file in it needs. Packed relocations have a version by name.
wheel_tag_is_true() {
  local tag
  tag=$(sed -n 's/.*-manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/p' <<<"$(wheel_file)")
  /usr/bin/python3 -m zipfile -e "$(wheel_file)" "$root/unzipped"
  # It fails for the other files.
  { find "$root/unzipped" -type f -exec readelf --wide --version-info {} + 2>/dev/null || true; } |
    grep -o 'GLIBC_[0-9][0-9.]*\|GLIBC_ABI_DT_RELR' | sed 's/ABI_DT_RELR/2.36/; s/GLIBC_//' | sort -uV | tail -n 1 |
    tee /dev/stderr | grep -x "$tag"
}

files_of_venv() { (cd "$venv" && find . ! -type d ! -name '*.pyc' | sort); }

wheel_installs() {
  /usr/bin/python3 -m venv "$venv" && files_of_venv >"$root/venv-before" &&
    "$venv/bin/pip" install --no-index --disable-pip-version-check "$(wheel_file)" && "$venv/bin/pip" check
}

# Each installed file, by the checksum in RECORD.
wheel_record_is_right() {
  "$venv/bin/python3" - <<'PYTHON'
import base64, hashlib, importlib.metadata, sys
files = importlib.metadata.files("larder")
wrong = [f for f in files if f.hash and f.hash.value !=
         base64.urlsafe_b64encode(hashlib.sha256(f.locate().read_bytes()).digest()).rstrip(b"=").decode()]
print(len(files), "files; wrong:", *wrong)
sys.exit(bool(wrong) or len(files) < 60)
PYTHON
}

wheel_records() {
  "$venv/bin/larder" record -o "$root/wheel.trace" -- "$venv/bin/python3" -c 'import json; print(json.dumps([1]))' &&
    "$venv/bin/larder" report "$root/wheel.trace" | tee /dev/stderr | grep "^Mallocs: [1-9]"
}

wheel_preloads() {
  local maps
  maps=$("$venv/bin/larder" run -- cat /proc/self/maps) && grep "$(realpath "$venv")/lib/liblarder.so$" <<<"$maps"
}

wheel_lab_runs() { "$venv/bin/larder" lab --help | grep "^  grid "; }

wheel_compiles() {
  local flags
  flags=$(PKG_CONFIG_PATH=$venv/lib/pkgconfig pkg-config --cflags --libs larder) && read -ra flags <<<"$flags" &&
    gcc tests/toolchains/program.c -o "$root/of-wheel" "${flags[@]}" "-Wl,-rpath,$venv/lib" &&
    [ "$("$root/of-wheel")" = "$version" ]
}

# As pip sees a wheel for a processor that is not here.
wheel_for_another_processor() {
  local other
  other=$root/$(basename "$(wheel_file)" | sed 's/_x86_64\.whl$/_ppc64.whl/')
  cp "$(wheel_file)" "$other" && refuses_with "is not a supported wheel on this platform" \
    "$venv/bin/pip" install --no-index --disable-pip-version-check --force-reinstall "$other"
}

wheel_uninstalls() {
  "$venv/bin/pip" uninstall --yes larder && diff "$root/venv-before" <(files_of_venv)
}

check wheel package/wheel out "$wheels"
check wheel-tag-is-true wheel_tag_is_true
check wheel-of-no-tree refuses_with "is not complete; run 'make build' first" package/wheel docs "$root/none"
check wheel-installs wheel_installs
check wheel-record-is-right wheel_record_is_right
check wheel-records-python wheel_records
check wheel-preloads-its-library wheel_preloads
check wheel-lab-runs wheel_lab_runs
check wheel-compiles-with-pkg-config wheel_compiles
check wheel-for-another-processor wheel_for_another_processor
check wheel-uninstalls wheel_uninstalls
[ $long = no ] || check wheel-is-the-same-again wheel_is_the_same_again
