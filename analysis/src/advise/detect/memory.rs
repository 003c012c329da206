//! What costs memory rather than calls: tiny blocks, what grows without end, what is left.

use larder_base::number::{counted, percent};

use crate::advise::claim::Claim;
use crate::advise::costs::Costs;
use crate::advise::facts::{ImageFacts, PARTS, Site};
use crate::advise::finding::{Confidence, FEWEST_BLOCKS, Finding, Pattern, grouped_by, no_calls};
use crate::advise::prove::{self, Answers, AtOnce, Questions};
use crate::reading::plumbing::ModuleRole;

/// A share of the peak, or of the calls, from which on tiny blocks are worth a change.
const TINY_SHARE: f64 = 1.0;
/// Less than this is no cost, whatever its share.
const WORTH_BYTES: u64 = 4096;
/// A run with fewer calls of a line than this is too short to say that it grows.
const GROWING_CALLS: u64 = 1000;
/// A site must hold this share of the peak, in percent, to be called growing or left.
const HELD_SHARE: f64 = 1.0;
/// What is lost at the end must hold this share of the peak, in percent, to be trusted as a leak.
const MUCH_OF_PEAK: f64 = 10.0;
/// Of a trace in which nobody looked.
const UNKNOWN_REACH: &str =
    "whether they could still be reached this run cannot tell: record --leaks, of one that exits";

/// Blocks for which the allocator takes at least as much again as they hold.
pub fn tiny(image: &ImageFacts, costs: &Costs) -> Vec<Finding> {
    let outweighed = |site: &Site| {
        let size = site.facts.sizes.largest();
        site.sums.calls >= FEWEST_BLOCKS && costs.block_bytes(size) / 2 >= size
    };
    let groups = grouped_by(image, |_, site| outweighed(site).then_some(site.place));
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
            keeper: None,
            evidence: vec![
                format!(
                    "{} of {mean} bytes live at the peak; malloc takes {} for each",
                    counted(blocks, "block"),
                    costs.block_bytes(mean)
                )
                .into(),
            ],
            cure: "make them part of what points to them, or take them from a pool of that size: \
                   many in one block"
                .to_owned(),
            size_bytes: Some(mean),
            confidence: Confidence::Medium,
        })
    };
    groups.iter().filter_map(finding).collect()
}

/// Lines, by caller, of which something lives at the end, and what was asked of them.
pub struct Asked(Vec<(Vec<usize>, prove::Asked)>);

pub fn ask(image: &ImageFacts, questions: &mut Questions) -> Asked {
    let groups = grouped_by(image, |_, site| {
        (site.facts.buffers.begun > 0).then_some((site.place, site.caller))
    });
    let grow = groups.into_iter().filter(|group| {
        let sum = |of: fn(&Site) -> u64| group.iter().map(|origin| of(&image.sites[*origin])).sum();
        let (freed, begun): (u64, u64) = (
            sum(|s| s.facts.buffers.freed),
            sum(|s| s.facts.buffers.begun),
        );
        begun >= freed + FEWEST_BLOCKS && begun >= GROWING_CALLS
    });
    let asked = grow.map(|group| {
        let asked = questions.at_once(&group);
        (group, asked)
    });
    Asked(asked.collect())
}

/// Lines that hold more in each part of the run, though they free, too.
pub fn growing(image: &ImageFacts, asked: &Asked, answers: &Answers) -> Vec<Finding> {
    let asked = asked.0.iter();
    let found = asked.filter_map(|(group, asked)| grows(image, group, &answers.at_once(*asked)));
    found.collect()
}

fn grows(image: &ImageFacts, group: &[usize], counted_blocks: &AtOnce) -> Option<Finding> {
    let least = counted_blocks.least;
    let freed: u64 = group
        .iter()
        .map(|o| image.sites[*o].facts.buffers.freed)
        .sum();
    let rises = least.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let falls = least.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let second_half = least[PARTS - 1].saturating_sub(least[PARTS / 2]);
    let steady = rises >= PARTS - 2 && falls == 0;
    let heavy = percent(second_half, image.peak_bytes) >= HELD_SHARE && second_half >= WORTH_BYTES;
    let churns = freed.saturating_mul(10) >= counted_blocks.begun;
    (steady && heavy).then(|| Finding {
        pattern: Pattern::Growing,
        site: group[0],
        related: Vec::new(),
        parts: no_calls(image, group),
        memory_bytes: second_half,
        keeper: None,
        evidence: vec![
            Claim::Rises {
                origins: group.to_vec(),
                halfway_bytes: least[PARTS / 2],
                end_bytes: least[PARTS - 1],
            },
            Claim::Freed {
                origins: group.to_vec(),
                freed,
                begun: counted_blocks.begun,
            },
        ],
        cure: "bound it: evict, expire, or drop what is done; if it is meant to be kept, this \
               is what it will cost"
            .to_owned(),
        size_bytes: None,
        confidence: if churns {
            Confidence::Medium
        } else {
            Confidence::Low
        },
    })
}

