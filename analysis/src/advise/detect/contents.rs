//! Contents: equal bytes in several blocks at once, and calloc's zeros of which none was left. Only for
//! traces recorded with `--contents`.

use larder_base::number::percent;

use crate::advise::claim::Claim;
use crate::advise::contents::{Copies, Zeros};
use crate::advise::facts::ImageFacts;
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, Place, grouped_by, no_calls,
};

/// Copies must be this share of a line's blocks, in percent.
const COPIES_SHARE: f64 = 50.0;
/// If fewer copies than this share, in percent, have text or data, the confidence is low.
const DENSE_SHARE: f64 = 90.0;
/// In percent of the copies: if one block outlives this share, they are needless.
const OUTLIVED_SHARE: f64 = 90.0;
/// Zeroing fewer bytes costs nothing measurable.
const ZEROED_BYTES: u64 = 256;

/// Blocks with the contents of another live block.
pub fn duplicates(image: &ImageFacts) -> Vec<Finding> {
    let mut of_copy = vec![Vec::new(); image.sites.len()];
    for ((copy, first), copies) in &image.copies {
        // All copies of a pair may have been reassigned to another.
        if copies.blocks > 0
            && let Some(pairs) = of_copy.get_mut(*copy as usize)
        {
            pairs.push((*first as usize, *copies));
        }
    }
    let groups = grouped_by(image, |_, site| Some(site.place));
    let finding = |group: &Vec<usize>| duplicated(image, group, &of_copy);
    groups.iter().filter_map(finding).collect()
}

fn duplicated(
    image: &ImageFacts,
    sites: &[usize],
    of_copy: &[Vec<(usize, Copies)>],
) -> Option<Finding> {
    let with_copies = sites.iter().filter(|origin| !of_copy[**origin].is_empty());
    let group: Vec<usize> = with_copies.copied().collect();
    let place = image.sites[*group.first()?].place;
    let parts: Vec<Part> = group
        .iter()
        .map(|&origin| Part {
            origin,
            calls: of_copy[origin].iter().map(|(_, c)| c.blocks).sum(),
            bytes: of_copy[origin].iter().map(|(_, c)| c.bytes).sum(),
        })
        .collect();
    let copies: u64 = parts.iter().map(|part| part.calls).sum();
    let all = sites.iter().map(|origin| image.sites[*origin].sums.calls);
    let calls: u64 = all.sum();
    if copies < FEWEST_BLOCKS || percent(copies, calls) < COPIES_SHARE {
        return None;
    }
    let pairs = || group.iter().flat_map(|origin| &of_copy[*origin]);
    let dense: u64 = pairs().map(|(_, copies)| copies.dense).sum();
    let (_, largest) = pairs().max_by_key(|(first, copies)| (copies.most, *first))?;
    let source = source(image, &group, of_copy)?;
    let outlived = percent(source.outlived, copies) >= OUTLIVED_SHARE;
    Some(Finding {
        pattern: match outlived {
            true => Pattern::Copied,
            false => Pattern::Duplicates,
        },
        site: group[0],
        related: source.elsewhere(place).into_iter().collect(),
        parts,
        memory_bytes: 0,
        keeper: None,
        evidence: vec![
            Claim::Equal {
                origins: sites.to_vec(),
                made: calls,
                blocks: copies,
                most: largest.most,
                most_bytes: largest.most_size,
            },
            source.claim(image, sites, place),
            Claim::Note("equal at their end: check whether they change before".to_owned()),
        ],
        cure: match outlived {
            true => {
                "use the first block by a pointer, a view or a counted reference: it lives longer"
            }
            false => {
                "share one block: by a counted reference, or a table with one block for equal contents"
            }
        }
        .to_owned(),
        size_bytes: None,
        // Pointers and small numbers are state: it is equal by chance, and it changes.
        confidence: if percent(dense, copies) >= DENSE_SHARE {
            Confidence::Medium
        } else {
            Confidence::Low
        },
    })
}

/// The line that allocated the first blocks of most copies, with its origins.
struct Source {
    place: Place,
    firsts: Vec<usize>,
    blocks: u64,
    outlived: u64,
}

impl Source {
    /// An origin of the line, if it is not this one.
    fn elsewhere(&self, place: Place) -> Option<usize> {
        let first = self.firsts.first().copied();
        first.filter(|_| self.place != place)
    }

    /// The claim about the copies that these origins allocate.
    fn claim(self, image: &ImageFacts, copying: &[usize], place: Place) -> Claim {
        Claim::Source {
            origins: copying.to_vec(),
            shown: match self.elsewhere(place) {
                None => "this line".to_owned(),
                Some(first) => image.sites[first].shown(),
            },
            firsts: self.firsts,
            blocks: self.blocks,
            outlived: self.outlived,
        }
    }
}

fn source(image: &ImageFacts, group: &[usize], of_copy: &[Vec<(usize, Copies)>]) -> Option<Source> {
    let mut sources: Vec<Source> = Vec::new();
    for (first, copies) in group.iter().flat_map(|origin| &of_copy[*origin]) {
        let place = image.sites[*first].place;
        let known = sources.iter_mut().find(|source| source.place == place);
        match known {
            Some(source) => {
                source.firsts.push(*first);
                source.blocks += copies.blocks;
                source.outlived += copies.outlived;
            }
            None => sources.push(Source {
                place,
                firsts: vec![*first],
                blocks: copies.blocks,
                outlived: copies.outlived,
            }),
        }
    }
    for source in &mut sources {
        source.firsts.sort_unstable();
    }
    sources
        .into_iter()
        .max_by_key(|source| (source.blocks, std::cmp::Reverse(source.firsts[0])))
}

/// Blocks of calloc without a zero at their end.
pub fn zeroed(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        (site.facts.zeros().checked > 0).then_some((site.place, site.call_name))
    });
    let finding = |group: &Vec<usize>| {
        let mut all = Zeros::default();
        let (mut calls, mut bytes) = (0u64, 0u64);
        for site in group.iter().map(|origin| &image.sites[*origin]) {
            let zeros = site.facts.zeros();
            all.checked += zeros.checked;
            all.overwritten += zeros.overwritten;
            all.data += zeros.data;
            calls += site.sums.calls;
            bytes = bytes.saturating_add(site.sums.bytes);
        }
        // A trace has no contents of blocks that are too large, or live when a signal ends the program.
        let enough = all.checked >= FEWEST_BLOCKS && percent(all.checked, calls) >= 90.0;
        let size = bytes / calls.max(1);
        (enough && all.overwritten == all.checked && size >= ZEROED_BYTES).then(|| Finding {
            pattern: Pattern::Zeroed,
            site: group[0],
            related: Vec::new(),
            parts: no_calls(image, group),
            memory_bytes: 0,
            keeper: None,
            evidence: vec![Claim::Overwritten {
                origins: group.clone(),
                seen: all.checked,
                made: calls,
                mean_bytes: size,
                words: all.data == all.checked,
            }],
            cure:
                "malloc, if each byte is assigned before it is read; counters that start at zero \
                   need calloc"
                    .to_owned(),
            size_bytes: Some(size),
            // Numbers may have been summed up from zero.
            confidence: if all.data == all.checked {
                Confidence::Medium
            } else {
                Confidence::Low
            },
        })
    };
    groups.iter().filter_map(finding).collect()
}
