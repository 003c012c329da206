//! Ranks findings by what each saves beyond those before it.
//!
//! Invariant: over all findings the net calls of an origin do not exceed its calls. The order depends
//! on the trace and the stored costs alone.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::{FxHashMap, FxHashSet};

use super::claim::Claim;
use super::costs::Costs;
use super::element::AllocatedType;
use super::facts::ImageFacts;
use super::finding::{Finding, Part, Pattern, buffers_whole};
use super::joined::joined;
use super::within::Share;

/// A ranked finding, with what it saves beyond the findings before it.
#[derive(Debug)]
pub struct Ranked {
    pub finding: Finding,
    /// The findings with the same cure at the same line for other callers; `finding` has their parts,
    /// too.
    pub also: Vec<Finding>,
    /// The rank among all findings.
    number: usize,
    pub net_calls: u64,
    pub net_bytes: u64,
    pub net_ns: f64,
    /// The share of the time of all allocations, or `memory_share`, whichever is larger: 0 to 1.
    pub share: f64,
    /// The share of the peak, or of all that the allocator takes at the peak if its overhead is saved:
    /// 0 to 1.
    pub memory_share: f64,
    /// Ranks of earlier findings that claim a part of its calls.
    pub shared_with: Vec<usize>,
    /// The type that its site allocates, if known.
    pub allocates: Option<AllocatedType>,
    /// The processor time within its allocations and their frees; `None` if it was not sampled.
    pub cpu: Option<Share>,
}

impl Ranked {
    /// The number of joined findings.
    pub fn findings(&self) -> usize {
        1 + self.also.len()
    }
}

/// The sums over findings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Findings that save calls, and their savings.
    pub findings: u64,
    pub calls: u64,
    pub bytes: u64,
    pub ns: f64,
    /// Findings that save memory and no calls.
    pub memory_findings: u64,
    /// Findings that save neither.
    pub other_findings: u64,
    /// The time of all allocations.
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

/// The ranked findings, and the time of all allocations in nanoseconds.
///
/// The saving of a finding beyond those before it only shrinks, so the first one with an up-to-date
/// figure is the best.
pub fn rank(image: &ImageFacts, costs: &Costs, findings: Vec<Finding>) -> (Vec<Ranked>, f64) {
    let mut claims = Claims::new(image, costs);
    let findings = joined(image, without_weaker(findings));
    let mut waiting: BinaryHeap<Waiting> = findings
        .into_iter()
        .enumerate()
        .map(|(order, (finding, also))| Waiting {
            beside_ns: std::iter::once(&finding)
                .chain(&also)
                .map(|finding| beside_ns(image, costs, finding))
                .sum(),
            score: f64::INFINITY,
            order,
            finding,
            also,
        })
        .collect();
    let mut ranked: Vec<Ranked> = Vec::new();
    while let Some(mut best) = waiting.pop() {
        let net = claims.net(&best.finding, best.beside_ns);
        let score = claims.share(&best.finding, &net) * best.finding.trust(image);
        if waiting.peek().is_some_and(|next| next.score > score) {
            best.score = score;
            waiting.push(best);
            continue;
        }
        let finding = best.finding;
        let number = ranked.len();
        ranked.push(Ranked {
            share: claims.share(&finding, &net),
            memory_share: claims.memory_share(&finding),
            net_calls: net.calls,
            net_bytes: net.bytes,
            net_ns: net.ns,
            shared_with: claims.take(&finding, number),
            number,
            allocates: None,
            cpu: None,
            also: best.also,
            finding,
        });
    }
    (ranked, claims.all_ns)
}

/// A finding without a rank.
struct Waiting {
    finding: Finding,
    also: Vec<Finding>,
    beside_ns: f64,
    /// An upper bound of its score.
    score: f64,
    /// The order of detection, which decides between equal scores.
    order: usize,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| other.order.cmp(&self.order))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

