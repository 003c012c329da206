//! What costs memory rather than calls: tiny blocks, what grows without end, what is left.

use crate::advise::costs::Costs;
use crate::advise::facts::{ImageFacts, PARTS, Site};
use crate::advise::finding::{Confidence, FEWEST_BLOCKS, Finding, Pattern, grouped_by, no_calls};
use crate::analysis::number::{counted, grouped, percent};
use crate::analysis::plumbing::ModuleRole;

/// A share of the peak, or of the calls, from which on tiny blocks are worth a change.
const TINY_SHARE: f64 = 1.0;
/// Less than this is no cost, whatever its share.
const WORTH_BYTES: u64 = 4096;
/// A run with fewer calls of a line than this is too short to say that it grows.
const GROWING_CALLS: u64 = 1000;
/// A site must hold this share of the peak, in percent, to be called growing or left.
const HELD_SHARE: f64 = 1.0;

/// Blocks for which the allocator takes at least as much again as they hold.
pub fn tiny(image: &ImageFacts, costs: &Costs) -> Vec<Finding> {
    let outweighed = |site: &Site| {
        let size = site.facts.sizes.largest();
        site.sums.calls >= FEWEST_BLOCKS && costs.block_bytes(size) / 2 >= size
    };
    let groups = grouped_by(image, |_, site| outweighed(site).then(|| site.place()));
    let finding = |group: &Vec<usize>| {
        let sites = || group.iter().map(|origin| &image.sites[*origin].sums);
        let blocks: u64 = sites().map(|sums| sums.peak_blocks).sum();
        let held: u64 = sites().map(|sums| sums.peak_bytes).sum();
        let lost: u64 = sites().map(|sums| costs.overhead_bytes(sums)).sum();
        let mean = held / blocks.max(1);
        let worth = percent(lost, image.peak_bytes) >= TINY_SHARE;
        (worth && lost >= WORTH_BYTES).then(|| Finding {
            pattern: Pattern::Tiny,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: lost,
            evidence: vec![format!(
                "{} of {mean} bytes live at the peak; malloc takes {} for each",
                counted(blocks, "block"),
                costs.block_bytes(mean)
            )],
            cure: "make them part of what points to them, or take them from a pool of that size: \
                   many in one block"
                .to_owned(),
            size_bytes: Some(mean),
            confidence: Confidence::Medium,
        })
    };
    groups.iter().filter_map(finding).collect()
}

/// Lines that hold more in each part of the run, though they free, too.
pub fn growing(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.sums.live_blocks >= FEWEST_BLOCKS).then(|| site.place())
    });
    let finding =
        |group: &Vec<usize>| {
            let mut least = [0u64; PARTS];
            let (mut freed, mut calls, mut live) = (0, 0, 0);
            for site in group.iter().map(|origin| &image.sites[*origin]) {
                for (sum, part) in least.iter_mut().zip(site.facts.least) {
                    *sum = sum.saturating_add(part.unwrap_or(0));
                }
                freed += site.facts.freed;
                calls += site.sums.calls;
                live += site.sums.live_bytes;
            }
            let rises = least.windows(2).filter(|pair| pair[1] > pair[0]).count();
            let falls = least.windows(2).filter(|pair| pair[1] < pair[0]).count();
            let second_half = least[PARTS - 1].saturating_sub(least[PARTS / 2]);
            let steady = rises >= PARTS - 2 && falls == 0;
            let heavy = percent(second_half, image.peak_bytes) >= HELD_SHARE
                && second_half >= WORTH_BYTES
                && calls >= GROWING_CALLS;
            let churns = freed.saturating_mul(10) >= calls;
            (steady && heavy).then(|| {
                Finding {
            pattern: Pattern::Growing,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: second_half,
            evidence: vec![
                format!(
                    "more was live in every sixteenth of the run than in the one before: {} bytes \
                     halfway, {} at the end",
                    grouped(least[PARTS / 2]),
                    grouped(live)
                ),
                format!("{} of its {} were freed", grouped(freed), counted(calls, "block")),
            ],
            cure: "bound it: evict, expire, or drop what is done; if it is meant to be kept, this \
                   is what it will cost"
                .to_owned(),
            size_bytes: None,
            confidence: if churns { Confidence::Medium } else { Confidence::Low },
        }
            })
        };
    groups.iter().filter_map(finding).collect()
}

/// What was live when the program ended.
pub fn leaks(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.sums.live_blocks > 0 && !is_reserve(site)).then(|| site.place())
    });
    let finding = |group: &Vec<usize>| {
        let sites = || group.iter().map(|origin| &image.sites[*origin]);
        let blocks: u64 = sites().map(|site| site.sums.live_blocks).sum();
        let bytes: u64 = sites().map(|site| site.sums.live_bytes).sum();
        let calls: u64 = sites().map(|site| site.sums.calls).sum();
        let freed: u64 = sites().map(|site| site.facts.freed).sum();
        // Of a line whose blocks are mostly freed, those that are not were forgotten.
        let forgotten = blocks >= FEWEST_BLOCKS && freed >= 4 * blocks && bytes >= WORTH_BYTES;
        let owner = holder(image, group);
        let mut evidence = vec![format!(
            "{} of {} live at the end, {}",
            grouped(blocks),
            counted(calls, "block"),
            counted(bytes, "byte")
        )];
        let cure = match owner {
            Some(owner) => {
                evidence.push(format!(
                    "indirect: each was made with one of {}, which is live too",
                    image.sites[owner].shown()
                ));
                format!(
                    "free them where the blocks of {} are freed",
                    image.sites[owner].function_name()
                )
            }
            None if forgotten => {
                "others of this line are freed: find the path on which these are not".to_owned()
            }
            None => "free them at the end, or keep them on purpose and say so".to_owned(),
        };
        (percent(bytes, image.peak_bytes) >= HELD_SHARE || forgotten).then(|| Finding {
            pattern: Pattern::Leak,
            site: group[0],
            related: owner.into_iter().collect(),
            parts: no_calls(image, group),
            memory_bytes: bytes,
            evidence,
            cure,
            size_bytes: None,
            confidence: match (forgotten, owner) {
                (true, None) => Confidence::Medium,
                _ => Confidence::Low,
            },
        })
    };
    groups.iter().filter_map(finding).collect()
}

/// Whether the C or C++ library made it by itself, as for exceptions that find no memory: the program
/// has no part in it.
fn is_reserve(site: &Site) -> bool {
    let mut frames = site
        .chain
        .iter()
        .flat_map(|location| location.iter())
        .peekable();
    frames.peek().is_some() && frames.all(|frame| frame.module.role != ModuleRole::Program)
}

/// The origin with whose live blocks all live blocks of these were made.
fn holder(image: &ImageFacts, group: &[usize]) -> Option<usize> {
    let mut owner = None;
    for origin in group {
        let live = image.sites[*origin].sums.live_blocks;
        let (held_by, _) = image.pairs.iter().find(|((first, second), pair)| {
            *second as usize == *origin && *first != *second && pair.live >= live && live > 0
        })?;
        owner = Some(held_by.0 as usize);
    }
    owner.filter(|owner| !group.contains(owner))
}
