//! `larder html`: writes a trace as one page that needs no network. `larder timeline`: draws its live
//! bytes over time.
//!
//! ```text
//! Analysis::read ─> Gathered, with Called (copies …) ─> document (JSON) ─> page (markup, style, script, data)
//!                   └─> advise::Watch ─> findings ──────┘
//! ```
//!
//! Everything from the trace is data in the page, and the script shows it as text alone; a content
//! security policy forbids any other script, style or resource. `timeline` draws for `larder timeline`.

mod args;
mod called;
mod document;
mod gathered;
mod page;
mod timeline;
mod tree;

pub use args::{HTML_EXAMPLES, HtmlPlan, RawHtml, RawTimeline, TIMELINE_EXAMPLES, TimelinePlan};

use larder_base::failure::Result;
use larder_base::output::{self, Content};
use larder_base::printable;

use crate::advise::{self, Watch};
use crate::error::AnalysisError;
use crate::reading::Analysis;
use crate::reading::losses;
use crate::reading::observe::Both;
use crate::reading::timeline::TimelineObserver;
use gathered::Gathered;

const COUNTS_EVENTS: &str = "the timeline counts events";

pub fn html(plan: &HtmlPlan) -> Result<()> {
    let mut observer = Both(Gathered::new(), Watch::default());
    let mut analysis = Analysis::read(&plan.subject, &mut observer)?;
    losses::warn_without_times(&analysis, COUNTS_EVENTS);
    let Both(gathered, watch) = observer;
    let trace = printable::name(&plan.subject.trace);
    let findings = advise::findings(&plan.subject, watch, &mut analysis);
    let page = page::render(&mut analysis, &gathered, &trace, &findings);
    let written = output::write(Some(&plan.output), Content::Text, |out| {
        out.write_all(page.as_bytes())
    });
    // The process ends: freeing a block for each stack would take a tenth of the whole time.
    std::mem::forget((analysis, gathered, findings));
    written
}

pub fn timeline(plan: &TimelinePlan) -> Result<()> {
    let mut observer = TimelineObserver::new(timeline::SITES);
    let analysis = Analysis::read(&plan.subject, &mut observer)?;
    losses::warn_without_times(&analysis, COUNTS_EVENTS);
    let Some(found) = observer.timeline.filter(|found| found.peak_bytes > 0) else {
        let lack = "no block was live at any time: record a program that allocates";
        return Err(AnalysisError::unfit(&plan.subject.trace, lack).into());
    };
    let drawing = timeline::standalone(&found, &printable::name(&plan.subject.trace));
    output::write(plan.output.as_deref(), Content::Text, |out| {
        out.write_all(drawing.as_bytes())
    })
}
