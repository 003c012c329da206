//! `larder advise`: which allocations need not be, what each costs, and how to be rid of it.
//!
//! ```text
//! watch (every block) ─> facts ─> detect (one pattern a file) ─> rank (overlaps once) ─> text, json
//!   └─ returns, sizes, loops, contents             └─ element           └─ costs (measured here)
//! ```
//!
//! `watch` measures, `detect` concludes, `rank` computes, `text` and `json` print. False advice
//! costs trust: a detector says what it saw and stays silent when one block contradicts it.

mod args;
mod contents;
mod costs;
mod detect;
mod element;
mod facts;
mod finding;
mod json;
mod loops;
mod rank;
mod rates;
mod returns;
mod sizes;
mod statement;
mod text;
mod watch;
mod wrapper;

use std::io::{self, BufWriter, Write};

use crate::analysis::Analysis;
use crate::analysis::subject::Subject;
use crate::failure::{Failure, Result};
use crate::report::Format;
use costs::Costs;
use element::Types;
use facts::ImageFacts;
use finding::Confidence;
use rank::{Ranked, Totals};
pub use watch::Watch;

pub use args::{EXAMPLES, RawAdvise};
pub use costs::{Costs as MallocCosts, HIDDEN_COMMAND};

#[derive(Debug)]
pub struct AdvisePlan {
    pub subject: Subject,
    pub top: usize,
    /// Process images to show.
    pub processes: usize,
    /// Findings below this are not shown.
    pub least: Confidence,
    pub stacks: bool,
    pub format: Format,
}

/// A finding below this share of calls' time and of the peak is not worth a change.
const WORTH: f64 = 0.005;

/// Of each process, for a page.
const FINDINGS_A_PAGE: usize = 20;

/// What was found in one process image.
pub struct ImageAdvice {
    pub title: String,
    pub facts: ImageFacts,
    pub findings: Vec<Ranked>,
    pub totals: Totals,
    pub costs: Costs,
    /// Findings left out for their confidence or their worth.
    pub hidden: usize,
}

/// Reads the trace and prints what to change.
pub fn advise(plan: &AdvisePlan) -> Result<()> {
    let mut watch = Watch::default();
    let analysis = Analysis::read(&plan.subject, &mut watch)?;
    let advice = conclude_all(plan, watch, &analysis);
    match print(plan, &analysis, &advice) {
        // Whoever reads us has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "the advice cannot be written: {}",
            crate::target::reason(&error)
        ))),
        Ok(()) => Ok(()),
    }
}

/// The findings of a trace that a `Watch` has seen, for a page: a title and lines of text each.
pub fn findings(
    subject: &Subject,
    watch: Watch,
    analysis: &Analysis,
) -> Vec<(String, Vec<String>)> {
    let plan = AdvisePlan {
        subject: subject.clone(),
        top: usize::MAX,
        processes: usize::MAX,
        least: Confidence::Medium,
        stacks: false,
        format: Format::Text,
    };
    let advice = conclude_all(&plan, watch, analysis);
    let findings = advice.iter().flat_map(|image| {
        let findings = image.findings.iter().take(FINDINGS_A_PAGE);
        findings.map(|ranked| text::lines(image, ranked))
    });
    findings.collect()
}

/// Process images with allocations, the busiest first.
fn conclude_all(plan: &AdvisePlan, watch: Watch, analysis: &Analysis) -> Vec<ImageAdvice> {
    let types = Types::new(&analysis.resolver);
    let images = watch.images.into_iter().zip(&analysis.images);
    let mut advice: Vec<ImageAdvice> = images
        .filter(|(facts, _)| facts.allocations > 0)
        .map(|(facts, image)| {
            let program = crate::printable::escape_bytes(&image.process.executable);
            let title = format!("process {}: {program}", image.process.pid);
            conclude(plan, facts, &types, image.ended(), title)
        })
        .collect();
    advice.sort_by(|a, b| b.totals.all_ns.total_cmp(&a.totals.all_ns));
    advice
}

fn conclude(
    plan: &AdvisePlan,
    facts: ImageFacts,
    types: &Types<'_>,
    ended: bool,
    title: String,
) -> ImageAdvice {
    let costs = Costs::of(&facts.modules);
    let mut found = detect::all(&facts, types, ended);
    let all = found.len();
    found.retain(|finding| {
        finding.confidence >= plan.least || finding.pattern == finding::Pattern::Hot
    });
    let (mut findings, totals) = rank::rank(&facts, &costs, found);
    if plan.least > Confidence::Low {
        findings.retain(|ranked| {
            let pattern = ranked.finding.pattern;
            ranked.share >= WORTH
                || (ranked.finding.calls() == 0
                    && ranked.finding.memory_bytes == 0
                    && pattern != finding::Pattern::Zeroed)
                || pattern == finding::Pattern::Leak
        });
    }
    for ranked in &mut findings {
        ranked.allocates = types.of_finding(&facts, &ranked.finding);
    }
    ImageAdvice {
        title,
        hidden: all - findings.len(),
        facts,
        findings,
        totals,
        costs,
    }
}

fn print(plan: &AdvisePlan, analysis: &Analysis, advice: &[ImageAdvice]) -> io::Result<()> {
    match plan.format {
        Format::Json => {
            let mut out = BufWriter::new(io::stdout().lock());
            json::print(plan, analysis, advice, &mut out)?;
            out.flush()
        }
        Format::Text => {
            let mut out = BufWriter::new(anstream::stdout().lock());
            text::print(plan, analysis, advice, &mut out)?;
            out.flush()
        }
    }
}
