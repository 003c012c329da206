//! Blocks that live within one call, or of which few live at once: stack, some buffers, one arena.
//!
//! Of each origin the recorded stacks tell the function in whose call every buffer was both begun and
//! freed (`Buffers::owner`), and whether that function had certainly returned in between. How many
//! lived at once, over all origins of a line, is asked of the trace. A function that frees its last
//! block first and then makes the next one looks the same but for the order of its lines, or the
//! block it leaves: neither is advised onto the stack.

use std::collections::HashSet;

use larder_trace::StackId;

use crate::advise::claim::{Claim, Scope};
use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, buffers_whole, grouped_by,
};
use crate::advise::prove::{self, Answers, AtOnce, Questions, Through};
use crate::advise::rank::Worth;
use crate::advise::sizes::Sizes;
use crate::analysis::chain::Location;
use crate::analysis::naming::{function_name, is_start};
use crate::analysis::number::{counted, grouped, percent};
use crate::analysis::plumbing::ModuleRole;
use crate::analysis::resolve::ChainFrame;

/// A local array larger than this may overflow a small thread's stack.
const MOST_STACK_BYTES: u64 = 4096;
/// From so many blocks on the pattern is no chance.
const SURE_BLOCKS: u64 = 100;
/// Buffers that a function can be asked to keep, and how often each of them must be used.
const MOST_KEPT: u64 = 8;
const MOST_KEPT_SHARE: u64 = 4;

/// What is asked of the trace before anything is concluded.
pub struct Asked {
    within: Vec<(Vec<usize>, prove::Asked)>,
    lines: Vec<(Vec<usize>, prove::Asked)>,
    callers: Vec<(Vec<usize>, prove::Asked)>,
}

pub fn ask(image: &ImageFacts, scope: &Worth, questions: &mut Questions) -> Asked {
    let within = grouped_by(image, |_, site| {
        let shared = lives_within(site)?;
        Some((
            site.place(),
            image.place_of(Some(shared.frame)),
            shared.kind(),
        ))
    });
    let begins = |site: &Site| (site.facts.buffers.begun > 0).then(|| site.place());
    let lines = grouped_by(image, |_, site| begins(site));
    let mut callers = grouped_by(image, |_, site| Some((begins(site)?, site.caller)));
    let worth =
        |group: &Vec<usize>| begun(image, group) >= FEWEST_BLOCKS && scope.admits(image, group);
    callers.retain(|group| !lines.contains(group));
    let call = |origin: &usize| {
        let owner = image.sites[*origin].owner.as_ref();
        (
            *origin,
            owner.map_or(StackId::COMPLETE_ROOT, |owner| owner.call),
        )
    };
    let mut at_once = |groups: Vec<Vec<usize>>| -> Vec<(Vec<usize>, prove::Asked)> {
        let groups = groups.into_iter().filter(worth);
        let asked = groups.map(|group| {
            let asked = questions.at_once(&group);
            (group, asked)
        });
        asked.collect()
    };
    let (lines, callers) = (at_once(lines), at_once(callers));
    for origin in within.iter().filter(|group| worth(group)).flatten() {
        if let Some(through) = through(image, &image.sites[*origin]) {
            questions.watch(*origin, through);
        }
    }
    let within = within.into_iter().filter(worth).map(|group| {
        let calls: Vec<_> = group.iter().map(call).collect();
        let asked = questions.at_once_in_calls(&calls);
        (group, asked)
    });
    Asked {
        within: within.collect(),
        lines,
        callers,
    }
}

pub fn conclude(image: &ImageFacts, asked: &Asked, answers: &Answers) -> Vec<Finding> {
    let (mut findings, worth) = (Vec::new(), Worth::of(image));
    let mut explained: HashSet<usize> = HashSet::new();
    for (group, asked) in &asked.within {
        if let Some(finding) = within(image, group, &answers.at_once(*asked)) {
            // Little pieces of a line do not stand for it.
            if finding.confidence > Confidence::Low && worth.admits(image, group) {
                explained.extend(group);
            }
            findings.push(finding);
        }
    }
    // A whole line goes before what one of its callers makes there.
    for (group, asked) in asked.lines.iter().chain(&asked.callers) {
        if group.iter().all(|origin| explained.contains(origin)) {
            continue;
        }
        if let Some(finding) = few_at_once(image, group, &answers.at_once(*asked)) {
            explained.extend(group);
            findings.push(finding);
        }
    }
    findings
}

fn begun(image: &ImageFacts, group: &[usize]) -> u64 {
    let buffers = group
        .iter()
        .map(|origin| &image.sites[*origin].facts.buffers);
    buffers.map(|buffers| buffers.begun).sum()
}

