//! Two blocks that are always allocated and freed together: one could be part of the other.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use larder_base::number::grouped;
use larder_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::advise::claim::Claim;
use crate::advise::facts::{ImageFacts, MOST_LINES, Site};
use crate::advise::finding::{Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, Place, whole};
use crate::advise::prove::{self, Answers, Questions, Together};
use crate::advise::rank::Worth;
use crate::advise::sizes::Sizes;
use crate::reading::chain::Location;
use crate::reading::naming::function_name;
use crate::reading::resolve::ChainFrame;

/// The share of the second block's calls that must come soon after the first and be freed with it.
const ALWAYS: f64 = 0.99;
/// The share of the first block's calls that must have a second: else embedding wastes memory.
const MOSTLY: f64 = 0.9;
/// With this many blocks the pattern is not chance.
const SURE_BLOCKS: u64 = 100;
/// The functions that allocate them may be this many calls apart.
const MOST_FRAMES_APART: usize = 3;

/// One line allocates the object and the block with its counts.
const SHARED_POINTER: &str = "std::shared_ptr";

/// Lines whose blocks may live together, first and second, and the question about each pair.
pub struct Asked(Vec<(Vec<usize>, Vec<usize>, prove::Asked)>);

pub fn ask(image: &ImageFacts, worth: &Worth, questions: &mut Questions) -> Asked {
    let is_worthy =
        |second: &[usize]| calls(image, second) >= FEWEST_BLOCKS && worth.admits(image, second);
    let mut places: BTreeMap<_, BTreeSet<(usize, usize)>> = BTreeMap::new();
    let candidates = candidates(image).into_iter();
    // What all stacks of two places are not worth, no part of them is.
    for (key, pairs) in candidates.filter(|(_, pairs)| {
        let second: BTreeSet<usize> = pairs.iter().map(|(_, second)| *second).collect();
        is_worthy(&Vec::from_iter(second))
    }) {
        for (first, second) in pairs {
            let (host, site) = (&image.sites[first], &image.sites[second]);
            // Realloc's blocks are of any size.
            if site.is_resizable() || host.is_resizable() {
                continue;
            }
            if let Some(leads) = Leads::to(host, site) {
                let of_both = places.entry((leads, key)).or_default();
                of_both.insert((first, second));
            }
        }
    }
    let groups = places.into_iter().map(|((leads, ..), pairs)| {
        let first: BTreeSet<usize> = pairs.iter().map(|(first, _)| *first).collect();
        let second: BTreeSet<usize> = pairs.iter().map(|(_, second)| *second).collect();
        (leads, Vec::from_iter(first), Vec::from_iter(second))
    });
    let worthy = groups.filter(|(_, _, second)| is_worthy(second));
    let mut worthy: Vec<(Leads, Vec<usize>, Vec<usize>)> = worthy.collect();
    // What a function makes at once is an object, and what others make is no part of it.
    let made = worthy.iter().filter(|(leads, ..)| *leads == Leads::Made);
    let made = made.flat_map(|(_, first, second)| first.iter().chain(second));
    let made: FxHashSet<usize> = made.copied().collect();
    worthy.retain(|(leads, first, second)| {
        let mut both = first.iter().chain(second);
        *leads == Leads::Made || !both.any(|origin| made.contains(origin))
    });
    let asked = worthy.into_iter().map(|(_, first, second)| {
        let asked = questions.together(&first, &second);
        (first, second, asked)
    });
    Asked(asked.collect())
}

/// The numbers of two places, and, where these are one, the two stacks.
type Key = (usize, usize, Option<(usize, usize)>);

/// Blocks that are mostly allocated soon after another, which comes first, by their places.
fn candidates(image: &ImageFacts) -> FxHashMap<Key, Vec<(usize, usize)>> {
    let mut candidates: FxHashMap<Key, Vec<(usize, usize)>> = FxHashMap::default();
    let numbers = numbered(image);
    for (second, site) in image.sites.iter().enumerate() {
        let calls = site.sums.calls;
        if site.facts.reallocated > 0 || site.site.is_none() || calls == 0 {
            continue;
        }
        let companions = site.facts.companions.of((calls as f64 * MOSTLY) as u64);
        for first in companions.filter(|first| *first < image.sites.len()) {
            let one_place = numbers[first] == numbers[second];
            // At one place only blocks of the C++ library are distinguished, by their stacks.
            if one_place && site.container != Some(SHARED_POINTER) {
                continue;
            }
            let apart = one_place.then_some((first, second));
            let key = (numbers[first], numbers[second], apart);
            candidates.entry(key).or_default().push((first, second));
        }
    }
    candidates
}

