//! Joins findings that one change would cure.
//!
//! Invariant: each finding keeps its own claims; there is no claim about all of them together.

use std::collections::BTreeSet;

use larder_base::number::grouped;
use larder_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use super::claim::Claim;
use super::facts::ImageFacts;
use super::finding::{Confidence, Finding, Keeper, Part, Pattern, Place, whole};

/// From this many lines on one arena is less work than a buffer for each.
const ARENA_LINES: usize = 3;

/// The share of a finding's calls that must go into another block, so that it is not kept separately.
const MOSTLY: f64 = 0.9;

/// Whether a finding is shown by default.
type Trusted = bool;

/// The key by which findings are joined.
#[derive(PartialEq, Eq, Hash)]
enum Cure {
    /// A cure of a line for several callers, with the line that the blocks go into.
    At(Place, Option<Place>, String, Trusted),
    /// A function that lets buffers grow at several lines.
    Reserve(String, Trusted),
    /// A function that allocates this, and what goes into it.
    Into(Place),
    /// The owner within whose call several blocks live, and the function that allocates them.
    Arena(String, Option<String>),
    /// An object of several blocks that a function could keep.
    Keep(Keeper),
}

impl Cure {
    fn of(image: &ImageFacts, finding: &Finding) -> Option<Self> {
        let site = &image.sites[finding.site];
        let root = finding.related.last().map(|root| &image.sites[*root]);
        let trusted = finding.confidence > Confidence::Low;
        match (finding.pattern, root) {
            (Pattern::Reserve, _) => Some(Cure::Reserve(site.function_name(), trusted)),
            (Pattern::Embed, Some(root)) if root.function_name() == site.function_name() => {
                Some(Cure::Into(root.place))
            }
            (Pattern::Reuse, None) if finding.keeper.is_some() => {
                finding.keeper.clone().map(Cure::Keep)
            }
            (Pattern::Reuse | Pattern::Embed, _) => {
                let root = root.map(|site| site.place);
                Some(Cure::At(site.place, root, without_owner(finding), trusted))
            }
            _ => None,
        }
    }

    fn arena_of(image: &ImageFacts, finding: &Finding) -> Option<Self> {
        let site = &image.sites[finding.site];
        let within = finding.evidence.iter().find_map(|claim| match claim {
            Claim::EndsWithin {
                owner,
                maker: Some(_),
                ..
            } => Some(owner.clone()),
            _ => None,
        });
        let function = site.site_frame()?.source.function.as_ref();
        let maker = function.map(|function| function.name.to_string());
        let fits = finding.pattern == Pattern::Reuse && site.container.is_none();
        within
            .filter(|_| fits)
            .map(|owner| Cure::Arena(owner, maker))
    }
}

/// The words of the cure but for the function that could keep the blocks.
fn without_owner(finding: &Finding) -> String {
    let owner = finding.evidence.iter().find_map(|claim| match claim {
        Claim::EndsWithin { owner, .. } => Some(owner),
        _ => None,
    });
    owner.map_or_else(
        || finding.cure.clone(),
        |owner| finding.cure.replace(owner, ""),
    )
}

/// Joins the findings with the same cure: the one with most calls gets the parts of all, and the others
/// come with it.
pub fn joined(image: &ImageFacts, findings: Vec<Finding>) -> Vec<(Finding, Vec<Finding>)> {
    let mut lines: FxHashMap<Cure, BTreeSet<Place>> = FxHashMap::default();
    for finding in &findings {
        if let Some(cure) = Cure::arena_of(image, finding) {
            let of_cure = lines.entry(cure).or_default();
            of_cure.insert(image.sites[finding.site].place);
        }
    }
    // A block that is embedded in another is not kept separately.
    let embeds = findings
        .iter()
        .filter(|f| f.pattern == Pattern::Embed && f.confidence > Confidence::Low);
    let embedded: FxHashSet<usize> = embeds
        .flat_map(|f| f.parts.iter().map(|part| part.origin))
        .collect();
    let is_embedded = |finding: &Finding| {
        let parts = finding.parts.iter();
        let within = parts.filter(|part| embedded.contains(&part.origin));
        let calls: u64 = within.map(|part| part.calls).sum();
        calls as f64 >= MOSTLY * finding.calls() as f64
    };
    // What is kept from one line alone is one cure for all its callers.
    let mut keeps: FxHashMap<Keeper, BTreeSet<Place>> = FxHashMap::default();
    for finding in findings.iter().filter(|finding| !is_embedded(finding)) {
        if let Some(keeper) = finding.keeper.clone() {
            let lines = keeps.entry(keeper).or_default();
            lines.insert(image.sites[finding.site].place);
        }
    }
    let is_arena = |cure: &Cure| {
        lines
            .get(cure)
            .is_some_and(|lines| lines.len() >= ARENA_LINES)
    };
    let mut joined: Vec<(Finding, Vec<Finding>)> = Vec::new();
    let mut by_cure: FxHashMap<Cure, usize> = FxHashMap::default();
    for mut finding in findings {
        if is_embedded(&finding) {
            finding.keeper = None;
        }
        let alone = |keeper: &Keeper| keeps.get(keeper).is_none_or(|lines| lines.len() < 2);
        if finding.keeper.as_ref().is_some_and(alone) {
            finding.keeper = None;
        }
        let cure = Cure::arena_of(image, &finding).filter(is_arena);
        let Some(cure) = cure.or_else(|| Cure::of(image, &finding)) else {
            joined.push((finding, Vec::new()));
            continue;
        };
        let at = *by_cure.entry(cure).or_insert(joined.len());
        let Some((first, also)) = joined.get_mut(at) else {
            joined.push((finding, Vec::new()));
            continue;
        };
        if finding.calls() > first.calls() {
            std::mem::swap(&mut finding, first);
        }
        also.push(finding);
    }
    for (first, also) in joined.iter_mut().filter(|(_, also)| !also.is_empty()) {
        merge(image, first, also);
    }
    joined
}

