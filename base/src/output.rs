//! The output of a command: stdout, or a file that is replaced atomically.

use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anstream::AutoStream;
use anstream::adapter::strip_bytes;
use serde::Serialize;

use crate::failure::{Fatal, Result};
use crate::number;
use crate::printable;
use crate::target::reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Text,
    /// Text; colours go only to a terminal.
    Coloured,
    /// Binary, so not for a terminal.
    Binary,
}

/// Why an output is not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error(
        "{}: {}: name another place with -o",
        printable::name(path),
        reason(source)
    )]
    File { path: PathBuf, source: io::Error },
    #[error("stdout cannot be written: {}: write to another place", reason(source))]
    Stdout { source: io::Error },
    #[error("this format is binary and stdout is a terminal: name a file with -o, or redirect it")]
    Terminal,
}

impl Fatal for OutputError {}

/// Writes to stdout, or to a file, which it replaces and names on stderr. A reader that has seen enough is no
/// error.
pub fn write(
    file: Option<&Path>,
    content: Content,
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    Ok(try_write(file, content, produce)?)
}

fn try_write(
    file: Option<&Path>,
    content: Content,
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> std::result::Result<(), OutputError> {
    let Some(path) = file else {
        return to_stdout(content, produce);
    };
    let written = match content {
        Content::Text | Content::Binary => to_file(path, produce),
        Content::Coloured => to_file(path, |out| {
            let mut coloured = Vec::new();
            produce(&mut coloured)?;
            out.write_all(&strip_bytes(&coloured).into_vec())
        }),
    };
    written.map_err(|source| OutputError::File {
        path: path.to_owned(),
        source,
    })?;
    say_written(path);
    Ok(())
}

/// Names on stderr a file that was written, and its size; of a device or pipe it says nothing.
pub fn say_written(path: &Path) {
    if let Some(file) = path.metadata().ok().filter(Metadata::is_file) {
        say(path, &format!("{} written", number::bytes(file.len())));
    }
}

/// A line on stderr about a file or folder. A closed stderr is no error.
pub fn say(path: &Path, what: &str) {
    let _ = writeln!(io::stderr(), "larder: {}: {what}", printable::name(path));
}

fn to_stdout(
    content: Content,
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> std::result::Result<(), OutputError> {
    refuse_terminal(None, content)?;
    let stdout = io::stdout().lock();
    let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(match content {
        Content::Coloured => Box::new(AutoStream::auto(stdout)),
        Content::Text | Content::Binary => Box::new(stdout),
    });
    still_read(produce(&mut out).and_then(|()| out.flush())).map(drop)
}

/// Whether what went to stdout found a reader; that it has seen enough is no error.
pub fn still_read(written: io::Result<()>) -> std::result::Result<bool, OutputError> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(OutputError::Stdout { source }),
    }
}

/// Writes indented JSON, in which names are safe for a terminal.
pub fn write_json(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_json::to_string_pretty(document)?;
    writeln!(out, "{}", printable::escape_json(&text))
}

/// Fails if binary content would go to a terminal: to be asked before the work begins.
pub fn refuse_terminal(
    file: Option<&Path>,
    content: Content,
) -> std::result::Result<(), OutputError> {
    if file.is_none() && content == Content::Binary && io::stdout().is_terminal() {
        return Err(OutputError::Terminal);
    }
    Ok(())
}

/// Replaces a file, which keeps its permissions, and writes to anything else; a link stays.
pub fn to_file(
    path: &Path,
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    // Renaming to /dev/stdout, if stdout is a file, would replace /dev/stdout itself.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let old = path.metadata().ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
        produce(&mut out)?;
        return out.flush();
    }
    let mut out = BufWriter::new(beside(path)?);
    produce(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    if let Some(old) = old {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// A temporary file in the folder of `path`, to be renamed to it.
pub fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), Path::to_owned);
    tempfile::Builder::new()
        .prefix(".larder-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_replaced_whole_or_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        let failed = try_write(Some(&path), Content::Text, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        let Err(OutputError::File { source, .. }) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        write(Some(&path), Content::Text, |out| out.write_all(b"after")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o664);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write(Some(&link), Content::Text, |out| out.write_all(b"after")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert!(link.is_symlink());
    }

    #[test]
    fn a_device_is_written_not_replaced() {
        write(Some(Path::new("/dev/null")), Content::Binary, |out| {
            out.write_all(b"x")
        })
        .unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let place = Path::new("/proc/no/such");
        let failed = try_write(Some(place), Content::Text, |_| Ok(()));
        assert!(
            matches!(&failed, Err(OutputError::File { path, .. }) if path == place),
            "{failed:?}"
        );
    }
}
