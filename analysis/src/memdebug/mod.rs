//! `larder memdebug`: analyses the log of a debug build like curl's own analyser, and further.
//!
//! The log is hostile input; `larder_memdebug` reads and counts, `log` is its file, `print` shows.
//! Memory grows with the log's distinct addresses and source lines, not with its length.

mod args;
pub mod log;
mod print;

use std::io::{self, Write};

use larder_base::failure::Result;
use larder_base::output;
use larder_base::printable;
use larder_memdebug::line::{Call, Line};
use larder_memdebug::{Analyser, Message};

use args::Show;
pub use args::{EXAMPLES, MemdebugPlan, RawMemdebug};
use log::{Damage, Log};

/// Messages that JSON lists; further ones are counted.
const MESSAGES_LISTED: u64 = 10_000;

/// Prints the requested output; the exit code.
pub fn memdebug(plan: &MemdebugPlan) -> Result<u8> {
    let log = Log::open(&plan.log)?;
    match plan.show {
        Show::Limit => limit(log),
        Show::Json => json(log, plan),
        Show::Messages | Show::Counters | Show::CountersAndSites => text(log, plan),
    }
}

/// A log that was read, and the number of its messages.
struct Read {
    analyser: Analyser,
    damage: Damage,
    messages: u64,
}

/// Reads the whole log; `tell` is called for each message in curl's wording, escaped.
fn read(log: Log, plan: &MemdebugPlan, mut tell: impl FnMut(&str)) -> Result<Read> {
    let mut analyser = Analyser::default();
    let mut messages = 0;
    let mut bytes = Vec::new();
    let mut tell = |message: Message<'_>| {
        messages += 1;
        bytes.clear();
        // Writing to a vector cannot fail.
        let _ = message.write(plan.style, &mut bytes);
        for line in bytes
            .strip_suffix(b"\n")
            .unwrap_or(&bytes)
            .split(|&byte| byte == b'\n')
        {
            tell(&printable::escape_bytes(line));
        }
    };
    let damage = log.read(|line| {
        analyser.line(line.bytes, &mut tell);
        true
    })?;
    analyser.finish(&mut tell);
    if let Some(warning) = damage.summary(&plan.log) {
        // A closed stderr is no error.
        let _ = writeln!(io::stderr(), "larder: warning: {warning}");
    }
    Ok(Read {
        analyser,
        damage,
        messages,
    })
}

fn text(log: Log, plan: &MemdebugPlan) -> Result<u8> {
    let mut out = Output::new();
    let read = read(log, plan, |line| out.write(|out| writeln!(out, "{line}")))?;
    if plan.show != Show::Messages {
        out.write(|out| read.analyser.counters.write(plan.style, out));
    }
    if plan.show == Show::CountersAndSites {
        out.write(|out| print::sites(read.analyser.sites(), plan, out));
    }
    out.finish()?;
    Ok(u8::from(read.messages > 0))
}

fn json(log: Log, plan: &MemdebugPlan) -> Result<u8> {
    let mut listed = Vec::new();
    let mut lines = 0u64;
    let read = read(log, plan, |line| {
        lines += 1;
        if lines <= MESSAGES_LISTED {
            listed.push(line.to_owned());
        }
    })?;
    let document = print::document(&read, listed, plan);
    let mut out = Output::new();
    out.write(|out| output::write_json(&document, out));
    out.finish()?;
    Ok(u8::from(read.messages > 0))
}

fn limit(log: Log) -> Result<u8> {
    let mut found = None;
    log.read(|line| {
        let parsed = Line::parse(line.bytes);
        if parsed.is_ok_and(|line| line.call == Call::Limit) {
            found = Some(printable::escape_bytes(line.bytes));
        }
        found.is_none()
    })?;
    let mut out = Output::new();
    out.write(|out| found.iter().try_for_each(|line| writeln!(out, "{line}")));
    out.finish()?;
    Ok(0)
}

/// Standard output: after the first error nothing more is written.
struct Output {
    out: io::BufWriter<io::StdoutLock<'static>>,
    result: io::Result<()>,
}

impl Output {
    fn new() -> Self {
        Self {
            out: io::BufWriter::with_capacity(64 << 10, io::stdout().lock()),
            result: Ok(()),
        }
    }

    fn write(&mut self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.result.is_ok() {
            self.result = print(&mut self.out);
        }
    }

    fn finish(mut self) -> Result<()> {
        output::still_read(self.result.and_then(|()| self.out.flush()))?;
        Ok(())
    }
}
