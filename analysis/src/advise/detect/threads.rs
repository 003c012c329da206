//! Blocks that another thread than the allocating one frees: each of these frees crosses caches.

use larder_base::number::percent;

use crate::advise::claim::Claim;
use crate::advise::facts::ImageFacts;
use crate::advise::finding::{Confidence, Finding, Pattern, grouped_by, no_calls};

/// Fewer come from the start or the end of a thread.
const FEWEST_FREES: u64 = 64;
/// In percent of the frees.
const FOREIGN_SHARE: f64 = 50.0;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.facts.foreign > 0).then_some(site.place)
    });
    let finding = |group: &Vec<usize>| {
        let facts = || group.iter().map(|origin| &image.sites[*origin].facts);
        let foreign: u64 = facts().map(|facts| facts.foreign).sum();
        let freed: u64 = facts().map(|facts| facts.freed).sum();
        let share = percent(foreign, freed);
        (foreign >= FEWEST_FREES && share >= FOREIGN_SHARE).then(|| Finding {
            pattern: Pattern::Threads,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: 0,
            keeper: None,
            evidence: vec![Claim::Foreign {
                origins: group.clone(),
                foreign,
                freed,
            }],
            cure:
                "hand the blocks back in batches to the thread that allocated them, which reuses \
                   them; or use an allocator that batches remote frees, like Larder"
                    .to_owned(),
            size_bytes: None,
            confidence: Confidence::Medium,
        })
    };
    groups.iter().filter_map(finding).collect()
}
