//! Checks that a workload runs on the allocator that its row names: in a trial run, the dynamic loader's
//! log must show that every process that binds `malloc`, children included, binds it to the allocator's
//! file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_base::failure::{Fatal, Result};
use larder_base::printable;
use object::{Object, ObjectSymbol};

use super::allocators::Allocator;
use super::manifest::{Preload, Workload, in_path};
use super::process::{Ended, Runner, Settings};
use super::results::Outcome;

/// The log of the program that starts the command, which is not part of the workload.
const STARTER: &[u8] = b"/larder-measure [0]";
const SYMBOL: &[u8] = b"`malloc'";

/// Why a run proves nothing about an allocator.
#[derive(Debug, thiserror::Error)]
enum LoadedError {
    #[error(
        "{workload} on {allocator}: no process bound malloc to {}: the program is static, or has a \
         malloc of its own: leave the workload out with --only, or the allocator with --allocators",
        printable::name(library)
    )]
    NotBound {
        workload: String,
        allocator: String,
        library: PathBuf,
    },
    #[error(
        "{workload} on {allocator}: {} takes malloc from {}, not from {}: the library does not \
         define malloc or could not be preloaded; it is no peer here",
        printable::name(user),
        printable::name(owner),
        printable::name(library)
    )]
    OtherMalloc {
        workload: String,
        allocator: String,
        user: PathBuf,
        owner: PathBuf,
        library: PathBuf,
    },
    #[error(
        "{}: {}: look at $TMPDIR and its free space",
        printable::name(folder),
        larder_base::target::reason(source)
    )]
    Log { folder: PathBuf, source: io::Error },
}

impl Fatal for LoadedError {}

/// One line `binding file USER [0] to OWNER [0]: normal symbol `malloc'`.
#[derive(Debug, PartialEq)]
struct Binding {
    user: PathBuf,
    owner: PathBuf,
}

/// Runs the workload once under the loader's log. A crash of the workload is an outcome; another malloc
/// is an error, which stops the comparison.
pub fn check(
    runner: &Runner,
    workload: &Workload,
    allocator: &Allocator,
    scale: f64,
) -> Result<Ended> {
    let folder = runner.folder()?;
    let ended = runner.run(
        workload,
        allocator,
        &Settings {
            scale,
            copies: false,
            environment: vec![
                ("LD_DEBUG", "bindings".into()),
                ("LD_DEBUG_OUTPUT", folder.join("log").into()),
                ("LD_BIND_NOW", "1".into()),
            ],
        },
    )?;
    let bound = examine(&folder, workload, allocator);
    let _ = fs::remove_dir_all(&folder);
    match (&ended, bound?) {
        (Ended::With(Outcome::Figures(_)), 0) => Err(LoadedError::NotBound {
            workload: workload.name.clone(),
            allocator: allocator.name.clone(),
            library: allocator.library.clone(),
        }
        .into()),
        _ => Ok(ended),
    }
}

/// The number of bindings to the allocator.
fn examine(
    folder: &Path,
    workload: &Workload,
    allocator: &Allocator,
) -> std::result::Result<usize, LoadedError> {
    let unreadable = |source| LoadedError::Log {
        folder: folder.to_owned(),
        source,
    };
    let mut bound = 0;
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let log = read_log(&entry.map_err(unreadable)?.path()).map_err(unreadable)?;
        bound += judge(&log, workload, allocator)?;
    }
    Ok(bound)
}

/// Every binding of malloc in one process; none for the starter.
fn read_log(path: &Path) -> io::Result<Vec<Binding>> {
    let mut bindings = Vec::new();
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if find(&line, STARTER).is_some() {
            return Ok(Vec::new());
        }
        bindings.extend(parse(&line));
        line.clear();
    }
    Ok(bindings)
}

fn judge(
    bindings: &[Binding],
    workload: &Workload,
    allocator: &Allocator,
) -> std::result::Result<usize, LoadedError> {
    let is_it = |path: &Path| {
        path == allocator.library || path.canonicalize().is_ok_and(|p| p == allocator.library)
    };
    let from_it = bindings.iter().filter(|b| is_it(&b.owner)).count();
    // An inner preload does not reach the load generator and the like.
    if workload.preload == Preload::Inner && from_it == 0 {
        return Ok(0);
    }
    let stranger = |b: &&Binding| !is_it(&b.owner) && defines_malloc(&b.owner);
    match bindings.iter().find(stranger) {
        None => Ok(from_it),
        Some(other) => Err(LoadedError::OtherMalloc {
            workload: workload.name.clone(),
            allocator: allocator.name.clone(),
            user: other.user.clone(),
            owner: other.owner.clone(),
            library: allocator.library.clone(),
        }),
    }
}

