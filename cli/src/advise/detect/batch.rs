//! Equal blocks that are made one after another and end one after another: an array would hold them
//! in one block.

use crate::advise::facts::ImageFacts;
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, grouped_by, whole,
};
use crate::analysis::number::{counted, grouped};

/// So many of the blocks must follow another, and end next to it.
const MOSTLY: f64 = 0.9;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let in_a_row = |origin: usize| {
        let origin = u32::try_from(origin).ok()?;
        image.pairs.get(&(origin, origin))
    };
    let groups = grouped_by(image, |origin, site| {
        let (row, calls) = (in_a_row(origin)?, site.sums.calls);
        let sizes = &site.facts.sizes;
        let mostly = |count: u64| count as f64 >= MOSTLY * calls as f64;
        let fits = calls >= FEWEST_BLOCKS
            && sizes.smallest() == sizes.largest()
            && site.facts.reallocated == 0
            && site.facts.foreign == 0
            && mostly(row.made)
            && mostly(row.ended + row.live)
            && !mostly(site.facts.alone);
        fits.then(|| site.place())
    });
    let finding = |group: &Vec<usize>| {
        let rows: u64 = group
            .iter()
            .filter_map(|origin| Some(in_a_row(*origin)?.made))
            .sum();
        let calls: u64 = group.iter().map(|o| image.sites[*o].sums.calls).sum();
        // Where a row begins, its array is made.
        let arrays = calls.saturating_sub(rows).max(1);
        let size = image.sites[group[0]].facts.sizes.largest();
        let each = calls / arrays;
        Finding {
            pattern: Pattern::Array,
            site: group[0],
            related: Vec::new(),
            parts: group
                .iter()
                .map(|origin| {
                    let part = whole(image, *origin);
                    let row = in_a_row(*origin).map_or(0, |row| row.made);
                    Part {
                        calls: row.min(part.calls),
                        bytes: 0,
                        ..part
                    }
                })
                .collect(),
            memory_bytes: 0,
            evidence: vec![format!(
                "{} of {} bytes were made one right after another, in {}, and ended so",
                counted(calls, "block"),
                grouped(size),
                counted(arrays, "row"),
            )],
            cure: format!(
                "make one array of them, of {} elements here: {} bytes in one block",
                grouped(each),
                grouped(each.saturating_mul(size))
            ),
            size_bytes: Some(size),
            confidence: Confidence::Medium,
        }
    };
    groups.iter().map(finding).collect()
}
