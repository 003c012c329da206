//! Buffers that are made larger and larger: by realloc, or by a larger block, a copy and the end of
//! the smaller one. The cure is to ask for the final size at once; the sizes seen say which.

use larder_base::number::percent;

use crate::advise::claim::Claim;
use crate::advise::element::Types;
use crate::advise::facts::{Growth, ImageFacts, Site};
use crate::advise::finding::{Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, grouped_by};
use crate::advise::sizes::Sizes;

/// A buffer that grows by less than this at a step is copied a quadratic number of times.
const SLOW_FACTOR: f64 = 1.3;
/// Steps a buffer from which on slow growth is told.
const SLOW_STEPS: u64 = 8;
/// Of the steps, so many must crawl: growth by an eighth is slow, too, but by a factor.
const CRAWLING: f64 = 0.33;
/// A size for nearly all that is so many times what half of them need is no size to begin with.
const WASTEFUL: u64 = 4;
/// Without realloc growth is guessed from neighbours: so much of the guesses must fit.
const FITTING: f64 = 0.9;

pub fn detect(image: &ImageFacts, types: &Types<'_>) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (grows(&site.facts.growth) && !is_copied(site)).then_some(site.place)
    });
    groups
        .iter()
        .filter_map(|group| finding(image, types, group))
        .collect()
}

fn grows(growth: &Growth) -> bool {
    let fits = growth.followed_larger as f64 >= FITTING * growth.followed as f64;
    growth.chains > 0 && growth.steps >= FEWEST_BLOCKS && fits
}

/// A vector or text of Rust grows by realloc; where a larger one was made and the smaller dropped, it
/// was copied and appended to another.
fn is_copied(site: &Site) -> bool {
    let growth = &site.facts.growth;
    matches!(site.container(), Some("Vec" | "String")) && growth.followed_larger * 2 > growth.steps
}

#[expect(clippy::too_many_lines, reason = "to be split by concept")]
fn finding(image: &ImageFacts, types: &Types<'_>, group: &[usize]) -> Option<Finding> {
    let site = *group.first()?;
    let (mut finals, mut steps) = (Sizes::default(), Sizes::default());
    let (mut chains, mut outgrown, mut guessed) = (0, 0u64, 0);
    let mut parts: Vec<Part> = Vec::new();
    let growths = || {
        group
            .iter()
            .map(|origin| &image.sites[*origin].facts.growth)
    };
    for growth in growths() {
        finals.merge(&growth.finals);
        steps.merge(&growth.step_sizes);
        chains += growth.chains;
        outgrown = outgrown.saturating_add(growth.outgrown_bytes);
        guessed += growth.followed_larger;
    }
    let [half, most, nearly_all] = [0.5, 0.9, 0.99].map(|share| finals.covering(share));
    let saved = steps.up_to(most) as f64 / steps.total().max(1) as f64;
    for growth in growths() {
        for (origin, count) in &growth.steppers {
            parts.push(Part {
                origin: *origin as usize,
                calls: (*count as f64 * saved) as u64,
                bytes: (growth.outgrown_bytes as f64 * saved * *count as f64
                    / growth.steps.max(1) as f64) as u64,
            });
        }
    }
    let total = steps.total();
    if steps.up_to(most) < FEWEST_BLOCKS {
        return None;
    }
    let factor = mean_factor(growths(), outgrown);
    let crawls: u64 = growths().map(|growth| growth.crawls).sum();
    let slow = factor < SLOW_FACTOR
        && total / chains.max(1) >= SLOW_STEPS
        && crawls as f64 >= CRAWLING * total as f64;
    let mut evidence = vec![
        Claim::Grew {
            origins: group.to_vec(),
            buffers: chains,
            steps: total,
            outgrown_bytes: outgrown,
        },
        Claim::Ends {
            origins: group.to_vec(),
            at_most: [(50, half), (90, most), (99, nearly_all)],
            largest_bytes: finals.largest(),
        },
    ];
    if slow {
        let text = format!(
            "a step is {:.0} % on average: what is copied grows with the square",
            (factor - 1.0) * 100.0
        );
        evidence.push(text.into());
    }
    let container = image.sites[site].container();
    let alike = container.is_none() && total == chains && finals.smallest() == finals.largest();
    let how = match container {
        Some("std::vector" | "std::string") => "reserve()",
        Some("String" | "Vec" | "HashMap") => "with_capacity() for",
        _ => "ask at first for",
    };
    let unit = types.unit_of_grown(image, group, &finals);
    let cure = if slow {
        format!(
            "double the size at each step instead; or {how} {}, which cover 90 %",
            unit.in_full(most)
        )
    } else {
        format!(
            "{how} {}: {:.0} % of the steps go ({} cover half, {} nearly all)",
            unit.in_full(most),
            percent(steps.up_to(most), total),
            unit.in_short(half),
            unit.in_short(nearly_all)
        ) + match container {
            Some(_) => "",
            None => "; realloc only beyond the size that is kept with it",
        }
    };
    Some(Finding {
        pattern: if slow {
            Pattern::GrowByFactor
        } else {
            Pattern::Reserve
        },
        site,
        related: Vec::new(),
        parts,
        memory_bytes: 0,
        keeper: None,
        evidence,
        cure,
        size_bytes: Some(most),
        // Most would hold much of what they never need.
        // Records that are all alike may be others in another input.
        confidence: if !slow && (most >= half.saturating_mul(WASTEFUL) || alike) {
            Confidence::Low
        } else if guessed == 0 || container.is_some() {
            Confidence::High
        } else {
            Confidence::Medium
        },
    })
}

/// By how much a step enlarges a buffer on average.
fn mean_factor<'a>(growths: impl Iterator<Item = &'a Growth>, outgrown: u64) -> f64 {
    let grown: u64 = growths
        .map(|growth| growth.grown_bytes)
        .fold(0, u64::saturating_add);
    grown as f64 / outgrown.max(1) as f64
}
