//! Copies that are gone before the next one is made: the original would do. Only for Rust, where the names of
//! the functions on the stack say what copies.

use rustc_hash::FxHashSet;

use crate::advise::claim::{Claim, Scope};
use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Pattern, buffers_whole, grouped_by,
};
use crate::advise::prove::{self, Answers, AtOnce, Questions};
use crate::advise::rank::Worth;
use crate::advise::sizes::Sizes;
use crate::reading::naming::function_name;
use crate::reading::resolve::ChainFrame;

/// Parts of names of functions that copy what they are given; `to_string` and `String::from` call the last.
const COPIES: &[&str] = &[
    "core::clone::Clone>::clone",
    "::to_vec",
    "ToOwned>::to_owned",
];
/// `vec![value; n]` and `resize`: copies that are elements of their own.
const FILLS: &[&str] = &["::from_elem", "::extend_with"];
/// If other findings save this share of the copies' calls, those are cured already.
const MOSTLY: f64 = 0.9;

/// Copies by the line that asks for them, and the question about each.
pub struct Asked(Vec<(Vec<usize>, prove::Asked)>);

pub fn ask(image: &ImageFacts, worth: &Worth, questions: &mut Questions) -> Asked {
    let groups = grouped_by(image, |_, site| {
        let buffers = &site.facts.buffers;
        let whole_life = buffers.freed == buffers.begun && buffers.foreign == 0;
        // What grows is changed.
        let fits = buffers.begun > 0 && whole_life && buffers.steps.is_empty();
        let copied = fits.then(|| Copied::of(site)).flatten()?;
        Some(image.place_of(Some(copied.maker)))
    });
    let begun = |group: &Vec<usize>| -> u64 {
        let sites = group.iter().map(|origin| &image.sites[*origin]);
        sites.map(|site| site.facts.buffers.begun).sum()
    };
    let groups = groups
        .into_iter()
        .filter(|group| begun(group) >= FEWEST_BLOCKS && worth.admits(image, group));
    let asked = groups.map(|group| {
        let asked = questions.at_once(&group);
        (group, asked)
    });
    Asked(asked.collect())
}

/// Findings for copies of which no sure one of `others` cures nearly all.
pub fn conclude<'a>(
    image: &ImageFacts,
    asked: &Asked,
    answers: &Answers,
    others: impl Iterator<Item = &'a Finding> + Clone,
) -> Vec<Finding> {
    let found = asked.0.iter().filter_map(|(group, asked)| {
        let found = finding(image, group, &answers.at_once(*asked))?;
        let copies: FxHashSet<usize> = found.parts.iter().map(|part| part.origin).collect();
        let sure = others
            .clone()
            .filter(|other| other.confidence > Confidence::Low);
        let parts = sure.flat_map(|other| &other.parts);
        let cured: u64 = parts
            .filter(|part| copies.contains(&part.origin))
            .map(|part| part.calls)
            .sum();
        ((cured as f64) < MOSTLY * found.calls() as f64).then_some(found)
    });
    found.collect()
}

fn finding(image: &ImageFacts, group: &[usize], counted: &AtOnce) -> Option<Finding> {
    let first = &image.sites[*group.first()?];
    let copied = Copied::of(first)?;
    let gone = counted.amid == 0 && counted.sweeps >= FEWEST_BLOCKS;
    // What outlives the function that asks for several copies may be collected, or changed.
    if !gone || (counted.most > 1 && within_maker(image, group) < MOSTLY * counted.begun as f64) {
        return None;
    }
    let sizes = sizes(image, group);
    let lives = match counted.most {
        1 => Claim::AtOnce {
            origins: group.iter().map(|origin| (*origin, None)).collect(),
            scope: Scope::Process,
            most: 1,
            begun: counted.begun,
            largest_bytes: sizes.largest(),
            equal: sizes.smallest() == sizes.largest(),
        },
        _ => Claim::Swept {
            origins: group.to_vec(),
            buffers: counted.begun,
            sweeps: counted.sweeps,
        },
    };
    let maker = function_name(copied.maker);
    Some(Finding {
        pattern: Pattern::Copied,
        site: group[0],
        related: Vec::new(),
        parts: buffers_whole(image, group),
        memory_bytes: 0,
        keeper: None,
        evidence: vec![
            lives,
            format!("{maker} has them made as copies, by {}", copied.by).into(),
        ],
        cure: format!(
            "let {maker} use the original, or return a reference to it (a Cow, if it is changed in some cases), \
             where it lives as long as the copy; of a copied whole, copy what is kept; take() what the original \
             does not need any more"
        ),
        size_bytes: None,
        confidence: Confidence::Medium,
    })
}

/// Whether a block is the copy of something, by name.
pub(super) fn is_copy(site: &Site) -> bool {
    Copied::of(site).is_some()
}

/// Copies that were freed before the function that asked for them had certainly returned.
fn within_maker(image: &ImageFacts, group: &[usize]) -> f64 {
    let within = group.iter().map(|origin| {
        let site = &image.sites[*origin];
        let outside =
            Copied::of(site).map(|copied| site.chain.depth().saturating_sub(copied.frame + 1));
        outside.map_or(0, |frames| site.facts.buffers.shared.of(frames))
    });
    within.sum::<u64>() as f64
}

fn sizes(image: &ImageFacts, group: &[usize]) -> Sizes {
    let mut sizes = Sizes::default();
    for origin in group {
        sizes.merge(&image.sites[*origin].facts.buffers.largest);
    }
    sizes
}

/// The functions through which a line copies.
struct Copied<'a> {
    /// The function that asks for the copy.
    maker: &'a ChainFrame,
    /// Its physical frame, from the innermost.
    frame: usize,
    /// The outermost function that copies.
    by: String,
}

impl<'a> Copied<'a> {
    fn of(site: &'a Site) -> Option<Self> {
        site.container?;
        let mut by = None;
        let frames = site.chain.iter().enumerate();
        for (index, frame) in
            frames.flat_map(|(index, frames)| frames.iter().map(move |f| (index, f)))
        {
            if named(frame, FILLS) {
                return None;
            }
            if named(frame, COPIES) {
                by = Some(frame);
            } else if !frame.is_passed_over() {
                return by.map(|by| Self {
                    maker: frame,
                    frame: index,
                    by: function_name(by),
                });
            }
        }
        None
    }
}

fn named(frame: &ChainFrame, parts: &[&str]) -> bool {
    let function = frame.source.function.as_ref();
    function.is_some_and(|function| parts.iter().any(|part| function.name.contains(part)))
}
