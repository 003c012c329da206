//! Blocks of one size that are made one after another and end one after another: an array would hold them
//! in one block.

use crate::advise::claim::Claim;
use crate::advise::facts::{ImageFacts, Row};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, grouped_by, whole,
};
use crate::advise::sizes::Sizes;
use crate::analysis::number::grouped;

/// So many of the blocks must follow another: rows are four long on average, or longer.
const FOLLOW: f64 = 0.75;
/// Of these, so many must end next to the other.
const MOSTLY: f64 = 0.9;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        let (facts, calls) = (&site.facts, site.sums.calls);
        let row = &facts.row;
        let fits = calls >= FEWEST_BLOCKS
            && facts.reallocated == 0
            && facts.foreign == 0
            && row.made as f64 >= FOLLOW * calls as f64
            && (row.ended + row.live) as f64 >= MOSTLY * row.made as f64;
        fits.then(|| site.place())
    });
    groups.iter().map(|group| finding(image, group)).collect()
}

fn finding(image: &ImageFacts, group: &[usize]) -> Finding {
    let sites = || group.iter().map(|origin| &image.sites[*origin]);
    let first = &image.sites[group[0]];
    let row = |of: fn(&Row) -> u64| -> u64 { sites().map(|site| of(&site.facts.row)).sum() };
    let calls: u64 = sites().map(|site| site.sums.calls).sum();
    let followers = row(|row| row.made);
    // Where a row begins, its array is made.
    let arrays = calls.saturating_sub(followers).max(1);
    let mut sizes = Sizes::default();
    sites().for_each(|site| sizes.merge(&site.facts.sizes));
    let (smallest, largest) = (sizes.smallest(), sizes.largest());
    let each = calls.div_ceil(arrays);
    Finding {
        pattern: Pattern::Array,
        site: group[0],
        related: Vec::new(),
        parts: group
            .iter()
            .map(|origin| {
                let part = whole(image, *origin);
                Part {
                    calls: image.sites[*origin].facts.row.made.min(part.calls),
                    bytes: 0,
                    ..part
                }
            })
            .collect(),
        memory_bytes: 0,
        evidence: vec![Claim::Rows {
            origins: group.to_vec(),
            blocks: calls,
            smallest_bytes: smallest,
            largest_bytes: largest,
            followers,
            ended: row(|row| row.ended),
            live: row(|row| row.live),
        }],
        cure: format!(
            "make one array of each row ({} here, of {} elements on average), in one block of up to \
             {} bytes",
            grouped(arrays),
            grouped(each),
            grouped(each.saturating_mul(largest))
        ),
        size_bytes: Some(largest),
        // What is swept has its elements collected one by one another time.
        confidence: match image.is_swept(first) {
            true => Confidence::Low,
            false => Confidence::Medium,
        },
    }
}
