//! Blocks that live within one call: stack, one buffer, one arena.
//!
//! Of each origin the recorded stacks tell the function in whose call every block was both made and
//! freed (`Facts::owner`), and whether that function had certainly returned in between. A function
//! that frees its last block first and then makes the next one looks the same but for the order of
//! its lines, or the block it leaves: neither is advised onto the stack.

use crate::advise::facts::{ImageFacts, Site};
use crate::advise::finding::{
    Confidence, FEWEST_BLOCKS, Finding, Part, Pattern, Place, grouped_by, whole,
};
use crate::advise::sizes::Sizes;
use crate::analysis::naming::{function_name, is_start};
use crate::analysis::number::{counted, grouped, percent};
use crate::analysis::plumbing::ModuleRole;
use crate::analysis::resolve::ChainFrame;

/// A local array larger than this may overflow a small thread's stack.
const MOST_STACK_BYTES: u64 = 4096;
/// From so many blocks on the pattern is no chance.
const SURE_BLOCKS: u64 = 100;

pub fn detect(image: &ImageFacts) -> Vec<Finding> {
    let groups = grouped_by(image, |_, site| {
        let life = Life::of(site)?;
        Some((site.place(), life.kind, Place::of(life.owner)))
    });
    groups
        .iter()
        .filter_map(|group| finding(image, group))
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Made and freed by the same function.
    Same,
    /// Freed by a function further out.
    Caller,
    /// Freed inside the library function that made it.
    Inside,
    /// Several at a time, all gone before the function returns.
    Many,
    /// One at a time, whoever frees it.
    OneAtATime,
}

struct Life<'a> {
    kind: Kind,
    owner: Option<&'a ChainFrame>,
}

impl<'a> Life<'a> {
    fn of(site: &'a Site) -> Option<Self> {
        let (facts, calls) = (&site.facts, site.sums.calls);
        let alone = facts.alone == calls;
        if calls < FEWEST_BLOCKS || facts.reallocated > 0 || facts.foreign > 0 {
            return None;
        }
        let one = Life {
            kind: Kind::OneAtATime,
            owner: None,
        };
        let within = facts.freed == calls && facts.returned == 0;
        if !within {
            return (alone && facts.freed + 1 >= calls).then_some(one);
        }
        let shared = Shared::of(site)?;
        if alone && shared.frees_first {
            return Some(one);
        }
        let kind = match (alone, shared.outward) {
            (true, 0) => Kind::Same,
            (true, 1..) => Kind::Caller,
            (true, _) => Kind::Inside,
            (false, 0..) if !shared.outermost => Kind::Many,
            _ => return None,
        };
        let owner = Some(shared.frame);
        Some(Life { kind, owner })
    }
}

/// The innermost function in whose call all was made and freed.
struct Shared<'a> {
    frame: &'a ChainFrame,
    /// How many functions it lies outside of the site; below 0 inside the library called there.
    outward: i64,
    /// Its line that frees comes before the one that makes.
    frees_first: bool,
    /// `main`, or a thread's function: it never returns while the thread lives.
    outermost: bool,
}

impl<'a> Shared<'a> {
    fn of(site: &'a Site) -> Option<Self> {
        let owner = site.owner.as_ref()?;
        let made = site.chain.get(owner.frame)?;
        let freed = owner.frees_frame.and_then(|frame| owner.frees.get(frame));
        // Of functions that the compiler put into one: the innermost that both stacks go through.
        let mut inward = 0;
        let mut lines = (None, None);
        for (index, (a, b)) in made
            .iter()
            .rev()
            .zip(freed.into_iter().flat_map(|f| f.iter().rev()))
            .enumerate()
        {
            let same_call = index == 0 || lines.0 == lines.1;
            if !same_call || a.source.function != b.source.function {
                break;
            }
            (inward, lines) = (index, (a.source.line, b.source.line));
        }
        let in_frame = made.len().checked_sub(inward + 1)?;
        let below: usize = site.chain.iter().take(owner.frame).map(|f| f.len()).sum();
        let outer = site.chain.get(owner.frame + 1);
        Some(Self {
            frame: made.get(in_frame)?,
            outward: (below + in_frame) as i64 - site.site? as i64,
            frees_first: lines.0.is_some() && lines.1 < lines.0,
            outermost: outer.is_none_or(|outer| outer.iter().any(starts)),
        })
    }
}

/// Without the C library's symbol table what starts `main` has no name.
fn starts(frame: &ChainFrame) -> bool {
    let unnamed = frame.source.function.is_none() && frame.module.role == ModuleRole::System;
    unnamed || is_start(frame)
}

/// What is said of a kind.
struct Advice {
    pattern: Pattern,
    evidence: Vec<String>,
    cure: String,
    confidence: Confidence,
    size_bytes: Option<u64>,
    /// The blocks that are not needed.
    kept: Kept,
}

enum Kept {
    None,
    /// One buffer stays.
    One,
    /// Blocks beyond this size stay.
    Beyond(u64),
}

fn finding(image: &ImageFacts, group: &[usize]) -> Option<Finding> {
    let heaviest = *group.first()?;
    let first = &image.sites[heaviest];
    let life = Life::of(first)?;
    let mut sizes = Sizes::default();
    for origin in group {
        sizes.merge(&image.sites[*origin].facts.sizes);
    }
    let owner = life.owner.map(function_name).unwrap_or_default();
    let mut advice = match life.kind {
        Kind::Same => same(first, &owner, &sizes),
        Kind::Caller => caller(first, &owner, &sizes),
        Kind::Inside => inside(&owner),
        Kind::Many => many(image, group, &owner),
        Kind::OneAtATime => one_at_a_time(&sizes),
    };
    if let Some(container) = first.container() {
        let line = format!("the block is a {container}'s");
        advice.evidence.push(line);
    }
    Some(Finding {
        pattern: advice.pattern,
        site: heaviest,
        related: Vec::new(),
        parts: needless(image, group, &sizes, &advice.kept),
        memory_bytes: 0,
        evidence: advice.evidence,
        cure: advice.cure,
        size_bytes: advice.size_bytes,
        confidence: advice.confidence,
    })
}

