//! Vectors, strings and counted slices that nearly always hold little, and that no function could keep between
//! calls: with inline capacity they need no block.

use larder_base::number::percent;
use rustc_hash::FxHashMap;

use crate::advise::claim::Claim;
use crate::advise::element::Types;
use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Pattern, Place, buffers_up_to, grouped_by,
};
use crate::advise::packages;
use crate::advise::sizes::Sizes;
use crate::reading::attribute::functions;

/// A larger value is expensive to move.
const MOST_BYTES: u64 = 256;
/// Bytes may be a string, of any length in the next run; this many fit into the size of a vector.
pub(super) const MOST_TEXT_BYTES: u64 = 24;
const WORD_BYTES: u64 = 8;
/// The counts before the bytes of an `Arc<[u8]>` or an `Rc<str>`.
const COUNTS_BYTES: u64 = 16;
/// The share of the vectors that must fit.
const MOST_OF_THEM: f64 = 0.9;

/// The others may be larger by this factor.
const MOST_TIMES_LARGER: u64 = 8;

/// `others`: findings about functions that could keep the vectors; one that covers most of a line takes
/// precedence.
pub fn detect<'a>(
    image: &ImageFacts,
    types: &Types<'_>,
    others: impl Iterator<Item = &'a Finding>,
) -> Vec<Finding> {
    let mut kept: FxHashMap<Place, u64> = FxHashMap::default();
    for finding in others.filter(|finding| finding.confidence > Confidence::Low) {
        let place = image.sites[finding.site].place;
        let most = kept.entry(place).or_default();
        *most = finding.calls().max(*most);
    }
    let groups = grouped_by(image, |_, site| is_held(site).then_some(site.place));
    let found = groups.iter().filter_map(|group| {
        let kept = kept.get(&image.sites[group[0]].place).copied();
        let finding = finding(image, types, group)?;
        (kept.unwrap_or(0) < finding.calls() / 2).then_some(finding)
    });
    found.collect()
}

/// Only for Rust, where libraries have such vectors.
fn is_held(site: &Site) -> bool {
    let holds = match site.container {
        Some("Vec" | "String") => true,
        Some("Rc" | "Arc") => is_counted_slice(site),
        _ => false,
    };
    site.facts.buffers.begun > 0 && holds && site.library_function().is_none()
}

/// An object behind a pointer that counts may be of any kind; a slice is a text or a list.
fn is_counted_slice(site: &Site) -> bool {
    let below = functions(&site.chain).take(site.site.unwrap_or(0));
    let mut names = below.filter_map(|frame| frame.source.function.as_ref());
    names.any(|function| function.name.contains("::allocate_for_slice"))
}

/// Whether the object that has one of a line's vectors cannot hold it.
fn is_held_elsewhere(image: &ImageFacts, group: &[usize]) -> bool {
    let mut sites = group.iter().map(|origin| &image.sites[*origin]);
    sites.any(|site| site.holds_its_own_type() || packages::is_of_another(site))
}

fn finding(image: &ImageFacts, types: &Types<'_>, group: &[usize]) -> Option<Finding> {
    let (mut finals, mut largest) = (Sizes::default(), Sizes::default());
    for facts in group.iter().map(|origin| &image.sites[*origin].facts) {
        finals.merge(&facts.growth.finals);
        largest.merge(&facts.buffers.largest);
    }
    let [half, most, nearly_all] = [0.5, MOST_OF_THEM, 0.99].map(|share| finals.covering(share));
    let unit = types.unit_of_grown(image, group, &finals);
    let container = image.sites[group[0]].container;
    let (text, counted) = (
        container == Some("String"),
        matches!(container, Some("Rc" | "Arc")),
    );
    let counts = if counted { COUNTS_BYTES } else { 0 };
    let words = [finals.smallest(), finals.largest()]
        .iter()
        .all(|bytes| bytes % WORD_BYTES == 0);
    let room = match unit.size_bytes() {
        _ if counted => COUNTS_BYTES + MOST_TEXT_BYTES,
        Some(2..) => MOST_BYTES,
        _ if text || finals.smallest() == finals.largest() || words => MOST_TEXT_BYTES,
        // Bytes of one fixed length per vector are a table.
        _ => return None,
    };
    // A shrunk vector held more before; a far larger one is of another kind.
    let shrunk = largest.covering(MOST_OF_THEM) > most;
    let mixed = largest.largest() > most.saturating_mul(MOST_TIMES_LARGER);
    let unfit = finals.total() < FEWEST_BLOCKS || most > room || shrunk || mixed;
    if unfit || is_held_elsewhere(image, group) {
        return None;
    }
    Some(Finding {
        pattern: Pattern::Inline,
        site: group[0],
        related: Vec::new(),
        parts: buffers_up_to(image, group, &finals, most),
        memory_bytes: 0,
        keeper: None,
        evidence: vec![Claim::Ends {
            origins: group.to_vec(),
            at_most: [(50, half), (90, most), (99, nearly_all)],
            largest_bytes: finals.largest(),
        }],
        cure: format!(
            "let the value hold up to {} itself, and allocate only for more ({}), if no pointer leads into \
             it when it moves: {:.0} % need no block",
            match counted {
                true => format!("{} bytes", most.saturating_sub(counts)),
                false => unit.in_full(most),
            },
            match (text, counted) {
                (true, _) => "SmolStr, CompactString",
                (_, true) => "SmolStr; TinyVec",
                _ => "SmallVec, ArrayVec",
            },
            percent(finals.up_to(most), finals.total())
        ),
        size_bytes: Some(most.saturating_sub(counts)),
        confidence: Confidence::Medium,
    })
}