/// Gives the first the parts of all, the least confidence, and a cure for all of their lines.
fn merge(image: &ImageFacts, first: &mut Finding, also: &[Finding]) {
    first.parts = parts_of_all(image, first, also);
    let weakest = also.iter().map(|finding| finding.confidence).min();
    first.confidence = weakest.map_or(first.confidence, |weakest| weakest.min(first.confidence));
    let all = || std::iter::once(&*first).chain(also);
    let lines: BTreeSet<Place> = all().map(|f| image.sites[f.site].place).collect();
    let cure = match (first.pattern, lines.len()) {
        (_, 1) => None,
        (Pattern::Embed, lines) => one_block(image, first, also, lines),
        (Pattern::Reuse, lines) => one_object(first, lines).or_else(|| one_arena(first, lines)),
        _ => None,
    };
    if let Some((pattern, cure)) = cure {
        (first.pattern, first.cure) = (pattern, cure);
    }
}

/// The parts of all, each origin once: a finding about a whole line covers the blocks of its callers.
fn parts_of_all(image: &ImageFacts, first: &Finding, also: &[Finding]) -> Vec<Part> {
    let mut largest_first: Vec<&Finding> = std::iter::once(first).chain(also).collect();
    order::sort_by_key(&mut largest_first, |finding| {
        std::cmp::Reverse(finding.blocks(image).0)
    });
    let mut covered: FxHashSet<usize> = FxHashSet::default();
    let mut parts: Vec<Part> = Vec::new();
    let mut at: FxHashMap<usize, usize> = FxHashMap::default();
    for finding in largest_first {
        let origins = buffers_of(finding);
        if !origins.is_empty() && origins.iter().all(|origin| covered.contains(origin)) {
            continue;
        }
        covered.extend(origins);
        for part in &finding.parts {
            let place = *at.entry(part.origin).or_insert(parts.len());
            let Some(known) = parts.get_mut(place) else {
                parts.push(*part);
                continue;
            };
            let all = whole(image, part.origin);
            known.calls = (known.calls + part.calls).min(all.calls);
            known.bytes = known.bytes.saturating_add(part.bytes).min(all.bytes);
        }
    }
    parts
}

/// The origins that allocate the buffers that a finding counts.
fn buffers_of(finding: &Finding) -> Vec<usize> {
    let counted = finding.evidence.iter().find_map(|claim| match claim {
        Claim::AtOnce { origins, .. } => Some(origins),
        _ => None,
    });
    counted.map_or(Vec::new(), |origins| {
        origins.iter().map(|(origin, _)| *origin).collect()
    })
}

/// The cure if several lines allocate one object's blocks.
fn one_object(first: &Finding, lines: usize) -> Option<(Pattern, String)> {
    let keeper = first.keeper.as_ref()?;
    let cure = format!(
        "let {} keep what all {lines} lines allocate, equally many each, for its next call, if it is one \
         object that can be reset; else cache each line's freed blocks for its next requests, zeroed \
         where calloc was used, and malloc when none is large enough",
        keeper.function
    );
    Some((Pattern::Reuse, cure))
}

/// The cure if several lines of a function allocate what another frees before it returns.
fn one_arena(first: &Finding, lines: usize) -> Option<(Pattern, String)> {
    let owner = first.evidence.iter().find_map(|claim| match claim {
        Claim::EndsWithin { owner, .. } => Some(owner),
        _ => None,
    })?;
    let cure = format!(
        "give {owner} one arena, kept for its next call, and take from it what all {lines} lines \
         allocate, without freeing it; zero it where calloc was used; malloc for what a callee may keep, \
         reallocate or free"
    );
    Some((Pattern::Arena, cure))
}

/// The cure if several lines allocate what goes into one block.
fn one_block(
    image: &ImageFacts,
    first: &Finding,
    also: &[Finding],
    lines: usize,
) -> Option<(Pattern, String)> {
    let all = || std::iter::once(first).chain(also);
    let root = &image.sites[*first.related.last()?];
    // The sizes of a line count once for all its callers.
    let mut sizes: FxHashMap<Place, Option<u64>> = FxHashMap::default();
    for finding in all() {
        let size = sizes
            .entry(image.sites[finding.site].place)
            .or_insert(Some(0));
        *size = (*size)
            .zip(finding.size_bytes)
            .map(|(most, size)| most.max(size));
    }
    let parts: Option<u64> = sizes.values().copied().sum();
    let of = parts.map_or(String::new(), |parts| {
        let bytes = parts.saturating_add(root.facts.sizes.largest());
        format!(" of {} bytes", grouped(bytes))
    });
    let first_before = |claim: &Claim| matches!(claim, Claim::Together { counted, .. } if counted.first_before > 0);
    let order = match all().any(|f| f.evidence.iter().any(first_before)) {
        true => "; it is freed before some of them today: free it last",
        false => "",
    };
    let cure = format!(
        "allocate all {} at once, in one block{of} that begins with what {} allocates{order}; where one \
         alone is reallocated or freed today, do so with all, or move that one to a block of its own first",
        lines + 1,
        root.shown()
    );
    Some((Pattern::Embed, cure))
}