/// What nothing led to any more when the program ended, by line and by who called its function: other
/// callers may free theirs.
pub fn lost(image: &ImageFacts, holder: impl Fn(&[usize]) -> Option<usize>) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.facts.lost > 0 && !is_reserve(site)).then_some((site.place, site.caller))
    });
    let finding = |group: &Vec<usize>| {
        let sum = |of: fn(&Site) -> u64| {
            let sums = group.iter().map(|origin| of(&image.sites[*origin]));
            sums.fold(0, u64::saturating_add)
        };
        let bytes = sum(|site| site.facts.lost_bytes);
        let mut evidence = vec![Claim::Lost {
            origins: group.clone(),
            blocks: sum(|site| site.facts.lost),
            bytes,
            live: sum(|site| site.sums.live_blocks),
        }];
        let owner = holder(group).filter(|owner| image.sites[*owner].facts.lost > 0);
        let cure = match owner {
            Some(owner) => {
                let site = &image.sites[owner];
                evidence.push(
                    format!(
                        "indirect: each was made with one of {}, lost too",
                        site.shown()
                    )
                    .into(),
                );
                format!("free them where the blocks of {} are", site.function_name())
            }
            None => "free them before the last pointer to them is given up".to_owned(),
        };
        leak(image, group, owner, bytes, evidence, cure, Confidence::High)
    };
    groups.iter().map(finding).collect()
}

/// `owner`: what the blocks were made with, and are left with.
fn leak(
    image: &ImageFacts,
    group: &[usize],
    owner: Option<usize>,
    memory_bytes: u64,
    evidence: Vec<Claim>,
    cure: String,
    confidence: Confidence,
) -> Finding {
    Finding {
        pattern: Pattern::Leak,
        site: group[0],
        related: owner.into_iter().collect(),
        parts: no_calls(image, group),
        memory_bytes,
        keeper: None,
        evidence,
        cure,
        size_bytes: None,
        confidence,
    }
}

/// What was live when the program ended, where nobody looked whether it could be reached.
pub fn leaks(image: &ImageFacts, holder: impl Fn(&[usize]) -> Option<usize>) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.sums.live_blocks > 0 && !is_reserve(site)).then_some(site.place)
    });
    let finding = |group: &Vec<usize>| {
        let sites = || group.iter().map(|origin| &image.sites[*origin]);
        let blocks: u64 = sites().map(|site| site.sums.live_blocks).sum();
        let bytes: u64 = sites().map(|site| site.sums.live_bytes).sum();
        let calls: u64 = sites().map(|site| site.sums.calls).sum();
        let freed: u64 = sites().map(|site| site.facts.freed).sum();
        // Of a line whose blocks are mostly freed, those that are not were forgotten.
        let forgotten = blocks >= FEWEST_BLOCKS && freed >= 4 * blocks && bytes >= WORTH_BYTES;
        let owner = holder(group);
        let mut evidence = vec![Claim::Left {
            origins: group.clone(),
            blocks,
            bytes,
            made: calls,
        }];
        evidence.push(UNKNOWN_REACH.to_owned().into());
        let cure = match owner {
            Some(owner) => {
                let of = image.sites[owner].shown();
                let indirect =
                    format!("indirect: each was made with one of {of}, which is live too");
                evidence.push(indirect.into());
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
        // What is kept on purpose till the end looks the same, unless it is much of all there is.
        let share = percent(bytes, image.peak_bytes);
        let confidence = match owner {
            None if forgotten && share >= MUCH_OF_PEAK => Confidence::Medium,
            _ => Confidence::Low,
        };
        (share >= HELD_SHARE || forgotten)
            .then(|| leak(image, group, owner, bytes, evidence, cure, confidence))
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
