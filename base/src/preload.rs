//! The value of LD_PRELOAD: the libraries in order, then the caller's own.
//!
//! The loader splits LD_PRELOAD at spaces and colons and expands `$` tokens, and nothing can be quoted. A
//! library whose path has such a byte is preloaded through a link in a private directory. The link, one a
//! library, stays after the command has ended, because the command's children need it, too.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::error::BaseError;
use crate::failure::Result;

pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// The variable with the recorder's trace folder.
pub const TRACE_DIRECTORY_VARIABLE: &str = "LARDER_TRACE_DIR";

/// The allocator for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocator {
    Larder,
    /// The one that the program is linked with.
    Own,
    Other(PathBuf),
}

/// Joins `libraries` and the caller's own LD_PRELOAD.
pub fn preload_value(libraries: &[PathBuf]) -> Result<OsString> {
    let libraries = libraries
        .iter()
        .map(|library| loadable_path(library))
        .collect::<Result<Vec<_>>>()?;
    let inherited = env::var_os(PRELOAD_VARIABLE).unwrap_or_default();
    Ok(join(&libraries, &inherited))
}

/// An inherited recorder stays first, because calls of libraries before it are not recorded. A library
/// that is inherited and also in `libraries` appears once.
fn join(libraries: &[PathBuf], inherited: &OsStr) -> OsString {
    let inherited = inherited
        .as_bytes()
        .split(|byte| byte.is_ascii_whitespace() || *byte == b':')
        .filter(|word| !word.is_empty())
        .map(|word| Path::new(OsStr::from_bytes(word)));
    let (recorders, others): (Vec<&Path>, Vec<&Path>) =
        inherited.partition(|path| is_recorder(path));
    let own_recorder = libraries.iter().any(|library| is_recorder(library));
    let first = recorders.into_iter().take(usize::from(!own_recorder));
    let same = |a: &Path, b: &Path| {
        a == b
            || a.canonicalize()
                .is_ok_and(|a| Some(a) == b.canonicalize().ok())
    };
    let rest = others
        .into_iter()
        .filter(|path| !libraries.iter().any(|library| same(path, library)));
    let all = first
        .chain(libraries.iter().map(PathBuf::as_path))
        .chain(rest);
    let all: Vec<&OsStr> = all.map(Path::as_os_str).collect();
    all.join(OsStr::new(":"))
}

/// The recorder, or the link to it that `link_in` made.
fn is_recorder(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.strip_prefix(b"liblarder_record")
        .is_some_and(|rest| rest == b".so" || rest.starts_with(b"-") && rest.ends_with(b".so"))
}

/// `library` itself, or a link to it whose path LD_PRELOAD can contain.
pub fn loadable_path(library: &Path) -> Result<PathBuf> {
    if is_loadable(library.as_os_str()) {
        return Ok(library.to_owned());
    }
    link_directories()
        .into_iter()
        .filter(|directory| is_loadable(directory.as_os_str()))
        .find_map(|directory| link_in(&directory, library).ok())
        .ok_or_else(|| {
            let library = library.to_owned();
            BaseError::NotLoadable { library }.into()
        })
}

fn is_loadable(path: &OsStr) -> bool {
    !path
        .as_bytes()
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b'$'))
}

fn link_directories() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let name = format!("larder-{user}");
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| directory.is_absolute());
    runtime
        .into_iter()
        .chain([PathBuf::from("/tmp")])
        .map(|root| root.join(&name))
        .collect()
}

/// Makes, or finds from an earlier run, the link to `library` in the private `directory`.
fn link_in(directory: &Path, library: &Path) -> io::Result<PathBuf> {
    private_directory(directory)?;
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let stem = library
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let stem: String = stem
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    let link = directory.join(format!("{stem}-{:016x}.so", hasher.finish()));
    match symlink(library, &link) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(&link)? != library {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    }
    Ok(link)
}

/// A directory that belongs to this user and that no other user can write to: the loader runs its files.
fn private_directory(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    let own = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & 0o077 == 0;
    if own {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_paths_that_the_loader_does_not_cut_are_used_directly() {
        assert!(is_loadable(OsStr::new("/usr/lib/liblarder.so")));
        for path in ["/a b/l.so", "/a:b/l.so", "/$ORIGIN/l.so", "/a\tb/l.so"] {
            assert!(!is_loadable(OsStr::new(path)), "{path}");
        }
        assert!(is_loadable(OsStr::from_bytes(b"/\xff/l.so")));
    }

    #[test]
    fn an_inherited_recorder_stays_first_and_nothing_is_there_twice() {
        let join = |libraries: &[&str], inherited: &str| {
            let libraries: Vec<PathBuf> = libraries.iter().map(PathBuf::from).collect();
            join(&libraries, OsStr::new(inherited))
                .into_string()
                .unwrap()
        };
        let (recorder, larder) = ("/l/liblarder_record.so", "/l/liblarder.so");
        assert_eq!(join(&[larder], ""), larder);
        assert_eq!(
            join(&[larder], "/x.so /y.so"),
            "/l/liblarder.so:/x.so:/y.so"
        );
        assert_eq!(
            join(&[larder], "/x.so:/l/liblarder_record.so:/l/liblarder.so"),
            "/l/liblarder_record.so:/l/liblarder.so:/x.so"
        );
        assert_eq!(
            join(&[larder], "/tmp/larder-0/liblarder_record-0123.so"),
            "/tmp/larder-0/liblarder_record-0123.so:/l/liblarder.so"
        );
        assert_eq!(
            join(
                &[recorder, larder],
                "/other/liblarder_record.so:/l/liblarder.so"
            ),
            "/l/liblarder_record.so:/l/liblarder.so"
        );
    }

    #[test]
    fn a_link_is_made_once_and_found_again() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("private");
        let library = Path::new("/with space/liblarder.so");
        let link = link_in(&directory, library).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), library);
        assert_eq!(link_in(&directory, library).unwrap(), link);
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_trusted() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("open");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(link_in(&directory, Path::new("/a b/l.so")).is_err());
    }
}
