//! `larder advise`: which allocations are needless, what each costs, and the cure.
//!
//! ```text
//! watch (every block) ─> facts ─> detect::ask ─> prove (every block again) ─> detect::conclude
//!   └─ returns, sizes, loops, contents                 ─> rank (overlaps once) ─> text, json
//!                                                           └─ costs (measured once), element
//! ```
//!
//! `watch` measures each origin, `detect` (one pattern a file) asks and concludes, `prove` counts the
//! answers over all blocks of a finding, `rank` computes, `text` and `json` print. False advice costs
//! trust, so every statement of a finding about blocks is a `claim` that was counted. `calls` has the
//! advice on system calls and copies, if they were recorded, `within` what the calls of all findings
//! take of the processor time, if it was sampled.

mod args;
mod calls;
mod claim;
#[cfg(test)]
mod claims_replayed;
mod contents;
mod costs;
mod detect;
mod dropped;
mod element;
mod facts;
mod finding;
mod joined;
mod json;
mod kit;
mod loops;
mod packages;
mod prove;
mod rank;
mod rates;
mod returns;
mod sizes;
mod statement;
mod text;
mod threads;
mod watch;
mod within;

use std::path::PathBuf;
use std::rc::Rc;

use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::order;
use larder_base::output;

use crate::reading::Analysis;
use crate::reading::observe::Both;
use crate::reading::subject::Subject;
use crate::reading::suppressions::Suppressions;
use calls::{CallFinding, Calls};
use costs::{AllCosts, Costs};
use element::Types;
use facts::ImageFacts;
use finding::{Confidence, Finding, Pattern};
use prove::{Answers, Prover};
use rank::{Ranked, Totals, Worth};
pub use text::FindingText;
pub use watch::Watch;
use within::{Times, Within};

pub use args::{EXAMPLES, RawAdvise};
pub use costs::{HIDDEN_COMMAND, print_here as print_malloc_costs};

#[derive(Debug)]
pub struct AdvisePlan {
    pub subject: Subject,
    pub top: usize,
    /// Process images to show.
    pub processes: usize,
    /// Findings below this are not shown.
    pub least: Confidence,
    /// Known leaks.
    pub suppressions: Suppressions,
    pub stacks: bool,
    /// Text or JSON.
    pub format: Format,
    pub output: Option<PathBuf>,
}

/// Findings of each process on a page.
const FINDINGS_A_PAGE: usize = 20;

/// The findings of one process image.
pub struct ImageAdvice {
    pub title: String,
    pub facts: ImageFacts,
    pub findings: Vec<Ranked>,
    pub totals: Totals,
    pub costs: Rc<Costs>,
    /// The number of findings that are worth a change; they come first.
    pub worth: usize,
    /// Lines with many calls and no known cure.
    pub busy: Vec<Ranked>,
    /// Findings left out because of low confidence or worth.
    pub hidden: usize,
    /// Needless system calls and copies; `None` if neither was recorded.
    pub calls: Option<Vec<CallFinding>>,
    /// `None` if processor time was not sampled.
    pub times: Option<Times>,
}

impl ImageAdvice {
    /// Notes the processor time within the calls of each finding, if it was sampled; findings of system calls
    /// and copies are then in this order.
    fn measure(&mut self) {
        let Some(times) = &self.times else { return };
        for ranked in &mut self.findings {
            let origins = ranked
                .finding
                .parts
                .iter()
                .map(|part| part.origin)
                .collect();
            ranked.cpu = Some(times.of_origins(&origins));
        }
        for calls in self.calls.iter_mut() {
            for finding in calls.iter_mut() {
                finding.cpu = Some(times.of_stacks(finding.stacks.iter().copied()));
            }
            order::sort_by(calls, |a, b| b.cpu_share().total_cmp(&a.cpu_share()));
        }
    }
}

/// Reads the trace and prints what to change.
pub fn advise(plan: &AdvisePlan) -> Result<()> {
    let mut both = Both(Watch::default(), Both(Calls::default(), Within::default()));
    let mut analysis = Analysis::read(&plan.subject, &mut both)?;
    let Both(watch, Both(calls, within)) = both;
    let beside = (calls.images, within.images);
    let advice = conclude_all(plan, watch, beside, &mut analysis);
    let printed = output::write(
        plan.output.as_deref(),
        plan.format.content(),
        |out| match plan.format {
            Format::Json => json::print(plan, &analysis, &advice, out),
            _ => text::print(plan, &analysis, &advice, out),
        },
    );
    // The process ends: freeing a block for each stack would take a tenth of the whole time.
    std::mem::forget((advice, analysis));
    printed
}

/// The findings of a trace after a `Watch` has read it, for a page.
pub fn findings(subject: &Subject, watch: Watch, analysis: &mut Analysis) -> Vec<FindingText> {
    let plan = AdvisePlan {
        subject: subject.clone(),
        top: usize::MAX,
        processes: usize::MAX,
        least: Confidence::Medium,
        suppressions: Suppressions::built_in(),
        stacks: false,
        format: Format::Text,
        output: None,
    };
    let advice = conclude_all(&plan, watch, (Vec::new(), Vec::new()), analysis);
    let findings = advice.iter().flat_map(|image| {
        let findings = image
            .findings
            .iter()
            .chain(&image.busy)
            .take(FINDINGS_A_PAGE);
        findings.map(|ranked| text::lines(&analysis.resolver, image, ranked))
    });
    let findings = findings.collect();
    // Like those of `advise`.
    std::mem::forget(advice);
    findings
}

