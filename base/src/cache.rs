//! Where the tool keeps what it would otherwise make again.

use std::env;
use std::path::{Path, PathBuf};

/// Where the peers are, if not in the cache.
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
