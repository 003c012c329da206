//! The tool's cache folder.

use std::env;
use std::path::{Path, PathBuf};

/// The variable with the folder of the peers, if it is not in the cache.
pub const PEERS_VARIABLE: &str = "LARDER_PEERS";

/// $XDG_CACHE_HOME, else ~/.cache; `None` without both.
pub fn directory() -> Option<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")))
}

/// Where `make peers` puts what it builds.
pub fn peers() -> PathBuf {
    env::var_os(PEERS_VARIABLE)
        .filter(|value| !value.is_empty())
        .map_or_else(
            || directory().unwrap_or_default().join("larder/peers"),
            PathBuf::from,
        )
}
