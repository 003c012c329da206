//! Reads a trace: observers get every block's life in order of time, and the counters and sites are
//! summed up.
//!
//! ```text
//! subject ─> Analysis::read ─> image (one pass a file) ─> heap ─> observer
//!                                └─> attribute, plumbing, wrapper ─> resolve ─> symbols
//! ```
//!
//! The trace is hostile input: parts that cannot be read are reported (`losses`) and skipped, and every
//! name from it is escaped before it is printed.

mod addresses;
pub mod attribute;
pub mod chain;
pub mod excerpt;
pub mod family;
pub mod functions;
pub mod heap;
pub mod image;
mod log;
pub mod lookup;
pub mod losses;
pub mod measure;
pub mod naming;
pub mod observe;
pub mod pattern;
pub mod plumbing;
pub mod resolve;
pub mod sites;
pub mod stacks;
pub mod subject;
pub mod suppressions;
pub mod timeline;
pub mod weights;
pub mod work;
pub mod wrapper;
pub mod wrappers;

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};
use larder_base::failure::{Failure, Result};
use larder_trace::Trace;

use crate::error::AnalysisError;

use family::Counters;
use image::{Again, ImageReport};
use observe::Observer;
use resolve::Resolver;
use sites::{SiteTable, SortKey};
use subject::Subject;
use wrapper::WrapperRule;
use wrappers::{Passed, Path};

/// Shorter traces are read before a user would see a bar.
const PROGRESS_FROM_EVENTS: u64 = 500_000;
/// A bar redrawn at every event would cost more than the event.
const PROGRESS_STEP: u64 = 1 << 16;

/// The result of reading a trace.
pub struct Analysis {
    rules: Vec<WrapperRule>,
    /// Whether the rule at the same index matched a function on a stack.
    rules_matched: Vec<bool>,
    pub resolver: Resolver,
    /// The program's own allocation functions on recorded stacks.
    pub wrappers: Passed,
    pub sites: SiteTable,
    pub images: Vec<ImageReport>,
    pub counters: Counters,
    /// The files that were read, in the order of `images`.
    pub traces: Vec<Trace>,
    /// The images that will be passed to an observer again.
    again: Vec<Again>,
    /// Trace files that could not be read, and why.
    pub unreadable: Vec<String>,
    /// Known leaks that are left out, a line each.
    pub suppressed: Vec<String>,
    /// Shows how far a reading is, if the caller does.
    bar: Option<ProgressBar>,
}

impl Analysis {
    /// Reads all files of a trace; `observer` gets every block, image by image. Prints a bar on stderr
    /// if that is a terminal, and a warning of losses.
    pub fn read<O: Observer>(subject: &Subject, observer: &mut O) -> Result<Self> {
        let analysis = Self::read_all(subject, observer, None)?;
        analysis.warn();
        Ok(analysis)
    }

    /// The same without a word on stderr: the caller shows the bar.
    pub fn read_silently<O: Observer>(
        subject: &Subject,
        observer: &mut O,
        bar: &ProgressBar,
    ) -> Result<Self> {
        Self::read_all(subject, observer, Some(bar.clone()))
    }

    fn read_all<O: Observer>(
        subject: &Subject,
        observer: &mut O,
        bar: Option<ProgressBar>,
    ) -> Result<Self> {
        let (traces, unreadable) = subject.open()?;
        let counted = traces.iter().find(|trace| trace.counters().is_some());
        if let Some(counted) = counted {
            check_counters_will_do::<O>(subject, counted)?;
        }
        let mut analysis = Self {
            rules_matched: vec![false; subject.wrappers.len()],
            rules: subject.wrappers.clone(),
            resolver: Resolver::new(subject.charging.clone()),
            wrappers: Passed::default(),
            sites: match O::KEEPS_STACKS {
                true => SiteTable::with_stacks(),
                false => SiteTable::default(),
            },
            images: Vec::new(),
            counters: Counters::default(),
            traces: Vec::new(),
            again: Vec::new(),
            unreadable,
            suppressed: Vec::new(),
            bar,
        };
        let bar = analysis.progress("reading", &traces);
        for (read, trace) in traces.iter().enumerate() {
            analysis.add(trace, observer, read + 1 == traces.len(), bar.each());
        }
        bar.finish();
        analysis.resolver.rest();
        analysis.traces = traces;
        Ok(analysis)
    }

