//! Blocks of one size that are allocated one after another and freed one after another: an array would
//! hold them in one block.

use larder_base::number::{counted, grouped};

use crate::advise::claim::Claim;
use crate::advise::facts::{ImageFacts, Row, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, grouped_by, whole,
};
use crate::advise::sizes::Sizes;

/// The share of blocks that must follow another: rows have four elements on average, or more.
const FOLLOW: f64 = 0.75;
/// The share of these that must be freed next to the other.
const MOSTLY: f64 = 0.9;
/// If this share follows a block of another size, the equal sizes are chance.
const UNLIKE: f64 = 0.001;
/// Blocks of this size are chunks of a list that hold many elements each.
const CHUNK_BYTES: u64 = 1024;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        let (facts, calls) = (&site.facts, site.sums.calls);
        let row = facts.row();
        let fits = calls >= FEWEST_BLOCKS
            && facts.reallocated == 0
            && facts.foreign == 0
            && (row.unlike as f64) < UNLIKE * row.made as f64
            && row.made as f64 >= FOLLOW * calls as f64
            && (row.ended + row.live) as f64 >= MOSTLY * row.made as f64;
        fits.then_some(site.place)
    });
    groups.iter().map(|group| finding(image, group)).collect()
}

fn finding(image: &ImageFacts, group: &[usize]) -> Finding {
    let sites = || group.iter().map(|origin| &image.sites[*origin]);
    let first = &image.sites[group[0]];
    let row = |of: fn(&Row) -> u64| -> u64 { sites().map(|site| of(&site.facts.row())).sum() };
    let calls: u64 = sites().map(|site| site.sums.calls).sum();
    let followers = row(|row| row.made);
    // The array of a row takes the place of its first block.
    let arrays = calls.saturating_sub(followers).max(1);
    let mut sizes = Sizes::default();
    sites().for_each(|site| sizes.merge(&site.facts.sizes));
    let (smallest, largest) = (sizes.smallest(), sizes.largest());
    let each = calls.div_ceil(arrays);
    let row_part = |origin: &usize| {
        let part = whole(image, *origin);
        Part {
            calls: image.sites[*origin].facts.row().made.min(part.calls),
            bytes: 0,
            ..part
        }
    };
    let holders = holders(image, group, arrays);
    let holding: u64 = holders.iter().map(|part| part.calls).sum();
    let rest = match holding {
        0 => String::new(),
        calls => format!(
            "; this also saves the {} for what holds the rows",
            counted(calls, "call")
        ),
    };
    Finding {
        pattern: Pattern::Array,
        site: group[0],
        related: Vec::new(),
        parts: group.iter().map(row_part).chain(holders).collect(),
        memory_bytes: 0,
        keeper: None,
        evidence: vec![Claim::Rows {
            origins: group.to_vec(),
            blocks: calls,
            smallest_bytes: smallest,
            largest_bytes: largest,
            followers,
            ended: row(|row| row.ended),
            live: row(|row| row.live),
        }],
        cure: if smallest >= CHUNK_BYTES {
            format!(
                "allocate larger pieces: up to {} bytes at once, in place of {} one after another",
                grouped(each.saturating_mul(largest)),
                grouped(each)
            )
        } else {
            format!(
                "allocate each row as one array ({} here, of {} elements on average), in one block of \
                 up to {} bytes{rest}",
                grouped(arrays),
                grouped(each),
                grouped(each.saturating_mul(largest))
            )
        },
        size_bytes: Some(largest),
        // A collector may free the elements one by one in another run; a single row that lives for ever
        // costs little.
        confidence: if image.is_swept(first) || (arrays == 1 && row(|row| row.ended) == 0) {
            Confidence::Low
        } else {
            Confidence::Medium
        },
    }
}

/// What the line of a vector of vectors allocates once an array: the vector that holds the rows, and the
/// row that the others are copies of.
fn holders(image: &ImageFacts, group: &[usize], arrays: u64) -> Vec<Part> {
    let line = &image.sites[group[0]];
    let is_holder = |(origin, site): &(usize, &Site)| {
        site.place == line.place
            && site.container == Some("Vec")
            && !group.contains(origin)
            && (FEWEST_BLOCKS..=arrays).contains(&site.sums.calls)
    };
    let sites = image.sites.iter().enumerate().filter(is_holder);
    sites.map(|(origin, _)| whole(image, origin)).collect()
}
