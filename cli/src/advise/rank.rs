//! The order of findings, by what each saves beyond those before it.
//!
//! Invariant: over all findings the net calls of an origin are at most its calls. Time: findings
//! squared, of which there are at most a few a site.

use rustc_hash::FxHashMap;

use super::costs::Costs;
use super::element::AllocatedType;
use super::facts::ImageFacts;
use super::finding::{Confidence, Finding, Part, Pattern};

/// A finding in its place, with what it saves that no finding before it does.
#[derive(Debug)]
pub struct Ranked {
    pub finding: Finding,
    pub net_calls: u64,
    pub net_bytes: u64,
    pub net_ns: f64,
    /// Of the program's allocations (in ns), or of its peak, whichever is larger: 0 to 1.
    pub share: f64,
    /// What its site allocates, if that can be told.
    pub allocates: Option<AllocatedType>,
}

/// What all findings save together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub calls: u64,
    pub bytes: u64,
    pub ns: f64,
    /// What all of the program's allocations cost.
    pub all_ns: f64,
}

pub fn rank(image: &ImageFacts, costs: &Costs, findings: Vec<Finding>) -> (Vec<Ranked>, Totals) {
    let mean = |origin: usize| {
        let sums = &image.sites[origin].sums;
        sums.bytes / sums.calls.max(1)
    };
    let ns = |origin: usize, calls: u64| costs.pair_ns(mean(origin)) * calls as f64;
    let all_ns: f64 = image
        .sites
        .iter()
        .enumerate()
        .map(|(origin, site)| ns(origin, site.sums.calls))
        .sum();
    let mut left: FxHashMap<usize, u64> = image
        .sites
        .iter()
        .enumerate()
        .map(|(origin, site)| (origin, site.sums.calls))
        .collect();
    let mut waiting: Vec<(Finding, f64)> = without_weaker(findings)
        .into_iter()
        .map(|finding| {
            let ns = zeroing_ns(image, costs, &finding);
            (finding, ns)
        })
        .collect();
    let (mut ranked, mut totals) = (
        Vec::new(),
        Totals {
            all_ns,
            ..Totals::default()
        },
    );
    while !waiting.is_empty() {
        let weigh = |(finding, zeroing_ns): &(Finding, f64)| {
            let mut net = (0u64, 0u64, *zeroing_ns);
            for part in &finding.parts {
                let calls = part.calls.min(left.get(&part.origin).copied().unwrap_or(0));
                let bytes = part.bytes as f64 * calls as f64 / part.calls.max(1) as f64;
                net = (
                    net.0 + calls,
                    net.1 + bytes as u64,
                    net.2 + ns(part.origin, calls),
                );
            }
            let memory = finding.memory_bytes as f64 / image.peak_bytes.max(1) as f64;
            // What lasts only as a suspicion comes after what is certain.
            let trust = match finding.confidence {
                Confidence::High => 1.0,
                Confidence::Medium => 0.8,
                Confidence::Low => 0.1,
            };
            (net, (net.2 / all_ns.max(1.0)).max(memory.min(1.0)), trust)
        };
        let best = (0..waiting.len()).max_by(|a, b| {
            let score = |index: usize| {
                let (_, share, trust) = weigh(&waiting[index]);
                share * trust
            };
            score(*a).total_cmp(&score(*b)).then(b.cmp(a))
        });
        let Some(best) = best else { break };
        let ((net_calls, net_bytes, net_ns), share, _) = weigh(&waiting[best]);
        let (finding, _) = waiting.remove(best);
        for part in &finding.parts {
            if let Some(left) = left.get_mut(&part.origin) {
                *left = left.saturating_sub(part.calls);
            }
        }
        totals.calls += net_calls;
        totals.bytes = totals.bytes.saturating_add(net_bytes);
        totals.ns += net_ns;
        ranked.push(Ranked {
            finding,
            net_calls,
            net_bytes,
            net_ns,
            share,
            allocates: None,
        });
    }
    (ranked, totals)
}

/// What calloc takes to zero the blocks that a finding says need none of it.
fn zeroing_ns(image: &ImageFacts, costs: &Costs, finding: &Finding) -> f64 {
    if finding.pattern != Pattern::Zeroed {
        return 0.0;
    }
    let sums = |part: &Part| &image.sites[part.origin].sums;
    let calls: u64 = finding.parts.iter().map(|part| sums(part).calls).sum();
    calls as f64 * costs.zero_ns(finding.size_bytes.unwrap_or(0))
}

/// A hot line is only told where no other finding explains it.
fn without_weaker(findings: Vec<Finding>) -> Vec<Finding> {
    let explained: Vec<usize> = findings
        .iter()
        .filter(|finding| finding.pattern != Pattern::Hot && finding.calls() > 0)
        .flat_map(|finding| finding.parts.iter().map(|part| part.origin))
        .collect();
    findings
        .into_iter()
        .filter(|finding| {
            finding.pattern != Pattern::Hot
                || !finding
                    .parts
                    .iter()
                    .any(|part| explained.contains(&part.origin))
        })
        .collect()
}
