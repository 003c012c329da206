//! Buffers that grow in steps: by realloc, or by a larger block, a copy and a free of the smaller one.
//! The cure is to allocate the final size at once; the recorded sizes show which.

use std::collections::BTreeMap;

use larder_base::number::percent;

use crate::advise::claim::Claim;
use crate::advise::element::{SizeUnit, Types};
use crate::advise::facts::{Growth, ImageFacts, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, Place, grouped_by,
};
use crate::advise::sizes::Sizes;

/// A buffer that grows by less than this at a step is copied a quadratic number of times.
const SLOW_FACTOR: f64 = 1.3;
/// Slow growth is reported from this many steps a buffer on.
const SLOW_STEPS: u64 = 8;
/// The share of steps that must crawl: growth by an eighth is slow, too, but by a factor.
const CRAWLING: f64 = 0.33;
/// If the size for nearly all is this many times that for half, reserving it wastes memory.
const WASTEFUL: u64 = 4;
/// Without realloc growth is guessed from neighbours: this share of the guesses must fit.
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
    let steps = growth.steps.as_deref();
    steps.is_some_and(|steps| steps.chains > 0 && steps.count >= FEWEST_BLOCKS) && fits
}

/// A vector or string of Rust grows by realloc. If a larger one was allocated and the smaller one dropped,
/// it was copied or appended to another.
fn is_copied(site: &Site) -> bool {
    let growth = &site.facts.growth;
    let steps = growth.steps.as_ref().map_or(0, |steps| steps.count);
    matches!(site.container, Some("Vec" | "String")) && growth.followed_larger * 2 > steps
}

/// The growth of a group's buffers, summed up.
struct Grown {
    finals: Sizes,
    steps: Sizes,
    chains: u64,
    outgrown: u64,
    guessed: u64,
    crawls: u64,
    /// The mean factor of a step.
    factor: f64,
}

impl Grown {
    fn of<'a>(growths: impl Iterator<Item = &'a Growth>) -> Self {
        let mut sums = Self {
            finals: Sizes::default(),
            steps: Sizes::default(),
            chains: 0,
            outgrown: 0,
            guessed: 0,
            crawls: 0,
            factor: 0.0,
        };
        let mut grown = 0u64;
        for growth in growths {
            sums.finals.merge(&growth.finals);
            sums.guessed += growth.followed_larger;
            let Some(steps) = &growth.steps else { continue };
            sums.steps.merge(&steps.sizes);
            sums.chains += steps.chains;
            sums.outgrown = sums.outgrown.saturating_add(steps.outgrown_bytes);
            sums.crawls += steps.crawls;
            grown = grown.saturating_add(steps.grown_bytes);
        }
        sums.factor = grown as f64 / sums.outgrown.max(1) as f64;
        sums
    }

    /// The sizes that cover half of the buffers, 90 % and 99 %.
    fn covering(&self) -> [u64; 3] {
        [0.5, 0.9, 0.99].map(|share| self.finals.covering(share))
    }

    fn is_slow(&self) -> bool {
        let total = self.steps.total();
        self.factor < SLOW_FACTOR
            && total / self.chains.max(1) >= SLOW_STEPS
            && self.crawls as f64 >= CRAWLING * total as f64
    }

    /// `at`: the line that enlarges them, if it is another than the one that allocates.
    fn evidence(&self, group: &[usize], at: Option<&Site>) -> Vec<Claim> {
        let [half, most, nearly_all] = self.covering();
        let mut evidence = vec![
            Claim::Grew {
                origins: group.to_vec(),
                buffers: self.chains,
                steps: self.steps.total(),
                outgrown_bytes: self.outgrown,
            },
            Claim::Ends {
                origins: group.to_vec(),
                at_most: [(50, half), (90, most), (99, nearly_all)],
                largest_bytes: self.finals.largest(),
            },
        ];
        if self.is_slow() {
            let text = format!(
                "a step adds {:.0} % on average: the copied bytes grow with the square of the size",
                (self.factor - 1.0) * 100.0
            );
            evidence.push(text.into());
        }
        evidence.extend(at.map(|line| format!("most grow at {}", line.shown()).into()));
        evidence
    }

    fn cure(&self, container: Option<&str>, unit: &SizeUnit) -> String {
        let [half, most, nearly_all] = self.covering();
        let how = match container {
            Some("std::vector" | "std::string") => "reserve()",
            Some("String" | "Vec" | "HashMap") => "with_capacity() for",
            _ => "allocate at first",
        };
        if self.is_slow() {
            return format!(
                "double the size at each step instead; or {how} {}, which cover 90 %",
                unit.in_full(most)
            );
        }
        let cure = format!(
            "{how} {}: this saves {:.0} % of the steps ({} cover half of the buffers, {} nearly all)",
            unit.in_full(most),
            percent(self.steps.up_to(most), self.steps.total()),
            unit.in_short(half),
            unit.in_short(nearly_all)
        );
        cure + match container {
            Some(_) => "",
            None => "; store the size, and realloc only beyond it",
        }
    }
}

