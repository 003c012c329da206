//! The similarity of two sites, by their callees, callers and requests.
//!
//! Each part has a weight; the weights add up to `MOST`.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::side::KnownSite;

const SAME_CALL: f64 = 2.0;
const CALLEES: f64 = 1.0;
const CALLERS: f64 = 3.0;
const ANCESTORS: f64 = 1.0;
const SIZE: f64 = 2.0;
const CALLS: f64 = 1.0;

/// The score of two sites that agree in everything.
pub const MOST: f64 = SAME_CALL + CALLEES + CALLERS + ANCESTORS + SIZE + CALLS;

/// The whole score.
pub fn alike(a: &KnownSite<'_>, b: &KnownSite<'_>) -> f64 {
    CALLERS * overlap(&a.callers, &b.callers)
        + ANCESTORS * overlap(&a.ancestors, &b.ancestors)
        + alike_apart_from_callers(a, b)
}

/// The score without callers, for sites whose callers changed.
pub fn alike_apart_from_callers(a: &KnownSite<'_>, b: &KnownSite<'_>) -> f64 {
    let call = most_called(a) == most_called(b);
    let mean =
        |known: &KnownSite<'_>| known.site.sums.bytes as f64 / known.site.sums.calls.max(1) as f64;
    SAME_CALL * f64::from(u8::from(call))
        + CALLEES * overlap(&a.callees, &b.callees)
        + SIZE * ratio(mean(a), mean(b))
        + CALLS * ratio(a.site.sums.calls as f64, b.site.sums.calls as f64)
}

/// The function of the malloc family that a site calls most often.
fn most_called(known: &KnownSite<'_>) -> Option<&'static str> {
    let kinds = known.site.kinds.iter();
    kinds
        .max_by_key(|(_, calls)| **calls)
        .map(|(name, _)| *name)
}

/// The common part of two sets; 1 for two empty ones.
fn overlap(a: &BTreeSet<Rc<str>>, b: &BTreeSet<Rc<str>>) -> f64 {
    let all = a.union(b).count();
    if all == 0 {
        return 1.0;
    }
    a.intersection(b).count() as f64 / all as f64
}

/// The ratio of the smaller to the larger.
fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { a.min(b) / a.max(b) }
}