/// The function in whose call all of an origin's buffers are made and freed, if there is one.
fn lives_within(site: &Site) -> Option<Shared<'_>> {
    let fits = site.whole_stack && site.facts.buffers.begun > 0;
    let ends = fits && site.facts.buffers.end_within_a_call();
    let shared = Shared::of(site).filter(|_| ends)?;
    // What ends before `main` does may end anywhere.
    let told = shared.kind() == Kind::Same || !shared.outermost;
    (told && !shared.frees_first).then_some(shared)
}

/// The call that the function with an origin's buffers was called by, if it led to others, too.
fn through(image: &ImageFacts, site: &Site) -> Option<Through> {
    let owner = site.owner.as_ref()?;
    let inward = Shared::of(site)?.inward;
    let mut known: Vec<&Location> = Vec::new();
    let functions = image
        .called
        .get(&owner.call)?
        .iter()
        .map(|(stack, frames)| {
            let same = |other: &&Location| same_call(frames, other, inward);
            let number = known.iter().position(same).unwrap_or_else(|| {
                known.push(frames);
                known.len() - 1
            });
            (*stack, number as u32)
        });
    let functions: Vec<(StackId, u32)> = functions.collect();
    (known.len() > 1).then_some(Through {
        call: owner.call,
        functions,
        jumps: inward == 0,
    })
}

/// Whether two places may be in one call of the function that lies so far inward of those that the
/// compiler put into one.
fn same_call(a: &Location, b: &Location, inward: usize) -> bool {
    let outer = |frames: &Location, at: usize| {
        let frame = frames.iter().rev().nth(at)?;
        let line = frame.source.line.filter(|_| at < inward);
        Some((frame.source.function.clone(), line))
    };
    let shown = a.len() > inward && b.len() > inward;
    shown && (0..=inward).all(|at| outer(a, at) == outer(b, at))
}

/// Where the function in whose call all happens is, seen from the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Same,
    /// Further out.
    Caller,
    /// Inside the library that was called there.
    Inside,
}

/// The innermost function in whose call all was made and freed.
struct Shared<'a> {
    frame: &'a ChainFrame,
    /// Of the functions that the compiler put into one, how many lie around it.
    inward: usize,
    /// How many functions it lies outside of the site; below 0 inside the library called there.
    outward: i64,
    /// Its line that frees comes before the one that makes.
    frees_first: bool,
    /// `main`, or a thread's function: it never returns while the thread lives.
    outermost: bool,
}

impl<'a> Shared<'a> {
    fn kind(&self) -> Kind {
        match self.outward {
            0 => Kind::Same,
            1.. => Kind::Caller,
            _ => Kind::Inside,
        }
    }

    fn of(site: &'a Site) -> Option<Self> {
        let owner = site.owner.as_ref()?;
        let made = site.chain.get(owner.frame)?;
        let freed = owner.frees_frame.and_then(|frame| owner.frees.get(frame));
        // Of functions that the compiler put into one: the innermost that both stacks go through.
        let mut inward = 0;
        let mut lines = (None, None);
        for (index, (a, b)) in made
            .iter()
            .rev()
            .zip(freed.into_iter().flat_map(|f| f.iter().rev()))
            .enumerate()
        {
            let same_call = index == 0 || lines.0 == lines.1;
            if !same_call || a.source.function != b.source.function {
                break;
            }
            (inward, lines) = (index, (a.source.line, b.source.line));
        }
        let in_frame = made.len().checked_sub(inward + 1)?;
        let below: usize = site.chain.iter().take(owner.frame).map(|f| f.len()).sum();
        let outer = site.chain.get(owner.frame + 1);
        Some(Self {
            frame: made.get(in_frame)?,
            inward,
            outward: (below + in_frame) as i64 - site.site? as i64,
            frees_first: lines.0.is_some() && lines.1 < lines.0,
            outermost: outer.is_none_or(|outer| outer.iter().any(starts)),
        })
    }
}

/// Without the C library's symbol table what starts `main` has no name.
fn starts(frame: &ChainFrame) -> bool {
    let unnamed = frame.source.function.is_none() && frame.module.role == ModuleRole::System;
    unnamed || is_start(frame)
}

/// What is said of a group.
struct Advice {
    pattern: Pattern,
    cure: String,
    confidence: Confidence,
    size_bytes: Option<u64>,
    /// The blocks that are not needed.
    kept: Kept,
}

enum Kept {
    None,
    /// So many buffers stay.
    Some(u64),
    /// Buffers beyond this size stay.
    Beyond(u64),
}

