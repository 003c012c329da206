//! Needless system calls and copies: what is concluded from the calls that `record --syscalls` and `--copies`
//! recorded.
//!
//! ```text
//! event ─┬─> wakes   bytes that only wake another thread, through a pipe
//!        ├─> runs    calls of one thread one after another: small writes, reads until EAGAIN, mmap and munmap, polls
//!        │           before reads, readings of the clock
//!        ├─> names   calls that name a file: not there, looked up twice, opened again
//!        ├─> bytes   where bytes come from and go to: made here, copied on there
//!        ├─> blocks  blocks that one copy filled: the source lived on, the same text again
//!        └─> formats what a printf of one conversion makes
//!  end_image ─> findings, by line ─> print
//! ```
//!
//! Every figure is a count of what was recorded. The program's own stores are not seen, so nothing that
//! concerns contents has high confidence.

mod blocks;
mod bytes;
mod counts;
mod formats;
mod names;
pub mod print;
mod runs;
mod wakes;
mod watched;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_base::order;
use larder_trace::layout::FileHeader;
use larder_trace::{Action, Event, Events, Origin, StackId, SystemCall, Trace};

use super::finding::Confidence;
use super::within::Share;
use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::sites::SiteStack;
pub use formats::Conversion;

/// A pattern with fewer calls, or with calls and bytes below both of these, is not worth a change.
const FEWEST_CALLS: u64 = 8;
const WORTH_CALLS: u64 = 100;
const WORTH_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    Wakes,
    SmallWrites,
    UntilAgain,
    MapInTurn,
    NotThere,
    StatThenOpen,
    OpenedAgain,
    PollThenRead,
    ClockAgain,
    CopiedOn,
    ReadThenCopied,
    FormattedThenCopied,
    FilledThenOverwritten,
    HandedOver,
    SourceLivesOn,
    SameText,
    OneConversion,
}

impl Pattern {
    /// The name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Pattern::Wakes => "wake-ups",
            Pattern::SmallWrites => "small-writes",
            Pattern::UntilAgain => "until-again",
            Pattern::MapInTurn => "map-in-turn",
            Pattern::NotThere => "not-there",
            Pattern::StatThenOpen => "stat-then-open",
            Pattern::OpenedAgain => "opened-again",
            Pattern::PollThenRead => "poll-then-read",
            Pattern::ClockAgain => "clock-again",
            Pattern::CopiedOn => "copied-on",
            Pattern::ReadThenCopied => "read-then-copied",
            Pattern::FormattedThenCopied => "formatted-then-copied",
            Pattern::FilledThenOverwritten => "filled-then-overwritten",
            Pattern::HandedOver => "handed-over",
            Pattern::SourceLivesOn => "source-lives-on",
            Pattern::SameText => "same-text",
            Pattern::OneConversion => "one-conversion",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Pattern::Wakes => "Wake once, by an eventfd",
            Pattern::SmallWrites => "Write many at once",
            Pattern::UntilAgain => "Stop at a short read",
            Pattern::MapInTurn => "Keep the mapping",
            Pattern::NotThere => "Remember what is not there",
            Pattern::StatThenOpen => "Open first",
            Pattern::OpenedAgain => "Keep the file open",
            Pattern::PollThenRead => "Read before you poll",
            Pattern::ClockAgain => "Read the clock less often",
            Pattern::CopiedOn => "Copy once",
            Pattern::ReadThenCopied => "Read where it goes",
            Pattern::FormattedThenCopied => "Format where it goes",
            Pattern::FilledThenOverwritten => "Fill nothing that is overwritten",
            Pattern::HandedOver => "Hand the block over",
            Pattern::SourceLivesOn => "Refer to the source",
            Pattern::SameText => "Keep one of each text",
            Pattern::OneConversion => "Convert without printf",
        }
    }

    /// Whether the other line's calls are the needless ones, and not those of the line that is named.
    fn saves_the_other(self) -> bool {
        matches!(self, Pattern::ReadThenCopied | Pattern::FormattedThenCopied)
    }

    fn cure(self) -> &'static str {
        match self {
            Pattern::Wakes => {
                "an eventfd in place of the pipe: one read takes all wake-ups since the last; with an atomic flag \
                 that the sleeper clears, write only if it was not set"
            }
            Pattern::SmallWrites => {
                "collect in a buffer that is written when it is full, or pass the parts to writev"
            }
            Pattern::UntilAgain => {
                "a read that returns less than it asked for has emptied the descriptor: wait for the next event \
                 instead of asking again"
            }
            Pattern::MapInTurn => "keep the mapping for the next use, or take it from malloc",
            Pattern::NotThere => {
                "remember the names that are not there, look first where most are found, or read the directory once"
            }
            Pattern::StatThenOpen => {
                "open it, then fstat the descriptor: the path is walked once, and both speak of the same file"
            }
            Pattern::OpenedAgain => {
                "keep the descriptor and read with pread, or go back with lseek; stat tells whether the name is \
                 another file now"
            }
            Pattern::PollThenRead => "read first, without blocking, and poll only after EAGAIN",
            Pattern::ClockAgain => {
                "read the clock once a round and pass the time on, or read CLOCK_MONOTONIC_COARSE where a tick of \
                 1 to 4 ms is exact enough"
            }
            Pattern::CopiedOn => {
                "copy to the last place at once, or hand a reference to a counted buffer on"
            }
            Pattern::ReadThenCopied => {
                "pass the last place to read, or parse in the buffer that was read into"
            }
            Pattern::FormattedThenCopied => {
                "format at the end of the buffer that it is copied to, after making room there"
            }
            Pattern::FilledThenOverwritten => "leave the fill out, or fill only what stays",
            Pattern::HandedOver => {
                "take the block itself over, by its pointer, instead of copying and freeing it"
            }
            Pattern::SourceLivesOn => {
                "use the source by a pointer, a view, or a slice of a counted buffer: it lives longer"
            }
            Pattern::SameText => {
                "look the text up in a table that keeps one of each, and use that one"
            }
            Pattern::OneConversion => "write what it converts without a format",
        }
    }
}

