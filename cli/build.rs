//! Has the tool's programs linked small, where linker and C library can: what is only moved with the program then
//! takes a bit an address instead of 24 bytes, and of equal functions there is one. Whether they can is tried;
//! larder-lab has it from here, too.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const SMALLER: [&str; 2] = ["-Wl,-z,pack-relative-relocs", "-Wl,--icf=all"];

fn main() {
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    for option in SMALLER {
        if runs_when_linked_with(option).unwrap_or(false) {
            println!("cargo:rustc-link-arg-bins={option}");
        }
    }
}

/// Of a program that does nothing.
fn runs_when_linked_with(option: &str) -> io::Result<bool> {
    let value = |name| env::var(name).unwrap_or_default();
    let program = Path::new(&value("OUT_DIR")).join("smaller");
    let flags = value("CARGO_ENCODED_RUSTFLAGS");
    let mut rustc = Command::new(value("RUSTC"));
    rustc
        .args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()))
        .args(["-", "--crate-name", "smaller", "--target"])
        .args([value("TARGET"), format!("-Clink-arg={option}")])
        .arg("-o")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let mut compiler = rustc.spawn()?;
    if let Some(mut source) = compiler.stdin.take() {
        source.write_all(b"fn main() {}")?;
    }
    Ok(compiler.wait()?.success() && Command::new(&program).status()?.success())
}
