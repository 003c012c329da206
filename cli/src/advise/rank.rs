//! The order of findings, by what each saves beyond those before it.
//!
//! Invariant: over all findings the net calls of an origin are at most its calls. Time: findings
//! squared, of which there are at most a few a site.

use super::costs::Costs;
use super::facts::ImageFacts;
use super::finding::{Confidence, Finding, Part, Pattern};

/// A finding in its place, with what it saves that no finding before it does.
#[derive(Debug)]
pub struct Ranked {
    pub finding: Finding,
    pub net_calls: u64,
    pub net_bytes: u64,
    pub net_ns: f64,
    /// Of the program's allocations (in ns), or `memory_share`, whichever is larger: 0 to 1.
    pub share: f64,
    /// Of the peak; what the allocator adds, of all that it takes at the peak: 0 to 1.
    pub memory_share: f64,
}

/// What findings save together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Findings that save calls, and what they save.
    pub findings: u64,
    pub calls: u64,
    pub bytes: u64,
    pub ns: f64,
    /// Findings that save no call, but memory.
    pub memory_findings: u64,
    /// Findings that save neither.
    pub other_findings: u64,
    /// What all of the program's allocations cost.
    pub all_ns: f64,
}

impl Totals {
    pub fn of(findings: &[Ranked], all_ns: f64) -> Self {
        let mut totals = Self {
            all_ns,
            ..Self::default()
        };
        for ranked in findings {
            if ranked.finding.calls() > 0 {
                totals.findings += 1;
                totals.calls += ranked.net_calls;
                totals.bytes = totals.bytes.saturating_add(ranked.net_bytes);
                totals.ns += ranked.net_ns;
            } else if ranked.finding.memory_bytes > 0 {
                totals.memory_findings += 1;
            } else {
                totals.other_findings += 1;
            }
        }
        totals
    }
}

/// Findings in their order, and what all of the program's allocations cost in nanoseconds.
pub fn rank(image: &ImageFacts, costs: &Costs, findings: Vec<Finding>) -> (Vec<Ranked>, f64) {
    let mut claims = Claims::new(image, costs);
    let mut waiting: Vec<(Finding, f64)> = without_weaker(findings)
        .into_iter()
        .map(|finding| {
            let ns = zeroing_ns(image, costs, &finding);
            (finding, ns)
        })
        .collect();
    let mut ranked = Vec::new();
    while !waiting.is_empty() {
        let score = |index: usize| {
            let (finding, zeroing_ns) = &waiting[index];
            // What lasts only as a suspicion comes after what is certain.
            let trust = match finding.confidence {
                Confidence::High => 1.0,
                Confidence::Medium => 0.8,
                Confidence::Low => 0.1,
            };
            claims.share(finding, claims.net(finding, *zeroing_ns).ns) * trust
        };
        let best = (0..waiting.len()).max_by(|a, b| score(*a).total_cmp(&score(*b)).then(b.cmp(a)));
        let Some(best) = best else { break };
        let (finding, zeroing_ns) = waiting.remove(best);
        let net = claims.net(&finding, zeroing_ns);
        let entry = Ranked {
            net_calls: net.calls,
            net_bytes: net.bytes,
            net_ns: net.ns,
            share: claims.share(&finding, net.ns),
            memory_share: claims.memory_share(&finding),
            finding,
        };
        claims.take(&entry.finding);
        ranked.push(entry);
    }
    (ranked, claims.all_ns)
}

/// What a finding saves that none before it does.
struct Net {
    calls: u64,
    bytes: u64,
    ns: f64,
}

/// What is left for findings to claim, and what their claims are shares of.
struct Claims<'a> {
    image: &'a ImageFacts,
    costs: &'a Costs,
    /// What all allocations cost.
    all_ns: f64,
    /// The peak, with what the allocator adds to it.
    taken_bytes: u64,
    /// Calls by origin.
    left: Vec<u64>,
}

impl<'a> Claims<'a> {
    fn new(image: &'a ImageFacts, costs: &'a Costs) -> Self {
        let sums = || image.sites.iter().map(|site| &site.sums);
        let overhead = sums().map(|sums| costs.overhead_bytes(sums));
        let mut claims = Self {
            image,
            costs,
            all_ns: 0.0,
            taken_bytes: overhead.fold(image.peak_bytes, u64::saturating_add),
            left: sums().map(|sums| sums.calls).collect(),
        };
        let all = claims.left.iter().enumerate();
        claims.all_ns = all.map(|(origin, calls)| claims.ns(origin, *calls)).sum();
        claims
    }

    fn ns(&self, origin: usize, calls: u64) -> f64 {
        let sums = &self.image.sites[origin].sums;
        self.costs.pair_ns(sums.bytes / sums.calls.max(1)) * calls as f64
    }

    fn net(&self, finding: &Finding, zeroing_ns: f64) -> Net {
        let mut net = Net {
            calls: 0,
            bytes: 0,
            ns: zeroing_ns,
        };
        for part in &finding.parts {
            let calls = part.calls.min(self.left[part.origin]);
            let bytes = part.bytes as f64 * calls as f64 / part.calls.max(1) as f64;
            net.calls += calls;
            net.bytes += bytes as u64;
            net.ns += self.ns(part.origin, calls);
        }
        net
    }

    fn share(&self, finding: &Finding, net_ns: f64) -> f64 {
        // Zeroing may take longer than all of malloc.
        let time = (net_ns / self.all_ns.max(1.0)).min(1.0);
        time.max(self.memory_share(finding))
    }

    fn memory_share(&self, finding: &Finding) -> f64 {
        let whole = match finding.pattern {
            Pattern::Tiny => self.taken_bytes,
            _ => self.image.peak_bytes,
        };
        (finding.memory_bytes as f64 / whole.max(1) as f64).min(1.0)
    }

    fn take(&mut self, finding: &Finding) {
        for part in &finding.parts {
            self.left[part.origin] = self.left[part.origin].saturating_sub(part.calls);
        }
    }
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
