//! A memory-debug log as a file: opened, read line by line with a progress bar, checked for damage.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use larder_base::printable;
use larder_memdebug::lines::{Ending, looks_like_a_log};
use larder_memdebug::{Lines, RawLine};

use crate::error::AnalysisError;

/// Smaller logs are read before a user would see a bar.
const PROGRESS_FROM_BYTES: u64 = 64 << 20;
/// Lines between two updates of the bar.
const PROGRESS_STEP: u64 = 1 << 16;

pub struct Log {
    lines: Lines<Box<dyn Read>>,
    /// For messages.
    name: String,
    bar: ProgressBar,
}

/// The damage of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The last line has no newline: it begins here and is left out.
    pub cut_at: Option<u64>,
    /// Lines of the length at which curl cuts them.
    pub long_lines: u64,
}

impl Log {
    /// Refuses a file that does not begin with a line of a log; an empty file is a log.
    pub fn open(path: &Path) -> Result<Self> {
        let name = printable::name(path);
        let failed = |error| unreadable(&name, error);
        let (source, length): (Box<dyn Read>, u64) = if path == Path::new("-") {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            (Box::new(file), length)
        };
        let mut lines = Lines::new(source);
        if !looks_like_a_log(lines.peek().map_err(failed)?) {
            let lack = format!(
                "not a memory-debug log: write one with CURL_MEMDEBUG={name} and a debug build of curl"
            );
            return Err(AnalysisError::unfit(path, lack).into());
        }
        Ok(Self {
            lines,
            bar: progress_bar(length),
            name,
        })
    }

    /// Calls `take` with every whole line, until it returns false.
    pub fn read(mut self, mut take: impl FnMut(&RawLine<'_>) -> bool) -> Result<Damage> {
        let mut damage = Damage::default();
        loop {
            let offset = self.lines.offset();
            let line = self.lines.next();
            let Some(line) = line.map_err(|error| unreadable(&self.name, error))? else {
                break;
            };
            if line.number.is_multiple_of(PROGRESS_STEP) {
                self.bar.set_position(offset);
            }
            match line.ending {
                Ending::EndOfLog => {
                    damage.cut_at = Some(line.offset);
                    break;
                }
                Ending::TooLong => damage.long_lines += 1,
                Ending::Newline => {}
            }
            if !take(&line) {
                break;
            }
        }
        self.bar.finish_and_clear();
        Ok(damage)
    }
}

impl Damage {
    /// One line of text; `None` if the log is whole.
    pub fn summary(&self, log: &Path) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(offset) = self.cut_at {
            parts.push(format!(
                "it ends in the middle of a line, at offset {offset}, which is left out; \
                 later lines are missing"
            ));
        }
        if self.long_lines > 0 {
            parts.push(format!(
                "{} cut at 1023 bytes",
                larder_base::number::counted(self.long_lines, "line")
            ));
        }
        (!parts.is_empty()).then(|| format!("{}: {}", printable::name(log), parts.join("; ")))
    }
}

fn unreadable(name: &str, error: io::Error) -> BaseError {
    system(name, "name a readable log")(error)
}

fn progress_bar(bytes: u64) -> ProgressBar {
    if bytes < PROGRESS_FROM_BYTES || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("reading {wide_bar} {percent:>3} %  {eta} left");
    let bar = ProgressBar::new(bytes);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