/// The calls and bytes of each origin that are saved with this share of the steps.
fn parts<'a>(growths: impl Iterator<Item = &'a Growth>, saved: f64) -> Vec<Part> {
    let mut parts = Vec::new();
    for steps in growths.filter_map(|growth| growth.steps.as_deref()) {
        for (origin, count) in &steps.steppers {
            parts.push(Part {
                origin: *origin as usize,
                calls: (*count as f64 * saved) as u64,
                bytes: (steps.outgrown_bytes as f64 * saved * *count as f64
                    / steps.count.max(1) as f64) as u64,
            });
        }
    }
    parts
}

/// The line of most steps, if another function's than the line that allocates: there the size is known.
fn grown_at(image: &ImageFacts, group: &[usize]) -> Option<usize> {
    let mut lines: BTreeMap<Place, (u64, usize)> = BTreeMap::new();
    let facts = group.iter().map(|origin| &image.sites[*origin].facts);
    for grown in facts.filter_map(|facts| facts.growth.steps.as_deref()) {
        for (stepper, steps) in &grown.steppers {
            let stepper = *stepper as usize;
            let line = lines
                .entry(image.sites[stepper].place)
                .or_insert((0, stepper));
            *line = (line.0 + steps, line.1.min(stepper));
        }
    }
    let all: u64 = lines.values().map(|(steps, _)| steps).sum();
    let (steps, most) = lines.into_values().max()?;
    let function = |origin: usize| image.sites[origin].function_name();
    (steps > all / 2 && function(most) != function(*group.first()?)).then_some(most)
}

fn finding(image: &ImageFacts, types: &Types<'_>, group: &[usize]) -> Option<Finding> {
    let site = *group.first()?;
    let at = grown_at(image, group);
    let growths = || {
        let sites = group.iter().map(|origin| &image.sites[*origin]);
        sites.map(|site| &site.facts.growth)
    };
    let grown = Grown::of(growths());
    let (finals, steps) = (&grown.finals, &grown.steps);
    let [half, most, _] = grown.covering();
    if steps.up_to(most) < FEWEST_BLOCKS {
        return None;
    }
    let total = steps.total();
    let slow = grown.is_slow();
    let container = image.sites[site].container;
    let alike =
        container.is_none() && total == grown.chains && finals.smallest() == finals.largest();
    let unit = types.unit_of_grown(image, group, finals);
    Some(Finding {
        pattern: if slow {
            Pattern::GrowByFactor
        } else {
            Pattern::Reserve
        },
        site,
        related: at.into_iter().collect(),
        parts: parts(growths(), steps.up_to(most) as f64 / total.max(1) as f64),
        memory_bytes: 0,
        keeper: None,
        evidence: grown.evidence(group, at.map(|at| &image.sites[at])),
        cure: grown.cure(container, &unit),
        size_bytes: Some(most),
        // Most buffers would waste memory; records of one size may have another in the next input.
        confidence: if !slow && (most >= half.saturating_mul(WASTEFUL) || alike) {
            Confidence::Low
        } else if grown.guessed == 0 || container.is_some() {
            Confidence::High
        } else {
            Confidence::Medium
        },
    })
}