/// All buffers are freed in the call of one function that made them.
fn within(image: &ImageFacts, group: &[usize], counted: &AtOnce) -> Option<Finding> {
    let first = &image.sites[*group.first()?];
    let shared = lives_within(first)?;
    if counted.returned > 0 {
        return None;
    }
    let (kind, owner) = (shared.kind(), function_name(shared.frame));
    let largest = largest(image, group);
    let most = counted.most_in_a_call;
    let advice = match (kind, most) {
        (Kind::Inside, _) => inside(&owner),
        (Kind::Same, 1) => same(first, &owner, &largest),
        (Kind::Caller, 1) => caller(&owner, &largest),
        _ if shared.outermost => return None,
        (_, ..=MOST_KEPT) if counted.begun >= MOST_KEPT_SHARE * most => {
            keep_some(&owner, most, &largest)
        }
        _ => arena(&owner),
    };
    let calls = group.iter().filter_map(|origin| {
        let owner = image.sites[*origin].owner.as_ref()?;
        Some((*origin, owner.call))
    });
    let calls: Vec<(usize, StackId)> = calls.collect();
    let scoped = calls.iter().map(|(origin, call)| (*origin, Some(*call)));
    let at_once = at_once(scoped.collect(), Scope::Call, most, counted.begun, &largest);
    let maker = (kind == Kind::Caller).then(|| first.function_name());
    let evidence = vec![
        Claim::EndsWithin {
            calls,
            maker,
            owner,
        },
        at_once,
    ];
    Some(finding(image, group, advice, evidence, &largest))
}

/// Few of all blocks of a line live at once, whoever frees them.
fn few_at_once(image: &ImageFacts, group: &[usize], counted: &AtOnce) -> Option<Finding> {
    let buffers = |origin: &usize| &image.sites[*origin].facts.buffers;
    let foreign = group.iter().any(|origin| buffers(origin).foreign > 0);
    let (scope, most) = match (counted.most, counted.most_of_a_thread) {
        (most @ ..=MOST_KEPT, _) => (Scope::Process, most),
        (_, most @ ..=MOST_KEPT) if !foreign => (Scope::Thread, most),
        _ => return None,
    };
    if counted.begun < FEWEST_BLOCKS.max(MOST_KEPT_SHARE * most) {
        return None;
    }
    let largest = largest(image, group);
    let advice = reuse(scope, most, foreign, &largest);
    let origins = group.iter().map(|origin| (*origin, None)).collect();
    let evidence = vec![at_once(origins, scope, most, counted.begun, &largest)];
    Some(finding(image, group, advice, evidence, &largest))
}

fn at_once(
    origins: Vec<(usize, Option<StackId>)>,
    scope: Scope,
    most: u64,
    begun: u64,
    largest: &Sizes,
) -> Claim {
    Claim::AtOnce {
        origins,
        scope,
        most,
        begun,
        largest_bytes: largest.largest(),
        equal: largest.smallest() == largest.largest(),
    }
}

/// The most that each buffer of a group held.
fn largest(image: &ImageFacts, group: &[usize]) -> Sizes {
    let mut sizes = Sizes::default();
    for origin in group {
        sizes.merge(&image.sites[*origin].facts.buffers.largest);
    }
    sizes
}

fn finding(
    image: &ImageFacts,
    group: &[usize],
    advice: Advice,
    mut evidence: Vec<Claim>,
    largest: &Sizes,
) -> Finding {
    if let Some(container) = image.sites[group[0]].container() {
        evidence.push(format!("the block is a {container}'s").into());
    }
    Finding {
        pattern: advice.pattern,
        site: group[0],
        related: Vec::new(),
        parts: needless(image, group, largest, &advice.kept),
        memory_bytes: 0,
        evidence,
        cure: advice.cure,
        size_bytes: advice.size_bytes,
        confidence: advice.confidence,
    }
}

/// What the buffers of a group ask for that need not be, reallocs included.
fn needless(image: &ImageFacts, group: &[usize], largest: &Sizes, kept: &Kept) -> Vec<Part> {
    let mut parts = buffers_whole(image, group);
    match kept {
        Kept::None => {}
        Kept::Some(stay) => {
            let mut stay = *stay;
            for part in &mut parts {
                let kept = stay.min(part.calls);
                part.calls -= kept;
                stay -= kept;
            }
        }
        Kept::Beyond(size) => {
            let share = largest.up_to(*size) as f64 / largest.total().max(1) as f64;
            for part in parts.iter_mut().filter(|_| share < 1.0) {
                part.calls = (part.calls as f64 * share) as u64;
                part.bytes = (part.bytes as f64 * share) as u64;
            }
        }
    }
    parts
}

