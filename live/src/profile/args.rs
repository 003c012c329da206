//! The command line of `larder profile`, and its check.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use larder_analysis::reading::lookup::{RawDebuginfod, RawSource};
use larder_analysis::reading::measure::Measure;
use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::subject::RawCharging;
use larder_analysis::view;
use larder_base::failure::Result;
use larder_base::format::{self, Format};

use crate::error::LiveError;

pub const EXAMPLES: &str = "\
Examples:
  larder profile -- ./server --once
      Run it on Larder; at its end, show the source lines that hold memory.
  larder profile heap.4711 --sort allocated --top 20
      A profile that Larder (LARDER_PROFILE=heap.%p), gperftools or jemalloc has written.
  larder profile heap.4711 --base heap.4700
      What has grown from one to the other, and whether that is significant.
  larder profile 4711
      A running process on Larder. It is not stopped.
  larder profile 4711 --seconds 10
      What it allocates in ten seconds, how long that lives, and what grows.
  larder profile 4711 --growing --seconds 60
      Possible leaks: the sites that grow in each of three minutes.
  larder profile heap.4711 -o heap.svg
      A flame graph; heap.pb.gz is for pprof, heap.folded and heap.speedscope.json for others.

Exit codes: 0; with -- the command's own; with --growing 1 if a site grows; 125 the
tool failed; 126 the command cannot be executed or reached; 127 the command was not found.";

#[derive(Debug, Args)]
pub struct RawProfile {
    /// A process, or a heap profile (./4711 if its name is a number)
    #[arg(value_name = "PID|FILE", required_unless_present = "command")]
    #[arg(conflicts_with = "command")]
    subject: Option<PathBuf>,
    /// What sites are ranked by, and what the widths of a flame graph stand for
    #[arg(long, value_enum, value_name = "KEY")]
    sort: Option<Key>,
    /// Sites in a ranking, 0 for all [default: 10; with --json all]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top: Option<usize>,
    /// Show the growth since this profile, of the same process or of another run
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Take two snapshots of a process, N seconds apart, and show what happened in between
    #[arg(long, value_name = "N", conflicts_with_all = ["base", "command"])]
    #[arg(value_parser = seconds)]
    seconds: Option<Duration>,
    /// Name the sites of a process that grow in each of N intervals of --seconds [default: 3 of 10]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "3", conflicts_with_all = ["base", "command", "sort"])]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=100))]
    growing: Option<u32>,
    /// The format of the output [default: by the name of the output; text]
    #[arg(long, value_name = "FORMAT", value_parser = format::among(&MADE))]
    format: Option<Format>,
    /// The file to write, in the format of its ending; an existing one is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Mean bytes between two samples of what the command allocates; 1 samples every object
    #[arg(long, value_name = "BYTES", requires = "command")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    mean: Option<u64>,
    #[command(flatten)]
    charging: RawCharging,
    #[command(flatten)]
    debuginfod: RawDebuginfod,
    #[command(flatten)]
    source: RawSource,
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
    /// Growth of the bytes in use since the base, or since the last mark
    Growth,
    /// Bytes in use at the process's peak
    Peak,
    /// Objects freed so far, with their lifetimes
    Lifetimes,
}

impl Key {
    /// What exports and pictures show for it; `None`: nothing.
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

const MADE: [Format; 7] = [
    Format::Svg,
    Format::Pprof,
    Format::Collapsed,
    Format::Speedscope,
    Format::Json,
    Format::Heap,
    Format::Text,
];

/// Which snapshots are taken of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Once,
    /// Two, this far apart.
    For(Duration),
    /// `intervals` + 1.
    Growing {
        intervals: u32,
        each: Duration,
    },
}

impl Watch {
    /// The number of snapshots, and the time between two.
    pub fn readings(self) -> (u32, Duration) {
        match self {
            Watch::Once => (1, Duration::ZERO),
            Watch::For(length) => (2, length),
            Watch::Growing { intervals, each } => (intervals + 1, each),
        }
    }
}

