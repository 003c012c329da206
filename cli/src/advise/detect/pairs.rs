//! Two blocks that are always made together and end together: one could be part of the other.

use std::collections::HashMap;
use std::rc::Rc;

use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{Confidence, FEWEST_BLOCKS, Finding, Pattern, Place, whole};
use crate::analysis::number::{counted, grouped};

/// Of the second block's calls, so many must come right after the first and end with it.
const ALWAYS: f64 = 0.99;
/// Of the first block's calls, so many must have a second: else embedding wastes room.
const MOSTLY: f64 = 0.9;
/// The functions that made them may lie this many calls apart.
const MOST_FRAMES_APART: usize = 3;

/// One line makes the object and the block with its counts.
const SHARED_POINTER: &str = "std::shared_ptr";

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let mut candidates: Vec<(usize, usize)> = image
        .pairs
        .iter()
        .filter(|((first, second), pair)| {
            first != second
                && belongs(
                    image,
                    *first as usize,
                    *second as usize,
                    pair.made,
                    pair.ended + pair.live,
                )
        })
        .map(|((first, second), _)| (*first as usize, *second as usize))
        .collect();
    candidates.sort_unstable();
    let mut places: HashMap<(Place, Place), Vec<(usize, usize)>> = HashMap::new();
    for (first, second) in candidates {
        let key = (image.sites[first].place(), image.sites[second].place());
        places.entry(key).or_default().push((first, second));
    }
    places
        .into_iter()
        .filter_map(|((first, second), pairs)| {
            let shared = image.sites[pairs[0].1].container() == Some(SHARED_POINTER);
            (first != second || shared).then(|| finding(image, &pairs))?
        })
        .collect()
}

fn belongs(image: &ImageFacts, first: usize, second: usize, made: u64, together: u64) -> bool {
    let (Some(a), Some(b)) = (image.sites.get(first), image.sites.get(second)) else {
        return false;
    };
    let made_share = |calls: u64| made as f64 / calls.max(1) as f64;
    made >= FEWEST_BLOCKS
        && made_share(b.sums.calls) >= ALWAYS
        && made_share(a.sums.calls) >= MOSTLY
        && together as f64 >= ALWAYS * made as f64
        && b.facts.reallocated == 0
        && a.facts.reallocated == 0
        && near(a, b)
}

/// Whether one function, or a short chain of calls from it, makes both.
fn near(a: &Site, b: &Site) -> bool {
    let [outer_a, outer_b] = [a, b].map(|site| site.chain.iter().collect::<Vec<_>>());
    let pairs = outer_a.iter().rev().zip(outer_b.iter().rev());
    let same = pairs.take_while(|(x, y)| Rc::ptr_eq(x, y)).count();
    let site_frames = |site: &Site| {
        let index = site.site.unwrap_or(0);
        let mut seen = 0;
        let inner = site.chain.iter().take_while(|frame| {
            seen += frame.len();
            seen <= index
        });
        site.chain.depth() - inner.count()
    };
    let apart = |site: &Site| site_frames(site).saturating_sub(same);
    apart(a).max(apart(b)) <= MOST_FRAMES_APART
}

fn finding(image: &ImageFacts, pairs: &[(usize, usize)]) -> Option<Finding> {
    let (first, second) = *pairs
        .iter()
        .max_by_key(|(_, second)| image.sites[*second].sums.calls)?;
    let (a, b) = (&image.sites[first], &image.sites[second]);
    let sizes = &b.facts.sizes;
    let calls: u64 = pairs
        .iter()
        .map(|(_, second)| image.sites[*second].sums.calls)
        .sum();
    let fixed = sizes.smallest() == sizes.largest();
    let shared = b.container() == Some(SHARED_POINTER);
    let evidence = vec![
        format!(
            "{} made right after one of {}, and ended right next to it",
            counted(calls, "block"),
            a.shown()
        ),
        if fixed {
            format!("{} and {} bytes", a_size(a), grouped(sizes.largest()))
        } else {
            format!("{} and up to {} bytes", a_size(a), grouped(sizes.largest()))
        },
    ];
    let cure = if shared {
        "std::make_shared puts the object and its counts into one block".to_owned()
    } else if fixed {
        format!(
            "make the second a member of the first: one block of {} bytes",
            grouped(a.facts.sizes.largest().saturating_add(sizes.largest()))
        )
    } else {
        "ask once for both: a flexible array member at the end of the first, or one block for header and payload".to_owned()
    };
    Some(Finding {
        pattern: if shared {
            Pattern::MakeShared
        } else {
            Pattern::Embed
        },
        site: second,
        related: vec![first],
        parts: pairs
            .iter()
            .map(|(_, second)| whole(image, *second))
            .collect(),
        memory_bytes: 0,
        evidence,
        cure,
        size_bytes: fixed.then(|| sizes.largest()),
        confidence: if fixed {
            Confidence::High
        } else {
            Confidence::Medium
        },
    })
}

fn a_size(site: &Site) -> String {
    let sizes = &site.facts.sizes;
    if sizes.smallest() == sizes.largest() {
        grouped(sizes.largest())
    } else {
        format!("up to {}", grouped(sizes.largest()))
    }
}