/// Findings for all blocks that no finding in `explained` makes needless.
pub fn conclude(
    image: &ImageFacts,
    asked: &Asked,
    answers: &Answers,
    explained: &FxHashSet<usize>,
) -> Vec<Finding> {
    let free = |group: &[usize]| !group.iter().any(|origin| explained.contains(origin));
    let pairs = asked
        .0
        .iter()
        .filter(|(first, second, _)| free(first) && free(second));
    let mut pairs: Vec<_> = pairs
        .map(|(first, second, asked)| (first, second, answers.together(*asked)))
        .filter(|(first, second, together)| always(image, first, second, together))
        .collect();
    // If each seems to follow the other, the one that follows more often counts as the second.
    order::sort_by_key(&mut pairs, |(first, second, together)| {
        let made = std::cmp::Reverse(together.made);
        (
            made,
            together.frees_between,
            together.between,
            first[0],
            second[0],
        )
    });
    let holders = holders(pairs.iter().map(|(first, second, _)| (first[0], second[0])));
    let held = |first: usize| holders.contains_key(&first);
    let found = pairs.iter().filter_map(|(first, second, together)| {
        let holder = *holders.get(&second[0])?;
        // If a block could go into several, it goes into the one that goes into no other.
        let outermost = pairs
            .iter()
            .find(|(a, b, _)| b[0] == second[0] && !held(a[0]));
        let chosen = outermost.map_or(holder, |(first, _, _)| first[0]);
        let mut outer = chosen;
        while let Some(at) = holders.get(&outer) {
            outer = *at;
        }
        let outer = (outer != chosen).then_some(outer);
        (first[0] == chosen).then(|| finding(image, first, second, *together, outer))?
    });
    let mut found: Vec<Finding> = found.collect();
    doubt_as_host(&mut found);
    found
}

/// What goes where the first goes is in doubt if that is.
fn doubt_as_host(found: &mut [Finding]) {
    let mut of_origin: FxHashMap<usize, usize> = FxHashMap::default();
    for (index, finding) in found.iter().enumerate() {
        let origins = finding.parts.iter().map(|part| (part.origin, index));
        of_origin.extend(origins);
    }
    let host = |finding: &Finding| match &finding.related[..] {
        [first, _outer] => of_origin.get(first).copied(),
        _ => None,
    };
    let hosts: Vec<Option<usize>> = found.iter().map(host).collect();
    let is_low = |finding: &Finding| finding.confidence == Confidence::Low;
    let mut more = true;
    while std::mem::take(&mut more) {
        for (index, host) in hosts.iter().enumerate() {
            if host.is_some_and(|host| is_low(&found[host])) && !is_low(&found[index]) {
                (found[index].confidence, more) = (Confidence::Low, true);
            }
        }
    }
}

/// Objects of three blocks or more that one function allocates at once: findings for all but the first.
pub fn objects(
    image: &ImageFacts,
    asked: &Asked,
    answers: &Answers,
    explained: &FxHashSet<usize>,
) -> Vec<Finding> {
    let mut found = conclude(image, asked, answers, explained);
    let site = |origin: usize| &image.sites[origin];
    let root = |finding: &Finding| finding.related.last().map(|root| site(*root));
    found.retain(|finding| {
        let own =
            root(finding).map(Site::function_name) == Some(site(finding.site).function_name());
        own && finding.confidence > Confidence::Low
    });
    let mut lines: FxHashMap<Place, FxHashSet<Place>> = FxHashMap::default();
    for finding in &found {
        let of_root = root(finding).map(|site| site.place);
        let lines = of_root.map(|root| lines.entry(root).or_default());
        lines
            .into_iter()
            .for_each(|lines| _ = lines.insert(site(finding.site).place));
    }
    let is_object = |finding: &Finding| {
        let root = root(finding).map(|site| site.place);
        root.and_then(|root| lines.get(&root))
            .is_some_and(|lines| lines.len() > 1)
    };
    found.retain(is_object);
    found
}

/// The block that each block goes into, from pairs by descending weight; without cycles.
fn holders(pairs: impl Iterator<Item = (usize, usize)>) -> FxHashMap<usize, usize> {
    let mut holders: FxHashMap<usize, usize> = FxHashMap::default();
    for (first, second) in pairs {
        let mut outward = Some(first);
        while let Some(at) = outward.filter(|at| *at != second) {
            outward = holders.get(&at).copied();
        }
        if outward.is_none() {
            holders.entry(second).or_insert(first);
        }
    }
    holders
}