fn sure(sizes: &Sizes) -> Confidence {
    if sizes.total() >= SURE_BLOCKS {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

fn same(site: &Site, owner: &str, sizes: &Sizes) -> Advice {
    let confidence = sure(sizes);
    let most = sizes.covering(0.99);
    if most > MOST_STACK_BYTES {
        return Advice {
            pattern: Pattern::Reuse,
            cure: format!(
                "too large for the stack: keep one buffer for {owner}, in its object or per \
                 thread, and make it larger when it must be"
            ),
            confidence,
            size_bytes: Some(most),
            kept: Kept::Some(1),
        };
    }
    let size = match sizes.largest() {
        largest @ ..=MOST_STACK_BYTES => largest,
        _ => most,
    };
    Advice {
        pattern: Pattern::Stack,
        cure: stack_cure(site, sizes, size),
        confidence,
        size_bytes: Some(size),
        kept: Kept::Beyond(size),
    }
}

fn stack_cure(site: &Site, sizes: &Sizes, size: u64) -> String {
    let bytes = counted(size, "byte");
    match site.container() {
        Some("std::string") => format!(
            "a std::string_view, or one string that is kept and assigned to; the longest needs {bytes}"
        ),
        Some("std::vector") => {
            format!("a std::array of {bytes}, or one vector that is kept and cleared")
        }
        _ if sizes.largest() > size => format!(
            "a local array of {bytes} covers {:.1} % of the calls; malloc for the larger ones",
            percent(sizes.up_to(size), sizes.total())
        ),
        _ => format!(
            "a local array of {bytes} would have done for all; malloc only for what is larger"
        ),
    }
}

/// What another run may do.
const ELSE_MALLOC: &str = "malloc for one that is wanted while it is in use";

fn caller(owner: &str, sizes: &Sizes) -> Advice {
    let largest = counted(sizes.largest(), "byte");
    let cure = match sizes.largest() {
        ..=MOST_STACK_BYTES => format!(
            "let {owner} lend the memory: a local array of {largest} passed down, or one buffer \
             kept over its iterations; {ELSE_MALLOC}"
        ),
        _ => format!(
            "let {owner} keep one buffer over its iterations and pass it down; {ELSE_MALLOC}"
        ),
    };
    Advice {
        pattern: Pattern::Reuse,
        cure,
        confidence: Confidence::Medium,
        size_bytes: Some(sizes.largest()),
        kept: Kept::Some(1),
    }
}

fn keep_some(owner: &str, most: u64, sizes: &Sizes) -> Advice {
    Advice {
        pattern: Pattern::Reuse,
        cure: format!(
            "let {owner} keep a free list of {most}, {} at most each; malloc when it is empty",
            counted(sizes.largest(), "byte")
        ),
        confidence: Confidence::Medium,
        size_bytes: Some(sizes.largest()),
        kept: Kept::Some(most),
    }
}

fn inside(owner: &str) -> Advice {
    Advice {
        pattern: Pattern::InLibrary,
        cure: format!(
            "call {owner} less often, or use a variant of it that keeps its memory between calls"
        ),
        confidence: Confidence::Low,
        size_bytes: None,
        kept: Kept::None,
    }
}

fn arena(owner: &str) -> Advice {
    Advice {
        pattern: Pattern::Arena,
        cure: format!(
            "give {owner} an arena (one block, carved and dropped whole), or one array in place of \
             the single blocks"
        ),
        confidence: Confidence::Low,
        size_bytes: None,
        kept: Kept::None,
    }
}

/// The blocks outlive the function that makes them: who has one may ask for another, whatever this
/// run did, so one buffer alone is never enough.
fn reuse(scope: Scope, most: u64, foreign: bool, sizes: &Sizes) -> Advice {
    let enough = sizes.covering(0.99);
    let list = match (most, scope, foreign) {
        (1, Scope::Thread, _) => "keep the block that is freed, one for each thread,".to_owned(),
        (1, _, false) => "keep the block that is freed".to_owned(),
        (_, Scope::Thread, _) => format!("keep up to {most} that are freed, for each thread,"),
        (_, _, false) => format!("keep up to {most} that are freed"),
        (_, _, true) => format!(
            "keep {} under a lock, for another thread frees them,",
            match most {
                1 => "the block that is freed".to_owned(),
                most => format!("up to {most} that are freed"),
            }
        ),
    };
    let cure = format!(
        "{list} for the next that is asked for, and malloc when none is there: {} cover 99 % of \
         them, {} all",
        counted(enough, "byte"),
        grouped(sizes.largest())
    );
    Advice {
        pattern: Pattern::Reuse,
        cure,
        confidence: Confidence::Medium,
        size_bytes: Some(enough),
        kept: Kept::Some(most),
    }
}
