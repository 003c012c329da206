//! `larder profile`: what a heap profile says of each source line, and whether it is more than
//! chance.
//!
//! ```text
//! file ─> parse ─> heap ─┬─> sites (modules, attribution) ─> text, json
//! command ─> file        └─> export, flame graph
//! ```
//!
//! Profiles are hostile input. Memory grows with them, and with the symbols of the modules that
//! they name.

pub mod args;
mod command;
mod heap;
mod interval;
mod json;
mod modules;
mod parse;
mod rows;
mod sites;
mod text;
mod write;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anstream::adapter::strip_bytes;

pub use args::{EXAMPLES, ProfilePlan, RawProfile};

use crate::analysis::losses;
use crate::analysis::number::counted;
use crate::failure::{Failure, Result};
use crate::output::{self, Content};
use crate::printable;
use crate::regular::open_regular;
use args::{Format, Source};
use heap::HeapProfile;
use parse::NoProfile;
use sites::Profiled;

/// All that is printed.
struct Report<'a> {
    plan: &'a ProfilePlan,
    /// Of what, printable.
    title: String,
    profiles: Vec<HeapProfile>,
    profiled: Profiled,
}

/// Sites in a ranking of the text form, unless said otherwise.
const DEFAULT_TOP: usize = 10;

impl Report<'_> {
    fn top(&self) -> usize {
        match (self.plan.top, self.plan.format) {
            (Some(0), _) | (None, Format::Json) => usize::MAX,
            (Some(top), _) => top,
            (None, _) => DEFAULT_TOP,
        }
    }
}

/// The exit code: 0, or the command's own.
pub fn profile(plan: &ProfilePlan) -> Result<u8> {
    output::refuse_terminal(plan.output.as_deref(), content(plan.format))?;
    let base = plan.base.as_deref().map(|file| read(file).map(|p| vec![p]));
    let base = base.transpose()?;
    let (profiles, title, code) = match &plan.source {
        Source::File(file) => (vec![read(file)?], printable::name(file), 0),
        Source::Command { words, mean } => {
            let (profiles, code) = command::run(words, *mean)?;
            (profiles, printable::name(&words[0]), code)
        }
    };
    if plan.format == Format::Heap {
        write_again(plan, &profiles)?;
        return Ok(code);
    }
    let report = Report {
        plan,
        title,
        profiled: Profiled::new(&profiles, base.as_deref()),
        profiles,
    };
    print(&report)?;
    Ok(code)
}

fn content(format: Format) -> Content {
    match format {
        Format::Pprof => Content::Binary,
        _ => Content::Text,
    }
}

fn write_again(plan: &ProfilePlan, profiles: &[HeapProfile]) -> Result<()> {
    let [profile] = profiles else {
        return Err(Failure::failed(format!(
            "{} have written profiles, and a heap profile is of one: choose another --format",
            counted(profiles.len() as u64, "process")
        )));
    };
    output::write(plan.output.as_deref(), Content::Text, |out| {
        write::write(profile, out)
    })
}

fn print(report: &Report<'_>) -> Result<()> {
    let plan = report.plan;
    if let (Format::Text, None) = (plan.format, &plan.output) {
        let mut out = BufWriter::new(anstream::stdout().lock());
        return match text::print(report, &mut out).and_then(|()| out.flush()) {
            // Whoever reads us has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::failed(format!(
                    "the report cannot be written: {}",
                    crate::target::reason(&error)
                )))
            }
            _ => Ok(()),
        };
    }
    match plan.format {
        Format::Svg => rows::draw(report),
        Format::Pprof | Format::Collapsed | Format::Speedscope => rows::export(report),
        Format::Text | Format::Heap => {
            output::write(plan.output.as_deref(), Content::Text, |out| {
                let mut text = Vec::new();
                text::print(report, &mut text)?;
                out.write_all(&strip_bytes(&text).into_vec())
            })
        }
        Format::Json => output::write(plan.output.as_deref(), Content::Text, |out| {
            json::print(report, out)
        }),
    }
}

/// A profile; what of it could not be read is told on stderr.
fn read(path: &Path) -> Result<HeapProfile> {
    let name = printable::name(path);
    let bytes = open_regular(path).and_then(|mut file| {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(bytes)
    });
    let bytes = bytes.map_err(|error| {
        Failure::failed(format!(
            "{name}: {}: name a heap profile",
            crate::target::reason(&error)
        ))
    })?;
    let profile = parse::parse(&bytes).map_err(|error| Failure::failed(explain(&name, error)))?;
    if let Some(damage) = &profile.damage {
        losses::warn(&format!(
            "{name}: line {}: {}; {} left out",
            damage.line,
            damage.what,
            counted(profile.damaged as u64, "line")
        ));
    }
    if profile.cut_off {
        losses::warn(&format!(
            "{name}: ends before its list of modules, so it was cut off, and no function is known"
        ));
    }
    Ok(profile)
}

/// The path of the program that was profiled, printable: a profile lists its modules by address, and
/// the kernel puts no library below the program.
fn program(profile: &HeapProfile) -> Option<String> {
    let first = profile.mappings.first()?;
    Some(printable::escape_bytes(&first.path))
}

fn explain(name: &str, error: NoProfile) -> String {
    match error {
        NoProfile::Empty => format!("{name}: is empty: write the profile again"),
        NoProfile::Compressed => {
            format!("{name}: is compressed, as pprof's own profiles are: read it with pprof")
        }
        NoProfile::Newer(version) => format!(
            "{name}: is a heap profile of version {version}, and this tool reads version 1: use a \
             newer larder"
        ),
        NoProfile::NotUnderstood(line) => format!(
            "{name}: line {line}: no heap profile begins so: name one that Larder \
             (LARDER_PROFILE=FILE), gperftools or jemalloc has written; of a trace: larder report"
        ),
    }
}
