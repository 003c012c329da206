//! Lines with a good part of all calls. `rank` drops those for which a cure was found.

use crate::advise::facts::ImageFacts;
use crate::advise::finding::{Confidence, Finding, Pattern, grouped_by, no_calls};
use crate::analysis::number::{counted, percent};

/// In percent of all calls.
const HOT_SHARE: f64 = 5.0;
const FEWEST_CALLS: u64 = 1000;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| Some(site.place()));
    let finding = |group: &Vec<usize>| {
        let sites = || group.iter().map(|origin| &image.sites[*origin]);
        let calls: u64 = sites().map(|site| site.sums.calls).sum();
        let busiest = sites().map(|site| site.sums.calls).max().unwrap_or(0);
        let share = percent(calls, image.allocations);
        (calls >= FEWEST_CALLS && share >= HOT_SHARE).then(|| Finding {
            pattern: Pattern::Hot,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: 0,
            evidence: vec![
                format!(
                    "{}, {share:.1} % of all; {} of them from one stack: in a loop",
                    counted(calls, "call"),
                    counted(busiest, "call")
                )
                .into(),
            ],
            cure: "see whether the loop can do without: allocate before it, or in larger pieces"
                .to_owned(),
            size_bytes: None,
            confidence: Confidence::Low,
        })
    };
    groups.iter().filter_map(finding).collect()
}
