# The crate larder-malloc, from its packed file alone: its own tests, and its example, which the tool reads.
# The allocator is compiled once, as for users; dependencies must have been fetched or be within reach.
packed=$root/packed source=$root/packed/larder-malloc-$version
export CARGO_TARGET_DIR=$root/crate-target CARGO_PROFILE_DEV_DEBUG=line-tables-only

crate_packs() {
  cargo package --quiet --no-verify --allow-dirty --manifest-path package/rust/Cargo.toml && mkdir "$packed" &&
    tar -xf "$CARGO_TARGET_DIR/package/larder-malloc-$version.crate" -C "$packed"
}

crate_has_no_links() { [ -z "$(find "$source" -type l)" ] && [ -f "$source/alloc/core/entry.cc" ]; }

# Clippy compiles the crate, so that it is compiled once for both.
crate_tests() {
  (cd "$source" && RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ \
    cargo test --locked --features profile)
}

# Nothing is compiled for it, since its builder need not have a C++ compiler.
crate_documents() {
  DOCS_RS=1 RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features --manifest-path "$source/Cargo.toml"
}

crate_refuses() {
  refuses_with "larder-malloc is for Linux on x86-64 with glibc (x86_64-unknown-linux-gnu), not for $1" \
    cargo check --quiet --target "$1" --manifest-path "$source/Cargo.toml" --features profile
}

# Its heap has 64 MiB in use while it waits for the end of its input.
tool_reads_crate() {
  local said pid
  coproc APP { exec "$CARGO_TARGET_DIR/debug/examples/hold"; }
  pid=$APP_PID
  read -r said <&"${APP[0]}" && [ "$said" = "$version" ] &&
    "$PWD/out/bin/larder" "$1" "$pid" | tee /dev/stderr | grep "$2"
  said=$?
  eval "exec ${APP[1]}>&-"
  wait "$pid" && return $said
}

check crate-packs crate_packs
check crate-has-its-sources crate_has_no_links
for target in aarch64-unknown-linux-gnu x86_64-unknown-linux-musl x86_64-apple-darwin; do
  check "crate-refuses-$target" crate_refuses $target
done
check crate-tests crate_tests
check crate-program-has-a-heap tool_reads_crate stats '^in use  *64\.'
check crate-program-has-a-profile tool_reads_crate profile '^100.0 %.* hold::main  .*hold\.rs:9$'
if [ $long = yes ]; then
  check crate-documents crate_documents
  check crate-without-profile cargo test --locked --manifest-path "$source/Cargo.toml"
  check crate-for-release cargo test --locked --release --features profile --manifest-path "$source/Cargo.toml"
fi
