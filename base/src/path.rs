//! Paths for other contexts: absolute, or quoted for a shell.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::BaseError;
use crate::failure::Result;
use crate::printable;

/// Quoted, so that a shell reads one word.
pub fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./+,:@%=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return printable::name(path);
    }
    let text = printable::name(path);
    if text.as_bytes() == bytes {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    // bash and zsh decode these escapes; otherwise only single quotes need one.
    format!("$'{}'", text.replace('\'', "\\'"))
}

pub fn absolute(path: &Path) -> Result<PathBuf> {
    let current = env::current_dir().map_err(BaseError::NoCurrentDirectory)?;
    Ok(current.join(path))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_report_line_can_be_pasted_into_a_shell() {
        assert_eq!(
            quoted(Path::new("./larder-ls-1.trace")),
            "./larder-ls-1.trace"
        );
        assert_eq!(quoted(Path::new("a b")), "'a b'");
        assert_eq!(quoted(Path::new("it's")), "'it'\\''s'");
        let bytes = OsStr::from_bytes(b"\xff x'");
        assert_eq!(quoted(Path::new(bytes)), "$'\\xff x\\''");
    }
}
