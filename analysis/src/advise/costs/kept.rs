//! Stored tables of allocators' costs, so that advice on a trace is the same every time:
//! `malloc-costs-KEY.txt` in the cache directory, one for each library and processor, which its first
//! lines name.
//!
//! A file that other users could have written, or that differs from `Table`'s form, is ignored. Files
//! are replaced whole. If two runs measure at once, the first table is stored and both use it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larder_base::machine;
use larder_base::{cache, printable};
use sha2::{Digest, Sha256};

use super::table::Table;
use crate::symbols::{ElfFile, hex};

/// A debug build measures its own slow loop, too, so it has its own tables.
const FORMAT: &str = if cfg!(debug_assertions) {
    "larder malloc costs 1, debug build"
} else {
    "larder malloc costs 1"
};
/// A table is shorter than this.
const MOST_BYTES: u64 = 64 << 10;

/// The table of this library on this machine: the stored one, else the result of `measure`.
pub fn table(library: &Path, measure: impl FnOnce() -> Option<Table>) -> Option<Table> {
    let directory = cache::directory().filter(|directory| directory.is_absolute());
    let head = head(library);
    let (Some(directory), Some(head)) = (directory, head) else {
        return measure();
    };
    let key = hex(&Sha256::digest(head.as_bytes())[..8]);
    let name = format!("malloc-costs-{key}.txt");
    in_file(&directory.join("larder").join(name), &head, measure)
}

/// The key of a table: the library, by its build id if it has one, and the processor.
fn head(library: &Path) -> Option<String> {
    let build_id = ElfFile::open(library).map_or_else(Vec::new, |file| file.build_id());
    let identity = if build_id.is_empty() {
        let file = fs::metadata(library).ok()?;
        let (seconds, nanoseconds) = (file.mtime(), file.mtime_nsec());
        let path = printable::name(library);
        format!(
            "{path} of {} bytes, changed at {seconds}.{nanoseconds:09}",
            file.len()
        )
    } else {
        format!("build-id {}", hex(&build_id))
    };
    let processor = printable::escape(&machine::processor()).into_owned();
    Some(format!(
        "{FORMAT}\nlibrary {identity}\nprocessor {processor}\n"
    ))
}

fn in_file(path: &Path, head: &str, measure: impl FnOnce() -> Option<Table>) -> Option<Table> {
    if let Some(kept) = read(path, head) {
        return Some(kept);
    }
    let measured = measure()?;
    // Without a cache directory it measures each time.
    let _ = write(path, head, &measured);
    Some(read(path, head).unwrap_or(measured))
}

fn read(path: &Path, head: &str) -> Option<Table> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if !metadata.is_file() || !own || metadata.len() > MOST_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Table::parse(text.strip_prefix(head)?)
}

/// Does not replace a valid table of another run.
fn write(path: &Path, head: &str, table: &Table) -> io::Result<()> {
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    // Mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(".larder-")
        .tempfile_in(&folder)?;
    write!(file, "{head}{table}")?;
    match file.persist_noclobber(path) {
        Err(refused) if read(path, head).is_none() => refused
            .file
            .persist(path)
            .map(drop)
            .map_err(|error| error.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::made;
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const HEAD: &str = "larder malloc costs 1\nlibrary x\nprocessor y\n";

    fn slower() -> Table {
        let mut table = made();
        table.pair_ns[0] = 99.0;
        table
    }

    fn ask(path: &Path, measured: Table) -> Table {
        in_file(path, HEAD, || Some(measured)).unwrap()
    }

    #[test]
    fn what_was_measured_first_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/larder/malloc-costs-0.txt");
        assert_eq!(ask(&path, made()), made());
        assert_eq!(
            in_file(&path, HEAD, || panic!("measured again")),
            Some(made())
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // A run that began to measure before the other had written.
        write(&path, HEAD, &slower()).unwrap();
        assert_eq!(read(&path, HEAD), Some(made()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // A table of another machine.
        assert_eq!(read(&path, &HEAD.replace('y', "z")), None);
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("kept"), folder.path().join("other"));
        fs::write(&other, format!("{HEAD}{}", made())).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(ask(&path, slower()), slower());
        assert!(!path.is_symlink());
        assert_eq!(read(&other, HEAD), Some(made()));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(ask(&path, made()), made());
        fs::write(&path, vec![b'x'; 100 << 10]).unwrap();
        assert_eq!(ask(&path, slower()), slower());
        fs::write(&path, format!("{HEAD}pair_ns 16:nothing\n")).unwrap();
        assert_eq!(ask(&path, made()), made());
        assert_eq!(read(&path, HEAD), Some(made()));
    }

    #[test]
    fn without_a_place_it_is_measured_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(ask(&file.join("kept"), made()), made());
        assert_eq!(ask(&file.join("kept"), slower()), slower());
        fs::create_dir(folder.path().join("directory")).unwrap();
        assert_eq!(ask(&folder.path().join("directory"), slower()), slower());
    }

    #[test]
    fn a_library_is_known_by_its_build_id_or_else_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lib.so");
        assert_eq!(head(&file), None);
        fs::write(&file, "not ELF").unwrap();
        let before = head(&file).unwrap();
        assert!(before.contains("7 bytes"), "{before}");
        fs::write(&file, "longer now").unwrap();
        assert_ne!(head(&file).unwrap(), before);
        assert!(before.lines().count() == 3 && before.ends_with('\n'));
    }
}
