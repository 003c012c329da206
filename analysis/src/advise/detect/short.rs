//! Blocks that live within one call, or of which few live at once: stack, a few buffers, one arena.
//!
//! For each origin the recorded stacks show the function within whose call every buffer was both
//! allocated and freed (`Buffers::owner`), and whether that function had certainly returned in between.
//! `prove` counts how many lived at once, over all origins of a line. A function that frees its last
//! block and then allocates the next one looks the same except for the order of its lines, or the block
//! that it leaves: neither is advised onto the stack.

use std::rc::Rc;

use larder_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cures::{self, About, Advice, Kept, Lender};
use crate::advise::claim::{Claim, Scope};
use crate::advise::element::Types;
use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Keeper, Part, buffers_up_to, buffers_whole, grouped_by,
};
use crate::advise::packages::{ends_at_home, is_elsewhere, is_fetched, package};
use crate::advise::prove::{self, Answers, AtOnce, Questions, Through, Watched};
use crate::advise::rank::Worth;
use crate::advise::sizes::Sizes;
use crate::reading::chain::{Chain, Location};
use crate::reading::naming::{function_name, is_start};
use crate::reading::plumbing::ModuleRole;
use crate::reading::resolve::ChainFrame;

/// The largest number of buffers that a function is asked to keep, and how often each must be used.
const MOST_KEPT: u64 = 8;
const MOST_KEPT_SHARE: u64 = 4;

/// Parts of names of functions that only free.
const FREES: &[&str] = &[
    "free", "delete", "drop", "release", "destroy", "close", "clear", "cleanup", "dispose", "fini",
    "unref",
];

/// The questions about the trace.
pub struct Asked {
    within: Vec<(Vec<usize>, prove::Asked)>,
    pub(super) lines: Vec<(Vec<usize>, prove::Asked)>,
    callers: Vec<(Vec<usize>, prove::Asked)>,
}