fn needless(image: &ImageFacts, group: &[usize], sizes: &Sizes, kept: &Kept) -> Vec<Part> {
    let mut parts: Vec<Part> = group.iter().map(|origin| whole(image, *origin)).collect();
    match kept {
        Kept::None => {}
        Kept::One => {
            if let Some(part) = parts.first_mut() {
                part.calls = part.calls.saturating_sub(1);
            }
        }
        Kept::Beyond(size) => {
            let share = sizes.up_to(*size) as f64 / sizes.total().max(1) as f64;
            for part in parts.iter_mut().filter(|_| share < 1.0) {
                part.calls = (part.calls as f64 * share) as u64;
                part.bytes = (part.bytes as f64 * share) as u64;
            }
        }
    }
    parts
}

fn sure(sizes: &Sizes) -> Confidence {
    if sizes.total() >= SURE_BLOCKS {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

fn one_of(sizes: &Sizes) -> String {
    let largest = counted(sizes.largest(), "byte");
    if sizes.smallest() == sizes.largest() {
        format!("one block at a time, of {largest}")
    } else {
        format!("one block at a time, of at most {largest}")
    }
}

fn same(site: &Site, owner: &str, sizes: &Sizes) -> Advice {
    let evidence = vec![
        format!("every block is freed before {owner} returns"),
        one_of(sizes),
    ];
    let confidence = sure(sizes);
    let most = sizes.covering(0.99);
    if most > MOST_STACK_BYTES {
        return Advice {
            pattern: Pattern::Reuse,
            evidence,
            cure: format!(
                "too large for the stack: keep one buffer for {owner}, in its object or per \
                 thread, and make it larger when it must be"
            ),
            confidence,
            size_bytes: Some(most),
            kept: Kept::One,
        };
    }
    let size = match sizes.largest() {
        largest @ ..=MOST_STACK_BYTES => largest,
        _ => most,
    };
    Advice {
        pattern: Pattern::Stack,
        evidence,
        cure: stack_cure(site, sizes, size),
        confidence,
        size_bytes: Some(size),
        kept: Kept::Beyond(size),
    }
}

fn stack_cure(site: &Site, sizes: &Sizes, size: u64) -> String {
    let bytes = counted(size, "byte");
    match site.container() {
        Some("std::string") => format!(
            "a std::string_view, or one string that is kept and assigned to; the longest needs {bytes}"
        ),
        Some("std::vector") => {
            format!("a std::array of {bytes}, or one vector that is kept and cleared")
        }
        _ if sizes.largest() > size => format!(
            "a local array of {bytes} covers {:.1} % of the calls; malloc for the larger ones",
            percent(sizes.up_to(size), sizes.total())
        ),
        _ => format!(
            "a local array of {bytes} would have done for all; malloc only for what is larger"
        ),
    }
}

fn caller(site: &Site, owner: &str, sizes: &Sizes) -> Advice {
    let maker = site.function_name();
    let largest = counted(sizes.largest(), "byte");
    let cure = match sizes.largest() {
        ..=MOST_STACK_BYTES => format!(
            "let {owner} lend the memory: a local array of {largest} passed down, or one buffer \
             kept over its turns"
        ),
        _ => format!("let {owner} keep one buffer over its turns and pass it down"),
    };
    Advice {
        pattern: Pattern::Reuse,
        evidence: vec![
            format!("{maker} makes each block, and it is freed before {owner} returns"),
            one_of(sizes),
        ],
        cure,
        confidence: Confidence::Medium,
        size_bytes: Some(sizes.largest()),
        kept: Kept::One,
    }
}

fn inside(owner: &str) -> Advice {
    Advice {
        pattern: Pattern::InLibrary,
        evidence: vec![format!(
            "made and freed inside {owner}, which is called here"
        )],
        cure: format!(
            "call {owner} less often, or use a variant of it that keeps its memory between calls"
        ),
        confidence: Confidence::Low,
        size_bytes: None,
        kept: Kept::None,
    }
}

fn many(image: &ImageFacts, group: &[usize], owner: &str) -> Advice {
    let peaks = group
        .iter()
        .map(|origin| image.sites[*origin].sums.peak_bytes);
    let mut evidence = vec![format!("all blocks are freed before {owner} returns")];
    match peaks.sum::<u64>() {
        0 => {}
        bytes => evidence.push(format!("{} live at the peak", counted(bytes, "byte"))),
    }
    Advice {
        pattern: Pattern::Arena,
        evidence,
        cure: format!(
            "give {owner} an arena (one block, carved and dropped whole), or one array in place of \
             the single blocks"
        ),
        confidence: Confidence::Low,
        size_bytes: None,
        kept: Kept::None,
    }
}

fn one_at_a_time(sizes: &Sizes) -> Advice {
    let most = sizes.covering(0.99);
    Advice {
        pattern: Pattern::Reuse,
        evidence: vec![
            "each block is freed before the next one of this line is made".to_owned(),
            format!("at most {}", counted(sizes.largest(), "byte")),
        ],
        cure: format!(
            "keep one buffer and reuse it: {} cover 99 % of the calls, {} all",
            counted(most, "byte"),
            grouped(sizes.largest())
        ),
        confidence: Confidence::Medium,
        size_bytes: Some(most),
        kept: Kept::One,
    }
}