/// In an executable that is not position-independent and takes malloc's address, malloc has an address
/// in the executable's procedure linkage table. Others bind to that; the table leads to the definition.
fn defines_malloc(file: &Path) -> bool {
    // The log has the name with which the program was started.
    let Some(data) = in_path(file).and_then(|file| fs::read(file).ok()) else {
        return true;
    };
    let Ok(object) = object::File::parse(&*data) else {
        return true;
    };
    let mut named = object
        .dynamic_symbols()
        .filter(|s| s.name() == Ok("malloc"));
    !named.all(|symbol| symbol.is_undefined())
}

fn parse(line: &[u8]) -> Option<Binding> {
    let end = find(line, b"]: normal symbol ")?;
    if !line[end..]
        .strip_prefix(b"]: normal symbol ")?
        .starts_with(SYMBOL)
    {
        return None;
    }
    let start = find(line, b"binding file ")? + b"binding file ".len();
    let files = line.get(start..end)?;
    let middle = find(files, b"] to ")?;
    let file = |text: &[u8]| {
        let space = text
            .iter()
            .rposition(|byte| *byte == b'[')?
            .checked_sub(1)?;
        Some(PathBuf::from(OsStr::from_bytes(&text[..space])))
    };
    Some(Binding {
        user: file(&files[..middle])?,
        owner: file(&files[middle + b"] to ".len()..])?,
    })
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"     12:\tbinding file /my app [0] to /lib/l.so [0]: normal symbol `malloc' [GLIBC_2.2.5]\n";

    #[test]
    fn a_binding_of_malloc_is_read() {
        assert_eq!(
            parse(LINE),
            Some(Binding {
                user: "/my app".into(),
                owner: "/lib/l.so".into()
            })
        );
    }

    #[test]
    fn other_symbols_are_passed_over() {
        let text = String::from_utf8_lossy(LINE).into_owned();
        for other in ["`malloc_usable_size'", "`free'"] {
            assert_eq!(parse(text.replace("`malloc'", other).as_bytes()), None);
        }
        assert_eq!(parse(b"     12:\tnothing of the kind\n"), None);
        assert_eq!(parse(b"]: normal symbol `malloc'"), None);
    }

    #[test]
    fn the_starters_log_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.1");
        fs::write(&path, LINE).unwrap();
        assert_eq!(read_log(&path).unwrap().len(), 1);
        let mut text = LINE.to_vec();
        text.extend(b" 12:\tbinding file /b/larder-measure [0] to /libc [0]: normal symbol `f'\n");
        fs::write(&path, text).unwrap();
        assert_eq!(read_log(&path).unwrap(), []);
    }

    fn workload(preload: Preload) -> Workload {
        let text = "name = 'w'\ngroup = 'own'\nwhat = ''\ncommand = ['w']\n";
        let mut workload: Workload = toml::from_str(text).unwrap();
        workload.preload = preload;
        workload
    }

    #[test]
    fn the_c_library_defines_malloc_and_this_program_does_not() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps
            .lines()
            .find(|line| line.ends_with("/libc.so.6"))
            .unwrap();
        let libc = &libc[libc.find('/').unwrap()..];
        assert!(defines_malloc(Path::new(libc)));
        assert!(!defines_malloc(&std::env::current_exe().unwrap()));
    }

    #[test]
    fn one_process_with_another_malloc_stops_the_comparison() {
        let allocator = Allocator {
            name: "a".to_owned(),
            library: "/a.so".into(),
            ..Allocator::default()
        };
        let bind = |owner: &str| Binding {
            user: "/w".into(),
            owner: owner.into(),
        };
        let whole = workload(Preload::Whole);
        assert_eq!(judge(&[bind("/a.so")], &whole, &allocator).unwrap(), 1);
        let mixed = [bind("/a.so"), bind("/b.so")];
        let error = judge(&mixed, &whole, &allocator).unwrap_err();
        let LoadedError::OtherMalloc { owner, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(owner, Path::new("/b.so"));
        let inner = workload(Preload::Inner);
        assert_eq!(judge(&[bind("/b.so")], &inner, &allocator).unwrap(), 0);
        assert!(judge(&mixed, &inner, &allocator).is_err());
    }
}