/// The saving of a finding beyond those before it.
struct Net {
    calls: u64,
    bytes: u64,
    ns: f64,
}

/// The calls that no finding claims yet, and the totals for shares.
struct Claims<'a> {
    image: &'a ImageFacts,
    costs: &'a Costs,
    /// The time of all allocations.
    all_ns: f64,
    /// The peak with the allocator's overhead.
    taken_bytes: u64,
    /// Calls by origin.
    left: Vec<u64>,
    /// Findings by origin.
    taken_by: Vec<Vec<usize>>,
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
            taken_by: vec![Vec::new(); image.sites.len()],
        };
        let all = claims.left.iter().enumerate();
        claims.all_ns = all.map(|(origin, calls)| claims.ns(origin, *calls)).sum();
        claims
    }

    fn ns(&self, origin: usize, calls: u64) -> f64 {
        let sums = &self.image.sites[origin].sums;
        self.costs.pair_ns(sums.bytes / sums.calls.max(1)) * calls as f64
    }

    fn net(&self, finding: &Finding, beside_ns: f64) -> Net {
        let mut net = Net {
            calls: 0,
            bytes: 0,
            ns: 0.0,
        };
        for part in &finding.parts {
            let calls = part.calls.min(self.left[part.origin]);
            let bytes = part.bytes as f64 * calls as f64 / part.calls.max(1) as f64;
            net.calls += calls;
            net.bytes += bytes as u64;
            net.ns += self.ns(part.origin, calls);
        }
        net.ns += match finding.calls() {
            0 => beside_ns,
            calls => beside_ns * net.calls as f64 / calls as f64,
        };
        net
    }

    fn share(&self, finding: &Finding, net: &Net) -> f64 {
        // Zeroing or copying may take longer than all of malloc.
        let time = (net.ns / self.all_ns.max(1.0)).min(1.0);
        time.max(self.memory_share(finding))
    }

    fn memory_share(&self, finding: &Finding) -> f64 {
        let whole = match finding.pattern {
            Pattern::Tiny => self.taken_bytes,
            _ => self.image.peak_bytes,
        };
        (finding.memory_bytes as f64 / whole.max(1) as f64).min(1.0)
    }

    /// Ranks a finding; returns the earlier findings that claim a part of the same calls.
    fn take(&mut self, finding: &Finding, number: usize) -> Vec<usize> {
        let mut shared = BTreeSet::new();
        for part in finding.parts.iter().filter(|part| part.calls > 0) {
            let taken = &mut self.taken_by[part.origin];
            let left = &mut self.left[part.origin];
            if *left < part.calls {
                shared.extend(taken.iter().copied());
            }
            *left = left.saturating_sub(part.calls);
            taken.push(number);
        }
        shared.into_iter().collect()
    }
}

/// The thresholds from which a finding is worth a change.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    /// The share of calls, of bytes or of the peak; one of the three is enough.
    share: f64,
    calls: u64,
    bytes: u64,
}

impl Worth {
    const SHARE: f64 = 0.005;
    /// The share of calls for a cache of freed blocks, whatever its bytes.
    const FEWEST_OF_A_LIST: f64 = 0.01;
    /// The share of the time of allocations, or of the peak, for findings that save calls.
    const TIME_SHARE: f64 = 0.01;

    pub fn of(image: &ImageFacts) -> Self {
        let sums = || image.sites.iter().map(|site| &site.sums);
        Self {
            share: Self::SHARE,
            calls: sums().map(|sums| sums.calls).sum(),
            bytes: sums().map(|sums| sums.bytes).fold(0, u64::saturating_add),
        }
    }

    /// Every finding is worth it.
    pub fn any(image: &ImageFacts) -> Self {
        Self {
            share: 0.0,
            ..Self::of(image)
        }
    }

    fn share_of(&self, calls: u64, bytes: u64) -> f64 {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        share(calls, self.calls).max(share(bytes, self.bytes))
    }

