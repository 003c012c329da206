//! `larder profile`: the figures of a heap profile for each source line, and whether they are
//! significant.
//!
//! ```text
//! file ─> parse ──┬─> heap ─┬─> sites (modules, attribution) ─> growing, text, json
//! command ─> file │         └─> export, flame graph
//! process ─> running
//! ```
//!
//! Profiles are hostile input. Memory grows with them, and with the symbols of the modules that
//! they name.

pub mod args;
pub mod command;
mod growing;
pub mod heap;
mod interval;
mod json;
mod modules;
mod parse;
mod rows;
pub mod running;
pub mod served;
pub mod site_json;
pub mod sites;
mod text;
mod write;

use std::io::{self, Write};
use std::path::Path;

pub use args::{EXAMPLES, ProfilePlan, RawProfile};
pub use heap::HeapProfile;
pub use interval::{Growth, Interval};
pub use running::with_modules;
pub use sites::{Profiled, ProfiledSite};

use larder_analysis::reading::losses;
use larder_base::error::system;
use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::number::counted;
use larder_base::output::{self, Content};
use larder_base::printable;
use larder_base::regular::open_regular;

use args::{Source, Watch};
pub use parse::NoProfile;

use crate::error::LiveError;

/// Everything that is printed.
struct Report<'a> {
    plan: &'a ProfilePlan,
    /// What was profiled, printable.
    title: String,
    profiles: Vec<HeapProfile>,
    profiled: Profiled,
    /// How long a process was watched.
    seconds: Option<f64>,
}

/// Sites in a ranking, by default.
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

/// Returns the exit code: 0, or the command's own.
pub fn profile(plan: &ProfilePlan) -> Result<u8> {
    output::refuse_terminal(plan.output.as_deref(), plan.format.content())?;
    let base = plan.base.as_deref().map(|file| read(file).map(|p| vec![p]));
    let mut base = base.transpose()?;
    let mut seconds = None;
    let (profiles, title, code) = match &plan.source {
        Source::File(file) => (vec![read(file)?], printable::name(file), 0),
        Source::Command { words, mean } => {
            let stdout = plan.format.stdout_of_command(plan.output.as_deref());
            let (profiles, code) = command::run(words, *mean, stdout)?;
            (profiles, printable::name(&words[0]), code)
        }
        Source::Process { id, watch } => {
            let process = running::open(*id)?;
            let (count, apart) = watch.readings();
            let (mut readings, length) = running::series(&process, count, apart)?;
            let title = running::title(&process);
            if let Watch::Growing { .. } = watch {
                return watched(plan, title, readings, length);
            }
            let last = readings.split_off(count as usize - 1);
            if *watch != Watch::Once {
                (base, seconds) = (Some(readings), Some(length));
            }
            (last, title, 0)
        }
    };
    if plan.format == Format::Heap {
        write_again(plan, &profiles)?;
        return Ok(code);
    }
    let report = Report {
        plan,
        title,
        profiled: Profiled::new(plan.charging.clone(), &profiles, base.as_deref()),
        profiles,
        seconds,
    };
    print(&report)?;
    Ok(code)
}

/// Returns the exit code: 1 if a site grew in every interval.
fn watched(
    plan: &ProfilePlan,
    title: String,
    mut readings: Vec<HeapProfile>,
    seconds: f64,
) -> Result<u8> {
    let last = readings.split_off(readings.len().saturating_sub(1));
    let first = readings.get(..1).unwrap_or_default();
    let mut profiled = Profiled::new(plan.charging.clone(), &last, Some(first));
    let found = growing::growing(&mut profiled, readings.iter().chain(&last));
    let report = Report {
        plan,
        title,
        profiled,
        profiles: last,
        seconds: Some(seconds),
    };
    warn(&report);
    write_text_or(
        &report,
        |out| text::print_growing(&report, &found, out),
        |out| json::print_growing(&report, &found, out),
    )?;
    Ok(u8::from(!found.is_empty()))
}

fn write_again(plan: &ProfilePlan, profiles: &[HeapProfile]) -> Result<()> {
    let [profile] = profiles else {
        return Err(LiveError::SeveralProfiles(profiles.len()).into());
    };
    output::write(plan.output.as_deref(), Content::Text, |out| {
        write::write(profile, out)
    })
}

fn warn(report: &Report<'_>) {
    let unmatched = report.profiled.resolver.unmatched_skips();
    unmatched.for_each(|warning| losses::warn(&warning));
}

fn print(report: &Report<'_>) -> Result<()> {
    warn(report);
    match report.plan.format {
        Format::Svg => rows::draw(report),
        Format::Pprof | Format::Collapsed | Format::Speedscope => rows::export(report),
        _ => write_text_or(
            report,
            |out| text::print(report, out),
            |out| json::print(report, out),
        ),
    }
}

fn write_text_or(
    report: &Report<'_>,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    json: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let plan = report.plan;
    output::write(
        plan.output.as_deref(),
        plan.format.content(),
        |out| match plan.format {
            Format::Json => json(out),
            _ => text(out),
        },
    )
}

/// Reads a profile. Reports lines that cannot be read on stderr.
pub fn read(path: &Path) -> Result<HeapProfile> {
    let name = printable::name(path);
    let bytes = open_regular(path).and_then(|mut file| {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(bytes)
    });
    let bytes = bytes.map_err(system(&name, "name a heap profile"))?;
    let profile = parse::parse(&bytes).map_err(|cause| LiveError::NoProfile {
        path: path.to_owned(),
        cause,
    })?;
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
            "{name}: is cut off before its list of modules, so functions have no names"
        ));
    }
    Ok(profile)
}

/// The path of the program that was profiled, printable: a profile lists its modules by address, and
/// the kernel puts no library below the program.
pub fn program(profile: &HeapProfile) -> Option<String> {
    let first = profile.mappings.first()?;
    Some(printable::escape_bytes(&first.path))
}