pub fn ask(image: &ImageFacts, scope: &Worth, questions: &mut Questions) -> Asked {
    let within = grouped_by(image, |_, site| {
        let shared = lives_within(site)?;
        Some((
            site.place,
            image.place_of(Some(shared.frame)),
            shared.kind(),
            site.container,
        ))
    });
    // An object and the blocks of its containers have different cures.
    let line = |site: &Site| (site.place, site.container);
    let begins = |site: &Site| (site.facts.buffers.begun > 0).then(|| line(site));
    let lines = grouped_by(image, |_, site| begins(site));
    let mut callers = grouped_by(image, |_, site| Some((begins(site)?, site.caller)));
    let worth =
        |group: &Vec<usize>| begun(image, group) >= FEWEST_BLOCKS && scope.admits(image, group);
    let whole: FxHashSet<&Vec<usize>> = lines.iter().collect();
    callers.retain(|group| !whole.contains(group));
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
    // Many origins end in one call: each is watched once.
    let mut calls: FxHashMap<(StackId, usize), Option<Watched>> = FxHashMap::default();
    for origin in within.iter().filter(|group| worth(group)).flatten() {
        let site = &image.sites[*origin];
        let Some((owner, shared)) = site.owner.as_ref().zip(Shared::of(site)) else {
            continue;
        };
        let watched = calls.entry((owner.call, shared.inward)).or_insert_with(|| {
            let through = through(image, owner.call, shared.inward)?;
            Some(questions.add_call(through))
        });
        if let Some(watched) = watched {
            questions.watch(*origin, *watched);
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

/// The findings, and the origins that they make needless.
pub struct Found {
    pub findings: Vec<Finding>,
    /// Origins whose blocks are freed within the call of a function that allocates them itself or by a
    /// callee.
    pub within: FxHashSet<usize>,
    /// Of these, those that it can keep, on its stack or between calls.
    pub kept: FxHashSet<usize>,
}

pub fn conclude(image: &ImageFacts, types: &Types<'_>, asked: &Asked, answers: &Answers) -> Found {
    let (mut findings, worth) = (Vec::new(), Worth::of(image));
    let mut explained: FxHashSet<usize> = FxHashSet::default();
    let (mut all_within, mut kept) = (FxHashSet::default(), FxHashSet::default());
    for (group, asked) in &asked.within {
        if let Some((finding, is_kept)) = within(image, types, group, &answers.at_once(*asked)) {
            // A small part of a line does not stand for the whole line.
            if finding.confidence > Confidence::Low && worth.admits(image, group) {
                explained.extend(group);
            }
            if finding.confidence > Confidence::Low {
                all_within.extend(group);
                kept.extend(group.iter().filter(|_| is_kept));
            }
            findings.push(finding);
        }
    }
    // A whole line takes precedence over the part of one of its callers.
    for (group, asked) in asked.lines.iter().chain(&asked.callers) {
        if group.iter().all(|origin| explained.contains(origin)) {
            continue;
        }
        if let Some(finding) = few_at_once(image, types, group, &answers.at_once(*asked)) {
            explained.extend(group);
            findings.push(finding);
        }
    }
    Found {
        findings,
        within: all_within,
        kept,
    }
}

fn begun(image: &ImageFacts, group: &[usize]) -> u64 {
    let buffers = group
        .iter()
        .map(|origin| &image.sites[*origin].facts.buffers);
    buffers.map(|buffers| buffers.begun).sum()
}

/// The function within whose call all of an origin's buffers are allocated and freed, if there is one.
fn lives_within(site: &Site) -> Option<Shared<'_>> {
    let fits = site.whole_stack && site.facts.buffers.begun > 0;
    let ends = fits && site.facts.buffers.end_within_a_call();
    let shared = Shared::of(site).filter(|_| ends)?;
    // Buffers that live within `main` may be freed anywhere.
    let bounded = shared.kind() == Kind::Same || !shared.outermost;
    (bounded && !shared.frees_first).then_some(shared)
}

/// The call that led to the function with some origins' buffers, which is inlined into so many others, if it led to
/// others, too.
fn through(image: &ImageFacts, call: StackId, inward: usize) -> Option<Through> {
    let mut known: Vec<&Location> = Vec::new();
    let functions = image.called.get(&call)?.iter().map(|(stack, frames)| {
        let same = |other: &&Location| same_call(frames, other, inward);
        let number = known.iter().position(same).unwrap_or_else(|| {
            known.push(frames);
            known.len() - 1
        });
        (*stack, number as u32)
    });
    let functions: Vec<(StackId, u32)> = functions.collect();
    (known.len() > 1).then_some(Through {
        call,
        functions,
        jumps: inward == 0,
    })
}

/// Whether two places may be in one call of the function at this depth of inlining.
fn same_call(a: &Location, b: &Location, inward: usize) -> bool {
    let outer = |frames: &Location, at: usize| {
        let frame = frames.iter().rev().nth(at)?;
        let line = frame.source.line.filter(|_| at < inward);
        Some((frame.source.function.clone(), line))
    };
    let shown = a.len() > inward && b.len() > inward;
    shown && (0..=inward).all(|at| outer(a, at) == outer(b, at))
}

/// The position of the owner, seen from the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Same,
    /// Further out.
    Caller,
    /// Inside the library that the line calls.
    Inside,
}

/// The innermost function within whose call all was allocated and freed.
struct Shared<'a> {
    frame: &'a ChainFrame,
    /// The number of functions around it that it is inlined into.
    inward: usize,
    /// The number of functions by which it lies outside of the site; below 0 inside the library called
    /// there.
    outward: i64,
    /// The freeing line comes before the allocating one.
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
        // Of functions inlined into each other, the innermost on both stacks.
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
            outermost: outer.is_none_or(|outer| outer.iter().any(starts))
                || starts_rust(&site.chain, owner.frame + 1),
        })
    }
}

/// Whether Rust's runtime calls a closure here: its `main`, or a thread's.
fn starts_rust(chain: &Chain, frame: usize) -> bool {
    let called = chain
        .iter()
        .skip(frame)
        .take(2)
        .flat_map(|frames| frames.iter());
    let name = |frame: &ChainFrame| Some(frame.source.function.as_ref()?.name.clone());
    called
        .filter_map(name)
        .any(|name| name.ends_with("__rust_begin_short_backtrace"))
}

/// Whether a call of the function allocates one of an origin's buffers and no more: its loop lies
/// further out, or the function had returned before the next.
fn makes_one(site: &Site) -> bool {
    let Some(owner) = &site.owner else {
        return false;
    };
    match site
        .loop_place
        .as_ref()
        .and_then(|place| place.depth(&site.chain))
    {
        Some(depth) => depth > owner.frame,
        None => {
            let outer = site.chain.depth().saturating_sub(owner.frame + 1);
            site.facts.stayed(outer).is_some_and(|percent| percent < 50)
        }
    }
}

/// Without the C library's symbol table the function that starts `main` has no name.
fn starts(frame: &ChainFrame) -> bool {
    let unnamed = frame.source.function.is_none() && frame.module.role == ModuleRole::System;
    unnamed || is_start(frame)
}