/// Leaves out known leaks, and notes how much that is.
fn suppress(known: &Suppressions, watch: &mut Watch, analysis: &mut Analysis) {
    for (facts, image) in watch.images.iter_mut().zip(&analysis.images) {
        let pid = image.process.pid;
        let lines = facts.suppress(known).into_iter();
        let lines = lines.map(|line| format!("process {pid}: {line}"));
        analysis.suppressed.extend(lines);
    }
}

type Proven = (usize, ImageFacts, detect::Asked, Answers);

/// Counts the answers to the detectors' questions for each process image with allocations, or with other findings.
fn prove_all(
    least: Confidence,
    watch: Watch,
    calls: &[Option<Vec<CallFinding>>],
    analysis: &mut Analysis,
) -> Vec<Proven> {
    let has_others = |index: usize| {
        let found = calls.get(index).and_then(Option::as_ref);
        found.is_some_and(|found| !found.is_empty())
    };
    let traces = std::mem::take(&mut analysis.traces);
    let bar = analysis.progress("proving", &traces);
    let images = watch.images.into_iter().enumerate();
    let proven = images
        .filter(|(index, facts)| facts.allocations > 0 || has_others(*index))
        .map(|(index, mut facts)| {
            facts.lost_calls = analysis.images[index].lost_calls();
            let worth = match least {
                Confidence::Low => Worth::any(&facts),
                _ => Worth::of(&facts),
            };
            let (asked, questions) = detect::ask(&facts, &worth);
            let mut prover = Prover::new(questions);
            if let Some(trace) = traces.get(index).filter(|_| prover.has_questions()) {
                analysis.again(index, trace, &mut prover, bar.each());
            }
            (index, facts, asked, prover.answers)
        })
        .collect();
    bar.finish();
    analysis.traces = traces;
    proven
}

/// Process images of which something can be said, the busiest first. The trace is read again for the detectors'
/// questions.
fn conclude_all(
    plan: &AdvisePlan,
    mut watch: Watch,
    (mut calls, mut times): (Vec<Option<Vec<CallFinding>>>, Vec<Option<Times>>),
    analysis: &mut Analysis,
) -> Vec<ImageAdvice> {
    suppress(&plan.suppressions, &mut watch, analysis);
    let proven = prove_all(plan.least, watch, &calls, analysis);
    let (types, mut costs) = (Types::new(&analysis.resolver), AllCosts::default());
    let mut advice: Vec<ImageAdvice> = proven
        .into_iter()
        .map(|(number, facts, asked, answers)| {
            let image = &analysis.images[number];
            let program = larder_base::printable::escape_bytes(&image.process.executable);
            let title = format!("process {}: {program}", image.process.pid);
            let (costs, ended) = (costs.of(&facts.modules), image.ended());
            let found = detect::conclude(&facts, &costs, &types, &asked, &answers, ended);
            let mut advice = conclude(plan, facts, costs, &types, found, title);
            advice.calls = calls.get_mut(number).and_then(Option::take);
            advice.times = times.get_mut(number).and_then(Option::take);
            advice.measure();
            if let Some(calls) = &mut advice.calls
                && plan.least > Confidence::Low
            {
                calls.retain(CallFinding::is_shown_by_itself);
            }
            advice
        })
        .collect();
    order::sort_by(&mut advice, |a, b| {
        b.totals.all_ns.total_cmp(&a.totals.all_ns)
    });
    advice
}

fn conclude(
    plan: &AdvisePlan,
    facts: ImageFacts,
    costs: Rc<Costs>,
    types: &Types<'_>,
    mut found: Vec<Finding>,
    title: String,
) -> ImageAdvice {
    let all = found.len();
    found.retain(|finding| finding.confidence >= plan.least || finding.pattern == Pattern::Hot);
    let (ranked, all_ns) = rank::rank(&facts, &costs, found);
    let is_busy = |ranked: &Ranked| ranked.finding.pattern == Pattern::Hot;
    let (busy, ranked): (Vec<Ranked>, Vec<Ranked>) = ranked.into_iter().partition(is_busy);
    let (mut findings, minor) = rank::by_worth(&facts, ranked);
    let worth = findings.len();
    if plan.least == Confidence::Low {
        findings.extend(minor);
    }
    rank::renumber(&mut findings);
    for ranked in &mut findings {
        ranked.allocates = types.of_finding(&facts, &ranked.finding);
    }
    ImageAdvice {
        title,
        calls: None,
        times: None,
        hidden: all - busy.len() - findings.iter().map(Ranked::findings).sum::<usize>(),
        worth,
        busy,
        totals: Totals::of(&findings[..worth], all_ns),
        facts,
        findings,
        costs,
    }
}
