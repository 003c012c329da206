//! `larder diff`: what differs between the traces of two builds, or how a program's sites grow with
//! its input.
//!
//! ```text
//! args ─> side (what a site is known by) ─> matching ─> compare ─> text, json
//!                                            work ─>├─> growth  ─> text, json
//!                                                  stacks (which of a site's changed)
//! ```
//!
//! Memory: that of reading each trace, one after the other, and all sites with their stacks.

mod args;
mod compare;
mod growth;
mod json;
mod matching;
mod obstacles;
mod pairing;
mod score;
mod side;
mod stacks;
mod text;
mod work;
mod wrappers;

use larder_base::failure::{Failure, Result};
use larder_base::format::Format;
use larder_base::{output, printable};

use crate::reading::Analysis;
use crate::reading::observe::{Both, KeepStacks};
use crate::reading::sites::SortKey;
use crate::reading::work::Work;
pub use args::{DiffPlan, EXAMPLES, RawDiff};
use compare::Comparison;
use growth::Growth;
use side::Side;

/// Prints what differs, and warnings of losses on stderr.
pub fn diff(plan: &DiffPlan) -> Result<()> {
    let (mut analyses, mut works) = (Vec::new(), Vec::new());
    for subject in &plan.subjects {
        let mut observer = Both(Work::default(), KeepStacks);
        analyses.push(Analysis::read(subject, &mut observer)?);
        works.push(observer.0);
    }
    let peakless = analyses.iter().zip(&plan.subjects);
    let mut peakless = peakless.filter(|(analysis, _)| !analysis.sites.knows_peak_shares());
    if let Some((_, subject)) = peakless.next().filter(|_| plan.sort == SortKey::Peak) {
        return Err(Failure::failed(format!(
            "{}: holds counters, which do not record a site's share of the peak: record again \
             without --aggregate, or sort by another figure",
            printable::name(&subject.trace)
        )));
    }
    let aliases = side::pair_executables(&analyses);
    wrappers::share(&mut analyses, &aliases);
    let sides: Vec<Side> = analyses
        .iter()
        .zip(&plan.subjects)
        .map(|(analysis, subject)| Side::new(analysis, &subject.trace, &aliases))
        .collect();
    let (file, content) = (plan.output.as_deref(), plan.format.content());
    if plan.growth {
        let growth = Growth::of(&sides, &works, plan)?;
        return output::write(file, content, |out| match plan.format {
            Format::Json => json::print(&json::growth(&growth, &sides, plan), out),
            _ => text::print_growth(&growth, &sides, plan, out),
        });
    }
    let [before, after] = &sides[..] else {
        return Err(Failure::failed("diff compares two traces: name two"));
    };
    let comparison = Comparison::of(before, after, plan);
    output::write(file, content, |out| match plan.format {
        Format::Json => json::print(&json::comparison(&comparison, plan), out),
        _ => text::print_comparison(&comparison, plan, out),
    })
}