/// The finding if all buffers are freed within the call of one function that allocated them.
///
/// Also returns whether that function keeps them, on its stack or between calls.
fn within(
    image: &ImageFacts,
    types: &Types<'_>,
    group: &[usize],
    counted: &AtOnce,
) -> Option<(Finding, bool)> {
    let first = &image.sites[*group.first()?];
    let shared = lives_within(first)?;
    let elsewhere = shared.kind() == Kind::Caller && is_elsewhere(first, shared.frame);
    // A function cannot keep a dependency's buffers; only the line can.
    if counted.returned > 0 || (elsewhere && first.container.is_none()) {
        return None;
    }
    let (kind, owner) = (shared.kind(), function_name(shared.frame));
    let largest = largest(image, group);
    let most = counted.most_in_a_call;
    let about = About {
        site: first,
        largest: &largest,
        once: kind == Kind::Caller && makes_one(first),
        elsewhere,
        freed_by: freed_by(first, &shared),
        owned_elsewhere: owned_elsewhere(image, group, &largest),
    };
    let advice = match (kind, most) {
        (Kind::Inside, _) => cures::inside(&owner),
        _ if let Some(library) = first.library_function() => cures::inside(&library),
        (Kind::Same, 1) => same(image, types, group, &about, &owner),
        (Kind::Caller, 1) => cures::caller(&about, &owner),
        _ if shared.outermost => return None,
        (_, ..=MOST_KEPT) if counted.begun >= MOST_KEPT_SHARE * most => {
            cures::keep_some(&about, &owner, most)
        }
        _ => cures::arena(&owner),
    };
    let is_kept = !about.once || about.may_lie_on_the_stack();
    let keeper = owner.clone();
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
    let mut found = finding(image, group, advice, evidence, &largest);
    let keeper = Keeper {
        function: keeper,
        blocks: counted.begun,
        at_once: most,
    };
    found.keeper = Some(keeper).filter(|_| about.once && first.container.is_none());
    Some((found, is_kept))
}

/// For what the charged line frees itself: an object that another function makes for it is no array.
fn same(
    image: &ImageFacts,
    types: &Types<'_>,
    group: &[usize],
    about: &About<'_>,
    owner: &str,
) -> Advice {
    let plain = about.site.container.is_none();
    match plain.then(|| types.made_for(about.site)).flatten() {
        Some(object) => cures::made(about, owner, &object),
        None => cures::same(about, owner, lender(image, group).as_ref()),
    }
}

/// The physical frame this far outside of the owner's.
fn above(site: &Site, frames: usize) -> Option<&Location> {
    site.chain.get(site.owner.as_ref()?.frame + frames)
}

/// A caller of the owner with several lines that call it, equally often each: within its call they could share
/// one buffer.
fn lender(image: &ImageFacts, group: &[usize]) -> Option<Lender> {
    let sites = || group.iter().map(|origin| &image.sites[*origin]);
    let first = sites().next()?;
    let (caller, beyond) = (above(first, 1)?, above(first, 2)?);
    let function = function_name(caller.last()?);
    let same = |site: &Site| {
        let name = above(site, 1).and_then(|frames| Some(function_name(frames.last()?)));
        let outside = above(site, 2).is_some_and(|frames| Rc::ptr_eq(frames, beyond));
        outside && name.as_ref() == Some(&function)
    };
    let begun = first.facts.buffers.begun;
    let equal = |site: &Site| site.facts.buffers.begun == begun;
    let outermost =
        beyond.iter().any(starts) || starts_rust(&first.chain, first.owner.as_ref()?.frame + 2);
    // The caller may reach one of its lines by several ways within the owner.
    let address = |site: &Site| Some(above(site, 1)?.last()?.address);
    let lines: FxHashSet<Option<u64>> = sites().map(address).collect();
    let fits = group.len() > 1
        && lines.len() == group.len()
        && !outermost
        && sites().all(|site| same(site) && equal(site));
    fits.then_some(Lender {
        function,
        lines: group.len(),
        calls: begun,
    })
}

/// The program's function that the owner calls to free, and which owns the block then.
fn freed_by(site: &Site, shared: &Shared<'_>) -> Option<String> {
    let owner = site.owner.as_ref()?;
    let inner = owner
        .frees
        .iter()
        .take(owner.frees_frame?)
        .flat_map(|f| f.iter());
    let own = |frame: &&ChainFrame| !frame.is_passed_over();
    let name = function_name(inner.filter(own).last()?);
    let lower = name.to_lowercase();
    let plain = name == function_name(shared.frame)
        || name.ends_with("End")
        || lower.ends_with("_end")
        || FREES.iter().any(|word| lower.contains(word));
    (!plain).then_some(name)
}

