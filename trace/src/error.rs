//! Errors of a trace. `TraceError`: the whole trace cannot be read. `Damage`: a part of it cannot be read.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{}: {source}; check the path and its permissions", path.display())]
    Open {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: reading {length} bytes at offset {offset}: {source}", path.display())]
    Read {
        path: PathBuf,
        offset: u64,
        length: usize,
        source: std::io::Error,
    },
    #[error("{}: empty: the recorder wrote nothing into it; record the program again", path.display())]
    Empty { path: PathBuf },
    #[error("{}: cut at {length} bytes, before the end of its header; record the program again", path.display())]
    Short { path: PathBuf, length: u64 },
    #[error("{}: not a regular file; give a file or a folder that `larder record` wrote", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: not a trace: no trace mark at offset 0; give a file or a folder that `larder record` wrote", path.display())]
    NotATrace { path: PathBuf },
    #[error("{}: written in format {found}, and this tool reads format {known}; use the larder that recorded it, or a later one", path.display())]
    Version {
        path: PathBuf,
        found: u16,
        known: u16,
    },
    #[error("{}: header damaged at offset {offset}: {what}; record the program again", path.display())]
    Header {
        path: PathBuf,
        offset: u64,
        what: &'static str,
    },
    #[error("{}: holds no .ltrace file: nothing was recorded; was the program static, or did it clear its environment?", path.display())]
    NoFiles { path: PathBuf },
}

/// A part of a trace that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the file, in bytes from its start.
    pub offset: u64,
    /// How many bytes of the file were skipped.
    pub length: u64,
    /// The number of events in the part, if its header is readable.
    pub events: Option<u64>,
    pub cause: DamageCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageCause {
    #[error("no chunk begins here")]
    NoChunk,
    #[error("the chunk goes on past the end of the file")]
    CutChunk,
    #[error("the chunk's checksum does not match")]
    Checksum,
    #[error("the chunk does not decompress")]
    Decompress,
    #[error("a record in the chunk is malformed")]
    Record,
    #[error("a chunk of this kind is unknown")]
    UnknownKind,
    #[error("a chunk of this stream is missing")]
    MissingChunk,
    #[error("counters contradict themselves")]
    Counter,
    #[error("a call refers to a definition in a lost chunk")]
    LostDefinition,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {}: {}", self.offset, self.cause)?;
        if self.length > 0 {
            write!(f, ", {} bytes skipped", self.length)?;
        }
        match self.events {
            Some(events) => write!(f, ", {events} events lost"),
            None => Ok(()),
        }
    }
}