/// Between two snapshots of --growing.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let value = text
        .parse::<f64>()
        .ok()
        .filter(|value| (0.001..=1e7).contains(value));
    let value = value.ok_or("give 0.001 to 10000000 seconds")?;
    Ok(Duration::from_secs_f64(value))
}

#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Process {
        id: u32,
        watch: Watch,
    },
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
    pub charging: Charging,
    /// `None`: the default of the format; `Some(0)`: all.
    pub top: Option<usize>,
    pub format: Format,
    pub output: Option<PathBuf>,
}

impl RawProfile {
    pub fn check(self) -> Result<ProfilePlan> {
        let id = self.subject.as_ref().and_then(|name| process_id(name));
        let source = match self.subject {
            Some(file) => match id {
                Some(id) => Source::Process {
                    id,
                    watch: match (self.growing, self.seconds) {
                        (None, None) => Watch::Once,
                        (None, Some(length)) => Watch::For(length),
                        (Some(intervals), each) => Watch::Growing {
                            intervals,
                            each: each.unwrap_or(DEFAULT_INTERVAL),
                        },
                    },
                },
                None if self.seconds.is_some() || self.growing.is_some() => {
                    return Err(LiveError::NoProcess(file).into());
                }
                None => Source::File(file),
            },
            None => Source::Command {
                words: self.command,
                mean: self.mean,
            },
        };
        let format = format::of_output(self.format, self.json, self.output.as_deref(), &MADE)?;
        let has_interval =
            matches!(&source, Source::Process { watch, .. } if *watch != Watch::Once);
        let whole = matches!(format, Format::Text | Format::Json);
        if let (Some(_), false) = (self.growing, whole) {
            let wrong = "--growing: names sites: choose --format text or json";
            return Err(LiveError::Usage(wrong).into());
        }
        if has_interval && format == Format::Heap {
            return Err(LiveError::Usage(
                "--seconds: a heap profile describes one moment: leave it out, or choose another --format",
            )
            .into());
        }
        let draws = matches!(format, Format::Svg | Format::Collapsed);
        if let (true, Some(None)) = (draws, self.sort.map(Key::measure)) {
            return Err(LiveError::Usage(
                "--sort: no picture can show this key: choose in-use, objects, allocated or \
                 peak; with --base a flame graph shows the growth",
            )
            .into());
        }
        let mut charging = self.charging.check()?;
        self.debuginfod.check(&mut charging.lookup)?;
        if whole {
            self.source.check(&mut charging.lookup)?;
        } else {
            view::refuse(&self.source.given())?;
        }
        Ok(ProfilePlan {
            source,
            base: self.base,
            sort: self.sort,
            charging,
            top: self.top,
            format,
            output: self.output,
        })
    }
}

fn process_id(name: &Path) -> Option<u32> {
    let text = name.to_str()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_base::format::FormatCause;

    #[test]
    fn a_number_is_a_process() {
        let id = |name: &str| process_id(Path::new(name));
        assert_eq!(id("4711"), Some(4711));
        for name in ["./4711", "+1", "", "heap.1", "99999999999"] {
            assert_eq!(id(name), None, "{name}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e99", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_of_the_output_decides_the_format() {
        let of = |name: &str| format::of_output(None, false, Some(Path::new(name)), &MADE);
        assert_eq!(of("a/heap.svg").unwrap(), Format::Svg);
        assert_eq!(of("heap.pb.gz").unwrap(), Format::Pprof);
        assert_eq!(of("heap.speedscope.json").unwrap(), Format::Speedscope);
        assert_eq!(of("heap.json").unwrap(), Format::Json);
        assert_eq!(of("heap").unwrap_err().cause, FormatCause::Unnamed);
        let said = format::of_output(Some(Format::Heap), false, Some(Path::new("x.svg")), &MADE);
        assert_eq!(said.unwrap(), Format::Heap);
    }
}