/// Whether blocks of the second are nearly always allocated and freed with one of the first.
fn always(image: &ImageFacts, first: &[usize], second: &[usize], together: &Together) -> bool {
    let made = together.made as f64;
    together.made >= FEWEST_BLOCKS
        && made >= ALWAYS * calls(image, second) as f64
        && made >= MOSTLY * calls(image, first) as f64
        && (together.ended + together.live) as f64 >= ALWAYS * made
}

/// A number for each place, by origin.
fn numbered(image: &ImageFacts) -> Vec<usize> {
    let mut numbers: FxHashMap<(Place, Place), usize> = FxHashMap::default();
    let places = image.sites.iter().map(|site| {
        let next = numbers.len();
        // If one line allocates both, its callers tell them apart.
        let key = (site.place, site.caller);
        *numbers.entry(key).or_insert(next)
    });
    places.collect()
}

fn calls(image: &ImageFacts, origins: &[usize]) -> u64 {
    origins
        .iter()
        .map(|origin| image.sites[*origin].sums.calls)
        .sum()
}

/// The origin with whose live blocks all live blocks of these were allocated.
pub fn holder(
    asked: &Asked,
    answers: &Answers,
    image: &ImageFacts,
    group: &[usize],
) -> Option<usize> {
    let live: u64 = group
        .iter()
        .map(|origin| image.sites[*origin].sums.live_blocks)
        .sum();
    let holding = asked.0.iter().find(|(first, second, asked)| {
        let together = answers.together(*asked);
        group.iter().all(|origin| second.contains(origin))
            && !first.iter().any(|origin| group.contains(origin))
            && live > 0
            && together.live >= live
    });
    holding.map(|(first, _, _)| first[0])
}

/// What two lines, all in one module, have in common: a caller of a library cannot change the library's objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    /// One function, or a short chain of calls from it, allocates both.
    Made,
    /// One function frees both, and is not the one that leads to both: it knows them as parts of one object.
    Freed,
}

impl Leads {
    fn to(a: &Site, b: &Site) -> Option<Self> {
        let [outer_a, outer_b] = [a, b].map(|site| site.chain.iter().collect::<Vec<_>>());
        let pairs = outer_a.iter().rev().zip(outer_b.iter().rev());
        let same = pairs.take_while(|(x, y)| Rc::ptr_eq(x, y)).count();
        let apart = |site: &Site, depth: usize| depth.saturating_sub(site_depth(site) + same);
        let module = |site: &Site| site.site_frame().map(|frame| frame.module.path.clone());
        // The first caller that they do not share lies in the function that leads to both.
        let maker = outer_a
            .len()
            .checked_sub(same + 1)
            .and_then(|depth| outer_a.get(depth));
        let maker = maker.and_then(|frames| frames.last()).or(a.site_frame());
        let one_module = module(a) == module(b)
            && maker.is_none_or(|maker| Some(&maker.module.path) == module(a).as_ref());
        let apart = apart(a, outer_a.len()).max(apart(b, outer_b.len()));
        let leads = match apart <= MOST_FRAMES_APART {
            true => Some(Self::Made),
            false => freed_by_one(a, b, maker).then_some(Self::Freed),
        };
        leads.filter(|_| one_module)
    }
}

fn freed_by_one(a: &Site, b: &Site, maker: Option<&ChainFrame>) -> bool {
    let frees = |site: &Site| -> Vec<Location> {
        let owner = site.owner.as_ref();
        owner.map_or(Vec::new(), |owner| owner.frees.iter().cloned().collect())
    };
    let [frees_a, frees_b] = [frees(a), frees(b)];
    let mut pairs = frees_a.iter().rev().zip(frees_b.iter().rev());
    let apart = pairs.find(|(x, y)| !Rc::ptr_eq(x, y));
    let name = |frames: &Location| frames.last().map(function_name);
    let function =
        apart.and_then(|(x, y)| name(x).filter(|function| name(y).as_ref() == Some(function)));
    function.is_some() && function != maker.map(function_name)
}

/// The number of physical frames below the charged one.
fn site_depth(site: &Site) -> usize {
    let (index, mut seen) = (site.site.unwrap_or(0), 0);
    let inner = site.chain.iter().take_while(|frame| {
        seen += frame.len();
        seen <= index
    });
    inner.count()
}

