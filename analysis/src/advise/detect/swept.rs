//! Many blocks that are freed together, none of them before the last one is allocated: an arena holds them
//! in a few larger pieces, and takes no more memory than they do.

use larder_base::number::grouped;
use rustc_hash::FxHashSet;

use super::short;
use crate::advise::claim::Claim;
use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{Confidence, Finding, Part, Pattern, whole};
use crate::advise::prove::{Answers, AtOnce};

/// Fewer buffers a sweep can be kept, or are not worth an arena.
const MORE_THAN: u64 = 8;
/// Larger blocks are pieces that an arena itself would take.
const PIECE_BYTES: u64 = 1024;
/// The end of a program is a sweep, too: one shows nothing about a longer run.
const SURE_SWEEPS: u64 = 2;

/// Findings for lines of which no block is among `taken`, those of other findings.
pub fn detect(
    image: &ImageFacts,
    asked: &short::Asked,
    answers: &Answers,
    taken: &FxHashSet<usize>,
) -> Vec<Finding> {
    let found = asked.lines.iter().filter_map(|(group, asked)| {
        let free = !group.iter().any(|origin| taken.contains(origin));
        free.then(|| finding(image, group, &answers.at_once(*asked)))?
    });
    found.collect()
}

fn finding(image: &ImageFacts, group: &[usize], counted: &AtOnce) -> Option<Finding> {
    let sites = || group.iter().map(|origin| &image.sites[*origin]);
    let whole_life = |site: &Site| {
        let buffers = &site.facts.buffers;
        buffers.freed == buffers.begun && buffers.foreign == 0 && buffers.steps.is_empty()
    };
    let sweeps = counted.sweeps.max(1);
    let bytes = sites()
        .map(|site| site.sums.bytes)
        .fold(0, u64::saturating_add);
    let first = sites().next()?;
    if !sites().all(whole_life)
        || counted.amid > 0
        || counted.begun <= MORE_THAN * sweeps
        || bytes > PIECE_BYTES.saturating_mul(counted.begun)
        || first.library_function().is_some()
    {
        return None;
    }
    let shared = matches!(first.container, Some("Rc" | "Arc"));
    let swept = |site: &Site| site.owner.as_ref().is_some_and(|owner| owner.frees_in_loop);
    // A function that frees one object may be called for it alone in another run.
    let alone = first.container.is_none() && !sites().all(swept);
    Some(Finding {
        pattern: Pattern::Arena,
        site: group[0],
        related: Vec::new(),
        parts: parts(image, group, sweeps),
        memory_bytes: 0,
        keeper: None,
        evidence: vec![Claim::Swept {
            origins: group.to_vec(),
            buffers: counted.begun,
            sweeps,
        }],
        cure: cure(first.container, bytes / sweeps),
        size_bytes: None,
        confidence: match sweeps < SURE_SWEEPS || shared || alone {
            true => Confidence::Low,
            false => Confidence::Medium,
        },
    })
}

/// All requests but one a sweep, for the arena. The bytes move into it, so they are not saved.
fn parts(image: &ImageFacts, group: &[usize], sweeps: u64) -> Vec<Part> {
    let mut stay = sweeps;
    let part = |origin: &usize| {
        let all = whole(image, *origin);
        let kept = stay.min(all.calls);
        stay -= kept;
        Part {
            calls: all.calls - kept,
            bytes: 0,
            ..all
        }
    };
    group.iter().map(part).collect()
}

fn cure(container: Option<&str>, sweep_bytes: u64) -> String {
    let bytes = grouped(sweep_bytes);
    let how = match container {
        Some("String" | "std::string") => format!(
            "put the texts one behind the other into larger pieces ({bytes} bytes a sweep), and refer to \
             them by reference or range"
        ),
        Some("Vec" | "std::vector") => format!(
            "let one list hold the elements of all ({bytes} bytes a sweep), each a range of it, or take \
             them from an arena"
        ),
        Some(class) => format!(
            "give the {class} an arena to allocate from, in larger pieces ({bytes} bytes a sweep)"
        ),
        None => format!("take them from an arena, in larger pieces ({bytes} bytes a sweep)"),
    };
    how + "; free it as a whole where they are freed today, after what they own, and none alone; malloc \
           for what outlives the others or is reallocated"
}
