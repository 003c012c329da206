//! `larder leaks`: what a program has leaked, when it ends or while it runs.
//!
//! ```text
//! command ─> the library's own check ─> files ─────┐
//! process ─> process::Leaks ─> running (suppress) ─┴─> profile::sites (attribution) ─> text, json
//! ```

mod args;
mod command;
mod json;
mod running;
mod suppressions;
mod text;

use larder_analysis::reading::losses;
use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::order;
use larder_base::output;
use larder_base::printable;

use crate::profile::heap::{Figures, HeapProfile};
use crate::profile::program;
use crate::profile::sites::{Profiled, ProfiledSite};
use args::Source;
pub use args::{EXAMPLES, LeaksPlan, RawLeaks};
use running::Running;

/// Everything that is printed.
struct Report<'a> {
    plan: &'a LeaksPlan,
    title: String,
    profiles: Vec<HeapProfile>,
    profiled: Profiled,
    running: Option<Running>,
}

/// Returns the exit code.
pub fn leaks(plan: &LeaksPlan) -> Result<u8> {
    let format = Format::printed(plan.json);
    let (profiles, title, running, code) = match &plan.source {
        Source::Command { words, mode } => {
            let stdout = format.stdout_of_command(None);
            let (profiles, code) = command::run(words, *mode, &plan.suppressions, stdout)?;
            (profiles, printable::name(&words[0]), None, code)
        }
        Source::Process(id) => {
            let (profile, running) = running::check(*id, &plan.suppressions)?;
            (vec![profile], running.title.clone(), Some(running), 0)
        }
    };
    let report = Report {
        plan,
        title,
        profiled: Profiled::new(plan.charging.clone(), &profiles, None),
        profiles,
        running,
    };
    let unmatched = report.profiled.resolver.unmatched_skips();
    unmatched.for_each(|warning| losses::warn(&warning));
    output::write(None, format.content(), |out| match plan.json {
        true => json::print(&report, out),
        false => text::print(&report, out),
    })?;
    Ok(match report.total().in_use.objects > 0.0 {
        true => plan.exit_code,
        false => code,
    })
}

impl Report<'_> {
    /// The sum over the sites, and over objects without a stack.
    fn total(&self) -> Figures {
        let mut total = self.profiled.total.clone();
        total.add(&self.without_stack());
        total
    }

    fn without_stack(&self) -> Figures {
        let mut sum = Figures::default();
        let sizes = self
            .running
            .iter()
            .flat_map(|running| running.sizes.values());
        sizes.for_each(|figures| sum.add(figures));
        sum
    }

    /// Objects and bytes, summed over all processes.
    fn reachable(&self) -> (f64, f64) {
        let checks = self.profiles.iter().filter_map(|profile| profile.leaks);
        checks.fold((0.0, 0.0), |(objects, bytes), check| {
            (
                objects + check.reachable.objects,
                bytes + check.reachable.bytes,
            )
        })
    }

    /// The sites that have leaked, in descending order of bytes.
    fn ranked(&self) -> Vec<&ProfiledSite> {
        let lost = |site: &&ProfiledSite| site.figures.in_use.objects > 0.0;
        let mut sites: Vec<_> = self.profiled.sites.iter().filter(lost).collect();
        order::sort_by(&mut sites, |a, b| {
            b.figures.in_use.bytes.total_cmp(&a.figures.in_use.bytes)
        });
        sites
    }

    /// The processes of the command that have leaked.
    fn leaking(&self) -> impl Iterator<Item = (&HeapProfile, Figures)> {
        let sums = self
            .profiles
            .iter()
            .map(|profile| (profile, profile.total()));
        sums.filter(|(_, total)| total.in_use.objects > 0.0)
    }
}

/// Names the process and its program, printable.
fn name(profile: &HeapProfile) -> String {
    let id = profile.process.map_or("?".to_owned(), |id| id.to_string());
    format!(
        "process {id}: {}",
        program(profile).unwrap_or_else(|| "?".to_owned())
    )
}