fn finding(
    image: &ImageFacts,
    first: &[usize],
    second: &[usize],
    together: Together,
    outer: Option<usize>,
) -> Option<Finding> {
    let heaviest = |group: &[usize]| {
        let by_calls =
            |origin: &usize| (image.sites[*origin].sums.calls, std::cmp::Reverse(*origin));
        group.iter().copied().max_by_key(by_calls)
    };
    let (named, other) = (heaviest(second)?, heaviest(first)?);
    let (a, b) = (&image.sites[other], &image.sites[named]);
    let of_second = calls(image, second);
    let shared = b.container == Some(SHARED_POINTER);
    let sizes = merged(image, second);
    // A string, and what the line allocates for another caller, may have another length in the next run.
    let of_line = (0..image.sites.len()).filter(|origin| image.sites[*origin].place == b.place);
    let of_line = merged(image, &of_line.collect::<Vec<_>>());
    let fixed = of_line.smallest() == of_line.largest() && !b.copies_text();
    let member_bytes = fixed.then(|| sizes.largest());
    let related = [Some(other), outer].into_iter().flatten().collect();
    let outer = outer.map(|outer| &image.sites[outer]);
    let size = match fixed {
        true => grouped(sizes.largest()),
        false => format!("up to {}", grouped(sizes.largest())),
    };
    Some(Finding {
        pattern: if shared {
            Pattern::MakeShared
        } else {
            Pattern::Embed
        },
        site: named,
        related,
        // The bytes move into the other block, so they are not saved.
        parts: second
            .iter()
            .map(|origin| Part {
                bytes: 0,
                ..whole(image, *origin)
            })
            .collect(),
        memory_bytes: 0,
        keeper: None,
        evidence: vec![
            Claim::Together {
                first: first.to_vec(),
                second: second.to_vec(),
                first_shown: a.shown(),
                blocks: of_second,
                counted: together,
            },
            format!("{} and {size} bytes", a_size(&merged(image, first))).into(),
        ],
        cure: cure(a, outer, member_bytes, shared, &together),
        size_bytes: member_bytes,
        confidence: if has_own_life(image, (a, b), outer, fixed, &together) {
            Confidence::Low
        } else if fixed
            && together.frees_between == 0
            && of_second >= SURE_BLOCKS
            && !is_swept(image, a, b)
        {
            Confidence::High
        } else {
            Confidence::Medium
        },
    })
}

/// `member_bytes`: of the second, where it always has the same size.
fn cure(
    first: &Site,
    outer: Option<&Site>,
    member_bytes: Option<u64>,
    shared: bool,
    together: &Together,
) -> String {
    if shared {
        return "std::make_shared puts the object and its counts into one block".to_owned();
    }
    let mut cure = match (outer, member_bytes) {
        (Some(outer), _) => format!(
            "put it where the first goes: make both part of what {} allocates",
            outer.shown()
        ),
        (None, Some(bytes)) => format!(
            "make the second a member of the first: one block of {} bytes",
            grouped(first.facts.sizes.largest().saturating_add(bytes))
        ),
        (None, None) => {
            "allocate both at once: a flexible array member at the end of the first, or \
                         one block for header and payload"
                .to_owned()
        }
    };
    if together.first_before > 0 {
        cure += "; the first is freed before the second today: free it last";
    }
    cure + "; where one alone is reallocated or freed today, do so with both, or move the second to a block of \
            its own first"
}

fn is_swept(image: &ImageFacts, first: &Site, second: &Site) -> bool {
    image.lines_freed_with(first, second) >= MOST_LINES
}

/// Whether nothing was ever allocated between the two, nor freed, many times over.
fn side_by_side(together: &Together) -> bool {
    together.between == 0 && together.frees_between == 0 && together.ended >= SURE_BLOCKS
}

/// Whether the second is likely to need a block of its own.
fn has_own_life(
    image: &ImageFacts,
    (first, second): (&Site, &Site),
    outer: Option<&Site>,
    fixed: bool,
    together: &Together,
) -> bool {
    let shared = second.container == Some(SHARED_POINTER);
    // A destructor frees the parts of its object; a sweep frees unrelated objects, too, but never only side by
    // side.
    let swept = is_swept(image, first, second) && !side_by_side(together);
    // Two strings, or buffers of any length, have independent lifetimes.
    let root = outer.unwrap_or(first);
    let host = &root.facts.sizes;
    let host_varies = host.smallest() != host.largest();
    // What another function sets, it may set anew.
    let set_apart = first.function_name() != second.function_name();
    let texts = !fixed && (host_varies || set_apart) && !shared;
    // A class allocates its own block, which cannot be placed elsewhere.
    let classed = second.container.is_some() && !shared;
    // Nothing can be a member of a text.
    swept || texts || root.copies_text() || classed
}

fn merged(image: &ImageFacts, group: &[usize]) -> Sizes {
    let mut sizes = Sizes::default();
    for origin in group {
        sizes.merge(&image.sites[*origin].facts.sizes);
    }
    sizes
}

fn a_size(sizes: &Sizes) -> String {
    if sizes.smallest() == sizes.largest() {
        grouped(sizes.largest())
    } else {
        format!("up to {}", grouped(sizes.largest()))
    }
}