/// A system call of a thread.
#[derive(Clone, Copy)]
struct Called {
    call: SystemCall,
    result: i64,
    /// See `Action::SystemCall`.
    limit: u64,
    descriptor: i32,
    stack: StackId,
    thread: u32,
    /// When it returned, and how long it took.
    end_ns: f64,
    ns: f64,
}

/// What is concluded of calls with one stack; lines are merged later.
struct Conclusion {
    pattern: Pattern,
    stack: StackId,
    /// The line on the other side, which reads, or copies on.
    other: Option<StackId>,
    /// The address of the format, for the pattern that needs it.
    format: Option<u64>,
    figures: Figures,
}

impl Conclusion {
    /// That of the calls that would be saved.
    fn needless(&self) -> StackId {
        let other = self.other.filter(|_| self.pattern.saves_the_other());
        other.unwrap_or(self.stack)
    }
}

/// All that a stack did of what a pattern looks for a part in.
struct Total {
    pattern: Pattern,
    stack: StackId,
    of: u64,
    others: u64,
}

/// What a detector has found, and the totals of the lines: a line's share is of all its stacks.
#[derive(Default)]
struct Concluded {
    found: Vec<Conclusion>,
    totals: Vec<Total>,
}

/// What a finding counts. The meaning of `of` and `part` depends on the pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Calls that would be saved, and the bytes that they move.
    pub calls: u64,
    pub bytes: u64,
    /// The time within these calls; 0 if it was not recorded.
    pub ns: f64,
    /// All calls, of which those are a part.
    pub of: u64,
    /// The other line's calls.
    pub others: u64,
    /// Runs, for calls that come in a row.
    pub runs: u64,
}

impl Figures {
    fn merge(&mut self, other: &Figures) {
        self.calls += other.calls;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns += other.ns;
        self.of += other.of;
        self.others += other.others;
        self.runs += other.runs;
    }

    /// Whether the pattern holds for most of what the line does, and is worth a change.
    fn is_worth(&self, pattern: Pattern) -> bool {
        let most = match pattern {
            Pattern::Wakes | Pattern::SmallWrites | Pattern::UntilAgain | Pattern::MapInTurn => {
                true
            }
            Pattern::NotThere | Pattern::OpenedAgain => 2 * self.calls >= self.of,
            Pattern::HandedOver
            | Pattern::SourceLivesOn
            | Pattern::SameText
            | Pattern::StatThenOpen
            | Pattern::PollThenRead
            | Pattern::ClockAgain => is_most(self.calls, self.of),
            Pattern::OneConversion => true,
            Pattern::FilledThenOverwritten => is_most(self.calls, self.others),
            Pattern::CopiedOn | Pattern::ReadThenCopied | Pattern::FormattedThenCopied => {
                is_most(self.bytes, self.of)
            }
        };
        most && self.calls >= FEWEST_CALLS
            && (self.calls >= WORTH_CALLS || self.bytes >= WORTH_BYTES)
    }

    /// A rough order: a call as long as was measured, a copy at 10 GB/s, a format as printf takes, a copy into a new
    /// block with what allocates and frees it.
    fn weight_ns(&self, pattern: Pattern) -> f64 {
        match (pattern, self.ns) {
            (Pattern::OneConversion, _) => FORMAT_NS * self.calls as f64,
            (Pattern::SourceLivesOn | Pattern::SameText, _) => {
                BLOCK_NS * self.calls as f64 + 0.1 * self.bytes as f64
            }
            (_, 0.0) => 5.0 * self.calls as f64 + 0.1 * self.bytes as f64,
            (_, ns) => ns,
        }
    }
}

