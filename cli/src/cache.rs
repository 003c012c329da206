//! Where the tool keeps what it would otherwise make again.

use std::env;
use std::path::{Path, PathBuf};

/// $XDG_CACHE_HOME, else ~/.cache; `None` without both.
pub fn directory() -> Option<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")))
}
