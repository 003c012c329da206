//! What the tests of `larder diff` share: small programs recorded, and two traces compared.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{assert_success, compile, larder, output, record, stdout};

/// Of the programs' sources.
pub const HEAD: &str = "#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline)) static
static void *volatile kept;
";

/// Compiles and records; the trace's path.
pub fn trace(
    directory: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
    arguments: &[&str],
) -> PathBuf {
    let directory = directory.join(name);
    fs::create_dir_all(&directory).unwrap();
    let file = if flags.contains(&"-xc++") {
        "app.cc"
    } else {
        "app.c"
    };
    let program = compile(&directory, file, &format!("{HEAD}{source}"), flags);
    record(&directory, &program, arguments, &["--no-larder"])
}

pub fn diff_json(traces: &[&Path], options: &[&str]) -> Value {
    let found = output(
        larder()
            .arg("diff")
            .args(traces)
            .arg("--json")
            .args(options),
    );
    assert_success(&found);
    serde_json::from_slice(&found.stdout).expect("JSON")
}

pub fn diff_text(traces: &[&Path], options: &[&str]) -> String {
    let found = output(larder().arg("diff").args(traces).args(options));
    assert_success(&found);
    stdout(&found)
}
