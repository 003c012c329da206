//! Equal blocks that are made one after another and end one after another: an array would hold them
//! in one block.

use crate::advise::claim::Claim;
use crate::advise::facts::{ImageFacts, Row};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, grouped_by, whole,
};
use crate::analysis::number::grouped;

/// So many of the blocks must follow another, and end next to it.
const MOSTLY: f64 = 0.9;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        let (facts, calls) = (&site.facts, site.sums.calls);
        let (row, sizes) = (&facts.row, &facts.sizes);
        let mostly = |count: u64| count as f64 >= MOSTLY * calls as f64;
        let fits = calls >= FEWEST_BLOCKS
            && sizes.smallest() == sizes.largest()
            && facts.reallocated == 0
            && facts.foreign == 0
            && mostly(row.made)
            && mostly(row.ended + row.live);
        fits.then(|| (site.place(), sizes.largest()))
    });
    groups.iter().map(|group| finding(image, group)).collect()
}

fn finding(image: &ImageFacts, group: &[usize]) -> Finding {
    let sites = || group.iter().map(|origin| &image.sites[*origin]);
    let row = |of: fn(&Row) -> u64| -> u64 { sites().map(|site| of(&site.facts.row)).sum() };
    let calls: u64 = sites().map(|site| site.sums.calls).sum();
    let followers = row(|row| row.made);
    // Where a row begins, its array is made.
    let arrays = calls.saturating_sub(followers).max(1);
    let size = image.sites[group[0]].facts.sizes.largest();
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
            size_bytes: size,
            followers,
            ended: row(|row| row.ended),
            live: row(|row| row.live),
        }],
        cure: format!(
            "make one array of each row ({} here, of {} elements on average): {} bytes in one block",
            grouped(arrays),
            grouped(each),
            grouped(each.saturating_mul(size))
        ),
        size_bytes: Some(size),
        confidence: Confidence::Medium,
    }
}
