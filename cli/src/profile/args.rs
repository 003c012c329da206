//! What is typed after `larder profile`, and the checked plan that comes of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::analysis::measure::Measure;
use crate::failure::{Failure, Result};
use crate::printable;

pub const EXAMPLES: &str = "\
Examples:
  larder profile -- ./server --once
      Run it on Larder; when it has ended, the source lines that hold memory.
  larder profile heap.4711 --sort allocated --top 20
      A profile that Larder (LARDER_PROFILE=heap.%p), gperftools or jemalloc has written.
  larder profile heap.4711 --base heap.4700
      What has grown from one to the other, and whether that is more than chance.
  larder profile heap.4711 -o heap.svg
      A flame graph; heap.pb.gz is for pprof, heap.folded and heap.speedscope.json for others.

Exit codes: 0; with -- the command's own; 125 the tool failed; 126 the command cannot be executed
or reached; 127 the command was not found.";

#[derive(Debug, Args)]
pub struct RawProfile {
    /// A heap profile
    #[arg(value_name = "FILE", required_unless_present = "command")]
    #[arg(conflicts_with = "command")]
    subject: Option<PathBuf>,
    /// What sites are ranked by, and what the widths of a flame graph stand for
    #[arg(long, value_enum, value_name = "KEY")]
    sort: Option<Key>,
    /// Sites in a ranking, 0 for all [default: 10; with --json all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show the growth since this profile, of the same process or of another run
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// What to make [default: by the name of the output; text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The file to write; what is there is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Sample one in so many bytes of what the command allocates, in the mean; 1 is every object
    #[arg(long, value_name = "BYTES", requires = "command")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    mean: Option<u64>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Key {
    /// Bytes in use
    InUse,
    /// Objects in use
    Objects,
    /// Bytes allocated so far
    Allocated,
    /// Bytes more in use than in the base, or than at the last mark
    Growth,
    /// Bytes in use when all that was in use was highest
    Peak,
    /// Objects freed so far, with how long they lived
    Lifetimes,
}

impl Key {
    /// The one of exports and pictures; `None`: they have none.
    pub fn measure(self) -> Option<Measure> {
        match self {
            Key::InUse => Some(Measure::LiveBytes),
            Key::Objects => Some(Measure::LiveBlocks),
            Key::Allocated => Some(Measure::Bytes),
            Key::Peak => Some(Measure::Peak),
            Key::Growth | Key::Lifetimes => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The sites, for people
    Text,
    /// The sites, for programs
    Json,
    /// A flame graph
    Svg,
    /// pprof's protocol buffer, compressed
    Pprof,
    /// Stacks with their bytes, a line each
    Collapsed,
    /// speedscope's JSON
    Speedscope,
    /// The heap profile itself, to be read again
    Heap,
}

impl Format {
    fn by_ending(path: &Path) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let ends = |ending: &str| name.ends_with(ending.as_bytes());
        Some(match () {
            () if ends(".svg") => Format::Svg,
            () if ends(".pb.gz") => Format::Pprof,
            () if ends(".folded") => Format::Collapsed,
            () if ends(".speedscope.json") => Format::Speedscope,
            () if ends(".json") => Format::Json,
            () if ends(".heap") => Format::Heap,
            () if ends(".txt") => Format::Text,
            () => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    /// At least one word.
    Command {
        words: Vec<OsString>,
        mean: Option<u64>,
    },
}

#[derive(Debug)]
pub struct ProfilePlan {
    pub source: Source,
    pub base: Option<PathBuf>,
    pub sort: Option<Key>,
    /// `None`: the default of the format; `Some(0)`: all.
    pub top: Option<usize>,
    pub format: Format,
    pub output: Option<PathBuf>,
}

impl RawProfile {
    pub fn check(self) -> Result<ProfilePlan> {
        let source = match self.subject {
            Some(file) => Source::File(file),
            None => Source::Command {
                words: self.command,
                mean: self.mean,
            },
        };
        let format = format(self.format, self.json, self.output.as_deref())?;
        let draws = matches!(format, Format::Svg | Format::Collapsed);
        if let (true, Some(None)) = (draws, self.sort.map(Key::measure)) {
            return Err(Failure::failed(
                "--sort: of this key no picture is drawn: choose in-use, objects, allocated or \
                 peak; with --base a flame graph shows the growth",
            ));
        }
        Ok(ProfilePlan {
            source,
            base: self.base,
            sort: self.sort,
            top: self.top,
            format,
            output: self.output,
        })
    }
}

fn format(format: Option<Format>, json: bool, output: Option<&Path>) -> Result<Format> {
    match (format, json, output) {
        (Some(format), ..) => Ok(format),
        (None, true, _) => Ok(Format::Json),
        (None, false, None) => Ok(Format::Text),
        (None, false, Some(path)) => Format::by_ending(path).ok_or_else(|| {
            let name = printable::name(path);
            Failure::failed(format!(
                "{name}: its name does not say what to make: end it in .svg, .pb.gz, .folded, \
                 .speedscope.json, .json, .heap or .txt, or give --format"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_output_says_what_to_make() {
        let of = |name: &str| format(None, false, Some(Path::new(name)));
        assert_eq!(of("a/heap.svg").unwrap(), Format::Svg);
        assert_eq!(of("heap.pb.gz").unwrap(), Format::Pprof);
        assert_eq!(of("heap.speedscope.json").unwrap(), Format::Speedscope);
        assert_eq!(of("heap.json").unwrap(), Format::Json);
        assert!(of("heap").unwrap_err().message.contains("--format"));
        let said = format(Some(Format::Heap), false, Some(Path::new("x.svg")));
        assert_eq!(said.unwrap(), Format::Heap);
    }
}