    /// The progress of a pass over these.
    pub fn progress(&self, doing: &'static str, traces: &[Trace]) -> Progress {
        let Some(bar) = &self.bar else {
            return Progress::new(doing, traces.iter());
        };
        bar.reset();
        bar.set_length(events(traces.iter()));
        bar.set_message(doing);
        Progress(bar.clone())
    }

    fn warn(&self) {
        let losses = losses::summary(self);
        let unmatched = self.warnings();
        let unmatched = (!unmatched.is_empty()).then(|| unmatched.join("; "));
        let incomplete = losses::incomplete_stacks(self.images.iter().map(|image| image.losses));
        for warning in losses.into_iter().chain(incomplete).chain(unmatched) {
            losses::warn(&warning);
        }
    }

    /// Attributes all stacks again, after other wrappers were marked. Needs an observer with
    /// `KEEPS_STACKS`.
    pub fn charge_again(&mut self) {
        let rules = &self.rules;
        self.sites
            .charge_again(|chain| attribute::attribute(chain, rules).site);
        let paths = self.sites.stacks().map(|known| Path {
            chain: known.stack.chain.clone(),
            calls: known.weight(SortKey::Calls),
            bytes: known.weight(SortKey::Bytes),
        });
        let paths: Vec<Path> = paths.collect();
        self.wrappers = Passed::default();
        self.wrappers.add(&paths);
    }

    /// A warning for each `--wrapper` and `--skip` that matched nothing.
    pub fn warnings(&self) -> Vec<String> {
        let rules = self.rules.iter().zip(&self.rules_matched);
        let wrappers = rules
            .filter(|(_, matched)| !**matched)
            .map(|(rule, _)| ("--wrapper", &*rule.function));
        wrappers
            .map(|(option, name)| unmatched(option, name))
            .chain(self.resolver.unmatched_skips())
            .collect()
    }
}

fn unmatched(option: &str, name: &str) -> String {
    let name = larder_base::printable::escape(name);
    format!(
        "{option} '{name}' matches no function on any stack: check the name, or put * for what varies"
    )
}

/// The reason for refusing a trace of counters where each call is needed.
pub const ONLY_COUNTERS: &str = "holds counters instead of calls";

/// Refuses an analysis that needs more than counters.
fn check_counters_will_do<O: Observer>(subject: &Subject, counted: &Trace) -> Result<()> {
    let reason = if !O::WILL_DO_WITH_COUNTERS {
        ONLY_COUNTERS
    } else if !subject.wrappers.is_empty() {
        "holds counters, which do not record where blocks are freed, so --wrapper cannot be used"
    } else {
        return Ok(());
    };
    Err(counters_will_not_do(counted, reason))
}

pub fn counters_will_not_do(counted: &Trace, reason: &str) -> Failure {
    let lack = format!("{reason}: record again without --aggregate");
    AnalysisError::unfit(counted.path(), lack).into()
}

fn events<'t>(traces: impl Iterator<Item = &'t Trace>) -> u64 {
    traces.map(Trace::event_count).sum()
}

/// A bar on stderr for a long trace, if stderr is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new<'t>(doing: &'static str, traces: impl Iterator<Item = &'t Trace>) -> Self {
        let events = events(traces);
        if events < PROGRESS_FROM_EVENTS || !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %  {eta} left");
        let bar = ProgressBar::new(events).with_message(doing);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// To be called at each event of one trace.
    pub fn each(&self) -> impl FnMut() {
        let (bar, mut done) = (self.0.clone(), 0u64);
        move || {
            done += 1;
            if done.is_multiple_of(PROGRESS_STEP) {
                bar.inc(PROGRESS_STEP);
            }
        }
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
