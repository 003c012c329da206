//! The installed tree that the tool is part of: what lies at a known place from its own real path.

use std::env;
use std::path::PathBuf;

/// Where the programs that the tool starts are, if not in the tree around it.
pub const PROGRAMS_VARIABLE: &str = "LARDER_LIBEXEC";

/// `relative` to the prefix, if the tool's own path is known.
pub fn under_prefix(relative: &str) -> Option<PathBuf> {
    let tool = env::current_exe().and_then(|exe| exe.canonicalize()).ok()?;
    Some(tool.parent()?.parent()?.join(relative))
}

/// The folder of programs: `$LARDER_LIBEXEC`, or `libexec/larder` under the prefix.
pub fn programs() -> PathBuf {
    let given = env::var_os(PROGRAMS_VARIABLE).filter(|value| !value.is_empty());
    given
        .map(PathBuf::from)
        .or_else(|| under_prefix("libexec/larder"))
        .unwrap_or_default()
}
