//! What blocks held: equal bytes in several at once, and calloc's zeros of which none was left. Only of
//! traces that tell it.

use crate::advise::claim::Claim;
use crate::advise::contents::{Copies, Zeros};
use crate::advise::facts::ImageFacts;
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, grouped_by, no_calls,
};
use crate::analysis::number::{counted, grouped, percent};

/// Fewer copies than this share of a line's blocks, in percent, say little about the line.
const COPIES_SHARE: f64 = 50.0;
/// Copies of which fewer than this share, in percent, have text or data are suspected only.
const DENSE_SHARE: f64 = 90.0;
/// Zeroing less than this costs nothing that can be measured.
const ZEROED_BYTES: u64 = 256;

/// Blocks with the bytes of another that is live.
pub fn duplicates(image: &ImageFacts) -> Vec<Finding> {
    let mut of_copy = vec![Vec::new(); image.sites.len()];
    for ((copy, first), copies) in &image.copies {
        if let Some(pairs) = of_copy.get_mut(*copy as usize) {
            pairs.push((*first as usize, *copies));
        }
    }
    let groups = grouped_by(image, |_, site| Some(site.place()));
    let finding = |group: &Vec<usize>| duplicated(image, group, &of_copy);
    groups.iter().filter_map(finding).collect()
}

fn duplicated(
    image: &ImageFacts,
    sites: &[usize],
    of_copy: &[Vec<(usize, Copies)>],
) -> Option<Finding> {
    let with_copies = sites.iter().filter(|origin| !of_copy[**origin].is_empty());
    let group: Vec<usize> = with_copies.copied().collect();
    let place = image.sites[*group.first()?].place();
    let parts: Vec<Part> = group
        .iter()
        .map(|&origin| Part {
            origin,
            calls: of_copy[origin].iter().map(|(_, c)| c.blocks).sum(),
            bytes: of_copy[origin].iter().map(|(_, c)| c.bytes).sum(),
        })
        .collect();
    let copies: u64 = parts.iter().map(|part| part.calls).sum();
    let all = sites.iter().map(|origin| image.sites[*origin].sums.calls);
    let calls: u64 = all.sum();
    if copies < FEWEST_BLOCKS || percent(copies, calls) < COPIES_SHARE {
        return None;
    }
    let pairs = || group.iter().flat_map(|origin| &of_copy[*origin]);
    let dense: u64 = pairs().map(|(_, copies)| copies.dense).sum();
    let (_, largest) = pairs().max_by_key(|(first, copies)| (copies.most, *first))?;
    let (first, _) = pairs().max_by_key(|(first, copies)| (copies.blocks, *first))?;
    let first_place = image.sites[*first].place();
    let made_here = first_place == place;
    Some(Finding {
        pattern: Pattern::Duplicates,
        site: group[0],
        related: if made_here { Vec::new() } else { vec![*first] },
        parts,
        memory_bytes: 0,
        evidence: vec![
            format!(
                "{} of its {} held the bytes of another that was live; {} or more of {} at once",
                grouped(copies),
                counted(calls, "block"),
                grouped(largest.most),
                counted(largest.most_size, "byte")
            )
            .into(),
            if made_here {
                Claim::Note("most of them were first made here, too".to_owned())
            } else {
                format!(
                    "most of them were first made by {}",
                    image.sites[*first].shown()
                )
                .into()
            },
            Claim::Note("equal at their ends: look whether they change before".to_owned()),
        ],
        cure: "share one: a counted reference to it, or a table that gives out equal ones once"
            .to_owned(),
        size_bytes: None,
        // Pointers and small numbers are a state, which is equal by chance and changes.
        confidence: if percent(dense, copies) >= DENSE_SHARE {
            Confidence::Medium
        } else {
            Confidence::Low
        },
    })
}

/// Blocks of calloc without a zero at their end.
pub fn zeroed(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.facts.zeros.told > 0).then(|| (site.place(), site.call_name))
    });
    let finding = |group: &Vec<usize>| {
        let mut all = Zeros::default();
        let (mut calls, mut bytes) = (0u64, 0u64);
        for site in group.iter().map(|origin| &image.sites[*origin]) {
            all.told += site.facts.zeros.told;
            all.overwritten += site.facts.zeros.overwritten;
            all.data += site.facts.zeros.data;
            calls += site.sums.calls;
            bytes = bytes.saturating_add(site.sums.bytes);
        }
        // Those that are too large are not told of, nor are those that live when a signal ends it.
        let enough = all.told >= FEWEST_BLOCKS && percent(all.told, calls) >= 90.0;
        let size = bytes / calls.max(1);
        (enough && all.overwritten == all.told && size >= ZEROED_BYTES).then(|| Finding {
            pattern: Pattern::Zeroed,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: 0,
            evidence: vec![
                format!(
                    "none of its {} of {} on average has a zero {} left at the end",
                    counted(all.told, "block"),
                    counted(size, "byte"),
                    if all.data == all.told {
                        "word"
                    } else {
                        "element"
                    }
                )
                .into(),
            ],
            cure: "malloc, if each byte is assigned before it is read; what counts up from zero \
                   needs calloc"
                .to_owned(),
            size_bytes: Some(size),
            // Numbers may have been added up, from zero.
            confidence: if all.data == all.told {
                Confidence::Medium
            } else {
                Confidence::Low
            },
        })
    };
    groups.iter().filter_map(finding).collect()
}
