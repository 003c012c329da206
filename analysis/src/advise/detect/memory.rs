//! Findings that save memory and no calls: tiny blocks, unbounded growth, leaks.

use larder_base::number::{counted, percent};

use crate::advise::claim::Claim;
use crate::advise::costs::Costs;
use crate::advise::facts::{ImageFacts, PARTS, Site};
use crate::advise::finding::{Confidence, FEWEST_BLOCKS, Finding, Pattern, grouped_by, no_calls};
use crate::advise::prove::{self, Answers, AtOnce, Questions};
use crate::reading::plumbing::ModuleRole;

/// A share of the peak, or of the calls, from which on tiny blocks are worth a change.
const TINY_SHARE: f64 = 1.0;
/// Fewer bytes than this are not reported, whatever their share.
const WORTH_BYTES: u64 = 4096;
/// With fewer calls of a line a run is too short to show growth.
const GROWING_CALLS: u64 = 1000;
/// A site must hold this share of the peak, in percent, to be called growing or left.
const HELD_SHARE: f64 = 1.0;
/// Live blocks must hold this share of the peak, in percent, to be a leak of medium confidence.
const MUCH_OF_PEAK: f64 = 10.0;
/// For traces without `record --leaks`.
const UNKNOWN_REACH: &str =
    "this trace does not show whether they were reachable: use record --leaks on a run that exits";

/// Blocks whose allocator overhead is at least their size.
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
            cure: "embed them in the object that points to them, or take them from a pool of that size: \
                   many in one block"
                .to_owned(),
            size_bytes: Some(mean),
            confidence: Confidence::Medium,
        })
    };
    groups.iter().filter_map(finding).collect()
}

/// Lines, by caller, with blocks live at the end, and the question about each.
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

/// Lines whose live bytes rise in each part of the run although they free, too.
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
        cure: "bound it: evict, expire, or drop finished entries; if it is kept on purpose, this \
               is its cost"
            .to_owned(),
        size_bytes: None,
        confidence: if churns {
            Confidence::Medium
        } else {
            Confidence::Low
        },
    })
}

/// Blocks that were unreachable when the program ended, by line and caller: other callers may free
/// theirs.
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
                        "indirect: each was allocated with one of {}, which is lost, too",
                        site.shown()
                    )
                    .into(),
                );
                format!(
                    "free them where the blocks of {} are freed",
                    site.function_name()
                )
            }
            None => "free them before the last pointer to them is overwritten or goes out of scope"
                .to_owned(),
        };
        leak(image, group, owner, bytes, evidence, cure, Confidence::High)
    };
    groups.iter().map(finding).collect()
}

/// `owner`: the origin with whose blocks these were allocated and left.
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

/// Blocks live when the program ended, in traces without `record --leaks`.
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
        // Where a line's blocks are mostly freed, the others were forgotten.
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
                    format!("indirect: each was allocated with one of {of}, which is live, too");
                evidence.push(indirect.into());
                format!(
                    "free them where the blocks of {} are freed",
                    image.sites[owner].function_name()
                )
            }
            None if forgotten => {
                "others of this line are freed: find the path on which these are not".to_owned()
            }
            None => "free them at the end, or document that they are kept on purpose".to_owned(),
        };
        // Blocks kept on purpose till the end look the same, unless they are much of the peak.
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

/// Whether the C or C++ library allocated it for itself, as the reserve for exceptions: no function of
/// the program is on the stack.
fn is_reserve(site: &Site) -> bool {
    let mut frames = site
        .chain
        .iter()
        .flat_map(|location| location.iter())
        .peekable();
    frames.peek().is_some() && frames.all(|frame| frame.module.role != ModuleRole::Program)
}