/// What a plain conversion saves, roughly: printf of one integer takes 49 ns, its digits 9 (docs/reference/kit.md).
const FORMAT_NS: f64 = 50.0;

/// A block from malloc, filled and freed, roughly.
const BLOCK_NS: f64 = 30.0;

/// The percentage of a line's bytes, or calls, from which on the pattern is said of it.
const MOST: u64 = 90;

fn is_most(part: u64, whole: u64) -> bool {
    part.saturating_mul(100) >= whole.saturating_mul(MOST)
}

/// A line, or two, whose calls are needless.
#[derive(Clone, Debug)]
pub struct CallFinding {
    pub pattern: Pattern,
    pub site: SiteStack,
    pub other: Option<SiteStack>,
    /// With the conversion that is its only one.
    pub format: Option<(String, Conversion)>,
    pub figures: Figures,
    pub confidence: Confidence,
    /// Its part of the time of the process, roughly.
    pub share: f64,
    /// Of the calls that would be saved, and of others at the same place in the code.
    pub stacks: BTreeSet<StackId>,
    /// The processor time within these calls; `None` if it was not sampled.
    pub cpu: Option<Share>,
}

impl CallFinding {
    /// 0 to 1; 0 if it was not sampled.
    pub fn cpu_share(&self) -> f64 {
        self.cpu.map_or(0.0, |cpu| cpu.share)
    }

    /// Whether it takes enough time to be shown without `--all`.
    pub fn is_shown_by_itself(&self) -> bool {
        self.share.max(self.cpu_share()) >= WORTH_SHARE
    }
}

/// A smaller share is shown with `--all` only.
const WORTH_SHARE: f64 = 0.005;

/// Observes the calls of each process image.
#[derive(Default)]
pub struct Calls {
    /// Findings, the weightiest first; `None` if neither system calls nor copies were recorded.
    pub images: Vec<Option<Vec<CallFinding>>>,
    wakes: wakes::Wakes,
    runs: runs::Runs,
    names: names::Names,
    bytes: bytes::Bytes,
    blocks: blocks::Blocks,
    blocks_are_judged: bool,
    formats: formats::Formats,
    ns_per_tick: f64,
    any: bool,
}

impl Observer for Calls {
    type Note = ();

    fn begin_image(&mut self, trace: &Trace) {
        self.ns_per_tick = trace.clock().ns_per_tick;
        self.any = false;
        if trace.process().origin == Origin::Fork {
            self.runs.begin_child();
        }
        let kinds = FileHeader::COPIES | FileHeader::CONTENTS;
        self.blocks_are_judged = trace.asked_for(kinds);
    }