/// Whether half of the freed blocks or more were just outgrown: the blocks that live at once are the
/// old and the new one.
fn is_growth(image: &ImageFacts, group: &[usize]) -> bool {
    let facts = || group.iter().map(|origin| &image.sites[*origin].facts);
    let freed: u64 = facts().map(|facts| facts.freed).sum();
    let outgrown: u64 = facts().map(|facts| facts.growth.followed_larger).sum();
    freed > 0 && outgrown * 2 >= freed
}

/// The finding if few of all blocks of a line live at once, whichever thread or function frees them.
fn few_at_once(
    image: &ImageFacts,
    types: &Types<'_>,
    group: &[usize],
    counted: &AtOnce,
) -> Option<Finding> {
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
    let first = &image.sites[*group.first()?];
    // Several growing buffers are too much to keep: reserving takes precedence.
    let steps: u64 = group
        .iter()
        .flat_map(|origin| buffers(origin).steps.values())
        .sum();
    if (first.container.is_some() && is_growth(image, group))
        || (most > 1 && steps >= counted.begun)
    {
        return None;
    }
    let largest = largest(image, group);
    let innermost = Shared::of(first);
    // In Rust what a function frees was given to it.
    let given = innermost
        .as_ref()
        .filter(|shared| shared.kind() == Kind::Same && cures::is_of_rust(first));
    let freed_by = given.and_then(|shared| freed_by(first, shared));
    let shared = innermost.filter(|shared| shared.kind() == Kind::Caller);
    // A dependency may ask another for a text, and for an object that can be cleared; a program asks none.
    let elsewhere = shared.as_ref().is_some_and(|shared| {
        let fetched = package(shared.frame).is_some_and(is_fetched);
        let lends = || !first.is_part() || types.can_be_cleared(first);
        is_elsewhere(first, shared.frame) && !(fetched && lends()) && !ends_at_home(first)
    });
    // `main` has no next call for which it could keep anything.
    let owner = shared.filter(|shared| !elsewhere && !shared.outermost);
    let owner = owner.map(|shared| function_name(shared.frame));
    let about = About {
        site: first,
        largest: &largest,
        once: false,
        elsewhere: elsewhere && first.container.is_some(),
        freed_by,
        owned_elsewhere: owned_elsewhere(image, group, &largest),
    };
    let advice = match first.library_function() {
        Some(library) => cures::inside(&library),
        None => cures::reuse(&about, owner.as_deref(), scope, most, foreign),
    };
    let origins = group.iter().map(|origin| (*origin, None)).collect();
    let evidence = vec![at_once(origins, scope, most, counted.begun, &largest)];
    let mut found = finding(image, group, advice, evidence, &largest);
    let keeper = owner.filter(|_| first.container.is_none());
    found.keeper = keeper.map(|function| Keeper {
        function,
        blocks: counted.begun,
        at_once: most,
    });
    Some(found)
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

fn owned_elsewhere(image: &ImageFacts, group: &[usize], largest: &Sizes) -> bool {
    let mut sites = group.iter().map(|origin| &image.sites[*origin]);
    sites.any(|site| cures::is_owned_elsewhere(site, largest))
}

/// The largest size of each buffer of a group.
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
    if let Some(container) = image.sites[group[0]].container {
        evidence.push(format!("the block is a {container}'s").into());
    }
    Finding {
        pattern: advice.pattern,
        site: group[0],
        related: Vec::new(),
        parts: needless(image, group, largest, &advice.kept),
        memory_bytes: 0,
        keeper: None,
        evidence,
        cure: advice.cure,
        size_bytes: advice.size_bytes,
        confidence: advice.confidence,
    }
}

/// The needless requests of a group's buffers, reallocs included.
fn needless(image: &ImageFacts, group: &[usize], largest: &Sizes, kept: &Kept) -> Vec<Part> {
    if let Kept::Beyond(size) = kept {
        return buffers_up_to(image, group, largest, *size);
    }
    let mut parts = buffers_whole(image, group);
    if let Kept::Some(stay) = kept {
        let mut stay = *stay;
        for part in &mut parts {
            let kept = stay.min(part.calls);
            part.calls -= kept;
            stay -= kept;
        }
    }
    parts
}
