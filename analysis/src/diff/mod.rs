//! `larder diff`: what differs between the traces of two builds, or how a program's sites grow with
//! its input.
//!
//! ```text
//! args ─> side (what a site is known by) ─> matching ─> compare ─> text, json
//!                                            work ─>├─> growth  ─> text, json
//!                                                  stacks (which of a site's changed)
//! ```
//!
//! Copies, system calls and samples are sites, too (`report` makes them), and all else is the same.
//!
//! Memory: that of reading each trace, one after the other, and all sites with their stacks.

mod args;
mod compare;
mod figures;
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

use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output;

use crate::error::AnalysisError;
use crate::of::Of;
use crate::reading::Analysis;
use crate::reading::observe::{Both, KeepStacks, Observer};
use crate::reading::sites::{SiteTable, SortKey};
use crate::reading::subject::Subject;
use crate::reading::work::Work;
use crate::report::{Copies, Samples, SystemCalls};
pub use args::{DiffPlan, EXAMPLES, RawDiff};
use compare::Comparison;
use growth::Growth;
use side::Side;

/// Prints what differs, and warnings of losses on stderr.
pub fn diff(plan: &DiffPlan) -> Result<()> {
    let (mut analyses, mut works, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for subject in &plan.subjects {
        let (analysis, work, sites) = read(subject, plan.of)?;
        analyses.push(analysis);
        works.push(work);
        others.push(sites);
    }
    check(&analyses, &others, plan)?;
    let aliases = side::pair_executables(&analyses);
    wrappers::share(&mut analyses, &mut others, &aliases);
    let sides = |of_allocations: bool| -> Vec<Side<'_>> {
        let traces = analyses.iter().zip(&others).zip(&plan.subjects);
        traces
            .map(|((analysis, others), subject)| {
                let others = others.as_ref().filter(|_| !of_allocations);
                let sites = others.unwrap_or(&analysis.sites);
                Side::new(analysis, sites, &subject.trace, &aliases)
            })
            .collect()
    };
    let (allocating, sides) = (sides(true), sides(false));
    let (file, content) = (plan.output.as_deref(), plan.format.content());
    if plan.growth {
        let growth = Growth::of(&sides, &allocating, &works, plan)?;
        return output::write(file, content, |out| match plan.format {
            Format::Json => json::print(&json::growth(&growth, &sides, plan), out),
            _ => text::print_growth(&growth, &sides, plan, out),
        });
    }
    let [before, after] = &sides[..] else {
        return Err(AnalysisError::usage("diff compares two traces: name two").into());
    };
    let comparison = Comparison::of(before, after, plan);
    output::write(file, content, |out| match plan.format {
        Format::Json => json::print(&json::comparison(&comparison, plan), out),
        _ => text::print_comparison(&comparison, plan, out),
    })
}

/// With the sites of what does not allocate, if they are requested.
fn read(subject: &Subject, of: Of) -> Result<(Analysis, Work, Option<SiteTable>)> {
    match of {
        Of::Allocations => observe(subject, (), |()| None),
        Of::SystemCalls => observe(subject, SystemCalls::with_stacks(), |found| {
            Some(found.callers.sites)
        }),
        Of::Copies => observe(subject, Copies::with_stacks(), |found| {
            Some(found.callers.sites)
        }),
        Of::ProcessorTime => observe(subject, Samples::default(), |found| Some(found.sites)),
    }
}

fn observe<O: Observer>(
    subject: &Subject,
    own: O,
    sites: fn(O) -> Option<SiteTable>,
) -> Result<(Analysis, Work, Option<SiteTable>)> {
    let mut observer = Both(Both(Work::default(), KeepStacks), own);
    let analysis = Analysis::read(subject, &mut observer)?;
    let Both(Both(work, _), own) = observer;
    Ok((analysis, work, sites(own)))
}

/// Fails if a trace lacks what is requested.
fn check(analyses: &[Analysis], others: &[Option<SiteTable>], plan: &DiffPlan) -> Result<()> {
    for ((analysis, others), subject) in analyses.iter().zip(others).zip(&plan.subjects) {
        if others.as_ref().is_some_and(SiteTable::is_empty) {
            let (noun, option) = (plan.of.noun(), plan.of.option());
            let lack = format!("has no {noun}: record it with {option}");
            return Err(AnalysisError::unfit(&subject.trace, lack).into());
        }
        if plan.sort == SortKey::Peak && !analysis.sites.knows_peak_shares() {
            let lack = "holds counters, which do not record a site's share of the peak: record again \
                        without --aggregate, or sort by another figure";
            return Err(AnalysisError::unfit(&subject.trace, lack).into());
        }
    }
    Ok(())
}