    #[inline]
    fn event(&mut self, event: &Event, _: &Events<'_>) {
        let concerns = matches!(
            event.action,
            Action::SystemCall { .. } | Action::Copy { .. }
        );
        if concerns || self.any || self.blocks_are_judged {
            self.add(event);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let mut concluded = Concluded::default();
        std::mem::take(&mut self.wakes).conclude(&mut concluded);
        std::mem::take(&mut self.runs).conclude(&mut concluded);
        std::mem::take(&mut self.names).conclude(&mut concluded);
        std::mem::take(&mut self.bytes).conclude(&mut concluded);
        std::mem::take(&mut self.blocks).conclude(&mut concluded);
        std::mem::take(&mut self.formats).conclude(&mut concluded);
        let found = self.any.then(|| by_line(image, &mut concluded));
        self.images.push(found);
    }
}

impl Calls {
    fn add(&mut self, event: &Event) {
        if self.blocks_are_judged {
            self.blocks.event(&event.action);
        }
        match event.action {
            Action::SystemCall {
                call,
                result,
                ticks,
                limit,
                descriptor,
                stack,
                ..
            } => {
                let called = Called {
                    call,
                    result,
                    limit,
                    descriptor,
                    stack,
                    thread: event.thread,
                    end_ns: event.time as f64 * self.ns_per_tick,
                    ns: ticks as f64 * self.ns_per_tick,
                };
                self.any = true;
                self.wakes.called(&called);
                self.runs.called(&called);
                self.names.called(&called);
                self.bytes.event(event);
            }
            Action::Copy { .. } => {
                self.any = true;
                self.bytes.event(event);
                self.formats.event(event);
            }
            Action::Alloc { .. } | Action::Free { .. } | Action::ReallocEnd { .. } if self.any => {
                self.bytes.event(event);
            }
            _ => {}
        }
    }
}

/// Of the patterns that were found.
fn totals_by_line(
    image: &mut Finished<'_, '_>,
    concluded: &Concluded,
) -> BTreeMap<(Pattern, String), (u64, u64)> {
    let patterns: BTreeSet<Pattern> = concluded.found.iter().map(|found| found.pattern).collect();
    let mut totals = BTreeMap::new();
    let wanted = concluded.totals.iter();
    for total in wanted.filter(|total| patterns.contains(&total.pattern)) {
        let place = print::place(&attributed(image, total.stack));
        let sums: &mut (u64, u64) = totals.entry((total.pattern, place)).or_default();
        *sums = (sums.0 + total.of, sums.1 + total.others);
    }
    totals
}

fn attributed(image: &mut Finished<'_, '_>, stack: StackId) -> SiteStack {
    let (chain, attribution) = image.attribute(stack);
    SiteStack {
        chain,
        site: attribution.site,
    }
}

/// Removes the findings of `weaker` at lines that have one of `stronger`.
fn leave_to(findings: &mut Vec<CallFinding>, stronger: Pattern, weaker: Pattern) {
    let lines: Vec<String> = findings
        .iter()
        .filter(|finding| finding.pattern == stronger)
        .map(|finding| print::place(&finding.site))
        .collect();
    findings.retain(|finding| {
        finding.pattern != weaker || !lines.contains(&print::place(&finding.site))
    });
}

/// The format at an address and its conversion, if it has one.
fn only_conversion(image: &mut Finished<'_, '_>, address: u64) -> Option<(String, Conversion)> {
    let format = image.text(address)?;
    let conversion = Conversion::only(&format)?;
    Some((format, conversion))
}

/// Merges what is said of one pair of lines; the heaviest stack of each is shown.
fn by_line(image: &mut Finished<'_, '_>, concluded: &mut Concluded) -> Vec<CallFinding> {
    order::sort_by_key(&mut concluded.found, |conclusion| {
        let stacks = (conclusion.stack, conclusion.other, conclusion.format);
        (
            Reverse(conclusion.figures.calls),
            conclusion.pattern,
            stacks,
        )
    });
    let mut merged: BTreeMap<(Pattern, String, String), CallFinding> = BTreeMap::new();
    let mut formats: HashMap<u64, Option<(String, Conversion)>> = HashMap::new();
    for conclusion in &concluded.found {
        let format = conclusion.format.map(|address| {
            let known = formats.entry(address);
            known.or_insert_with(|| only_conversion(image, address))
        });
        let format = match format {
            Some(None) => continue,
            format => format.cloned().flatten(),
        };
        let site = attributed(image, conclusion.stack);
        let other = conclusion.other.map(|other| attributed(image, other));
        let key = (
            conclusion.pattern,
            print::place(&site),
            match &format {
                Some((format, _)) => format.clone(),
                None if conclusion.pattern == Pattern::SourceLivesOn => String::new(),
                None => other.as_ref().map_or_else(String::new, print::place),
            },
        );
        merged
            .entry(key)
            .and_modify(|found| {
                found.figures.merge(&conclusion.figures);
                found.stacks.insert(conclusion.needless());
            })
            .or_insert(CallFinding {
                pattern: conclusion.pattern,
                site,
                other,
                format,
                figures: conclusion.figures,
                confidence: Confidence::Medium,
                share: 0.0,
                stacks: BTreeSet::from([conclusion.needless()]),
                cpu: None,
            });
    }
    let totals = totals_by_line(image, concluded);
    for ((pattern, place, _), finding) in &mut merged {
        if let Some((of, others)) = totals.get(&(*pattern, place.clone())) {
            (finding.figures.of, finding.figures.others) = (*of, *others);
        }
    }
    let mut findings: Vec<CallFinding> = merged
        .into_values()
        .filter(|finding| finding.figures.is_worth(finding.pattern))
        .collect();
    for finding in &mut findings {
        finding.share =
            finding.figures.weight_ns(finding.pattern) / image.duration_ns.max(1) as f64;
        if matches!(finding.pattern, Pattern::Wakes | Pattern::MapInTurn) {
            finding.confidence = Confidence::High;
        }
    }
    // The cure of a wake-up is not to collect many, and of a copy whose source lives on not to look for it.
    leave_to(&mut findings, Pattern::Wakes, Pattern::SmallWrites);
    leave_to(&mut findings, Pattern::SourceLivesOn, Pattern::SameText);
    let weight_ns = |finding: &CallFinding| finding.figures.weight_ns(finding.pattern);
    order::sort_by(&mut findings, |a, b| weight_ns(b).total_cmp(&weight_ns(a)));
    findings
}