    /// Whether a finding about buffers of these origins could be worth it.
    pub fn admits(&self, image: &ImageFacts, group: &[usize]) -> bool {
        let parts = buffers_whole(image, group);
        let calls = parts.iter().map(|part| part.calls).sum();
        let bytes = parts
            .iter()
            .map(|part| part.bytes)
            .fold(0, u64::saturating_add);
        self.share_of(calls, bytes) >= self.share
    }
}

/// The findings that are worth a change, and the others, both in order.
pub fn by_worth(image: &ImageFacts, ranked: Vec<Ranked>) -> (Vec<Ranked>, Vec<Ranked>) {
    let worth = Worth::of(image);
    ranked.into_iter().partition(|ranked| {
        let finding = &ranked.finding;
        let (calls, bytes) = match finding.calls() {
            0 if finding.memory_bytes == 0 => finding.blocks(image),
            _ => (ranked.net_calls, ranked.net_bytes),
        };
        let shown = worth.share_of(calls, bytes).max(ranked.memory_share) >= worth.share;
        let few = (ranked.net_calls as f64) < Worth::FEWEST_OF_A_LIST * worth.calls as f64;
        // Many small blocks may take little time.
        let takes_time = finding.calls() == 0 || ranked.share >= Worth::TIME_SHARE;
        shown && takes_time && !(is_list(finding) && few)
    })
}

/// Whether its blocks outlive all calls that could keep them.
fn is_list(finding: &Finding) -> bool {
    let within = |claim: &Claim| matches!(claim, Claim::EndsWithin { .. });
    finding.pattern == Pattern::Reuse && !finding.evidence.iter().any(within)
}

/// Updates the ranks by which findings name each other; a finding that is not shown is not named.
pub fn renumber(findings: &mut [Ranked]) {
    let places: FxHashMap<usize, usize> = findings
        .iter()
        .enumerate()
        .map(|(place, ranked)| (ranked.number, place))
        .collect();
    for ranked in findings {
        let shared = ranked.shared_with.iter();
        ranked.shared_with = shared
            .filter_map(|number| places.get(number).copied())
            .collect();
    }
}

/// What a finding saves beside allocations: the time in which calloc zeroes blocks that need no zeros, or in
/// which buffers are copied that grow. A copy takes no less than zeroing as many bytes.
fn beside_ns(image: &ImageFacts, costs: &Costs, finding: &Finding) -> f64 {
    let sums = |part: &Part| &image.sites[part.origin].sums;
    match finding.pattern {
        Pattern::Zeroed => {
            let calls: u64 = finding.parts.iter().map(|part| sums(part).calls).sum();
            calls as f64 * costs.zero_ns(finding.size_bytes.unwrap_or(0))
        }
        Pattern::Reserve | Pattern::GrowByFactor => {
            let grown = finding.evidence.iter().find_map(|claim| match claim {
                Claim::Grew { origins, steps, .. } => Some((origins, *steps)),
                _ => None,
            });
            let Some((origins, steps)) = grown.filter(|(_, steps)| *steps > 0) else {
                return 0.0;
            };
            let grown = origins
                .iter()
                .filter_map(|origin| image.sites[*origin].facts.growth.steps.as_deref());
            let copied: u64 = grown.map(|steps| steps.copied_bytes).sum();
            let saved = finding.calls().min(steps) as f64;
            saved * costs.zero_ns(copied / steps)
        }
        _ => 0.0,
    }
}

/// A hot line is reported only if no other finding explains it, or embeds other blocks in its own.
fn without_weaker(findings: Vec<Finding>) -> Vec<Finding> {
    let explained: FxHashSet<usize> = findings
        .iter()
        .filter(|finding| finding.pattern != Pattern::Hot && finding.calls() > 0)
        .flat_map(|finding| {
            let parts = finding.parts.iter().map(|part| part.origin);
            parts.chain(finding.related.iter().copied())
        })
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
