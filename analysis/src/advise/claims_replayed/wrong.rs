//! Changes claims so that they are false: the check must refute them.

use larder_trace::{StackId, StackTable};

use super::check::path;
use super::program::FUNCTIONS;
use super::replay::Replay;
use crate::advise::claim::Claim;

/// The change, and the claim that is false after it.
type Wrong = (&'static str, Claim);

pub fn wrong(replay: &Replay, stacks: &StackTable, claim: &Claim) -> Vec<Wrong> {
    match claim {
        Claim::EndsWithin { calls, .. } => returned(replay, stacks, calls),
        Claim::AtOnce { .. } => at_once(claim),
        Claim::Together { .. } => together(claim),
        Claim::Rows { .. } => rows(claim),
        Claim::Foreign { .. } => foreign(claim),
        Claim::Left { .. } => left(claim),
        Claim::Lost { .. } => lost(claim),
        Claim::Rises { .. } => rises(claim),
        Claim::Grew { .. } => grew(claim),
        Claim::Ends { .. } => ends(claim),
        Claim::Equal { .. } => equal(claim),
        Claim::Source { .. } => source(claim),
        Claim::Overwritten { .. } => overwritten(claim),
        Claim::Freed { .. } => freed(claim),
        Claim::Swept { .. } => swept(claim),
        Claim::Note(_) => Vec::new(),
    }
}

/// A change after which some claims are still true: the blocks may be paired more closely than the tool
/// did.
pub const NOT_ALWAYS: &str = "less between";

/// The claim after a change.
macro_rules! changed {
    ($claim:expr, $kind:ident { $($field:ident),* } => $change:expr) => {{
        let mut wrong = $claim.clone();
        if let Claim::$kind { $($field,)* .. } = &mut wrong {
            $change;
        }
        wrong
    }};
}

/// Another owner: the innermost function, if that is not the owner.
fn returned(replay: &Replay, stacks: &StackTable, calls: &[(usize, StackId)]) -> Vec<Wrong> {
    let (origin, call) = calls[0];
    let of_origin = replay.buffers.iter().find(|buffer| buffer.origin == origin);
    let began = of_origin.map(|buffer| &replay.calls[buffer.call].stack);
    let Some(began) = began.filter(|stack| stack.len() > path(stacks, call).len() + 1) else {
        return Vec::new();
    };
    let inner = stacks
        .all()
        .find(|stack| path(stacks, *stack) == began[..began.len() - 1]);
    let function = replay.functions(began[began.len() - 1]).next();
    let (Some(inner), Some((function, _))) = (inner, function) else {
        return Vec::new();
    };
    let wrong = Claim::EndsWithin {
        calls: vec![(origin, inner)],
        maker: None,
        owner: FUNCTIONS[*function].to_owned(),
    };
    vec![("an inner owner", wrong)]
}

fn at_once(claim: &Claim) -> Vec<Wrong> {
    let smaller = |bytes: &mut u64| *bytes = bytes.wrapping_sub(1);
    let fewer = |origins: &mut Vec<_>| origins.truncate(origins.len() - 1);
    vec![
        ("most - 1", changed!(claim, AtOnce { most } => *most -= 1)),
        ("most + 1", changed!(claim, AtOnce { most } => *most += 1)),
        (
            "begun - 1",
            changed!(claim, AtOnce { begun } => *begun -= 1),
        ),
        (
            "equal",
            changed!(claim, AtOnce { equal } => *equal = !*equal),
        ),
        (
            "an origin less",
            changed!(claim, AtOnce { origins } => fewer(origins)),
        ),
        (
            "largest - 1",
            changed!(claim, AtOnce { largest_bytes } => smaller(largest_bytes)),
        ),
    ]
}

fn together(claim: &Claim) -> Vec<Wrong> {
    let Claim::Together {
        blocks, counted, ..
    } = claim
    else {
        return Vec::new();
    };
    let (ended, live) = (
        counted.made - counted.live + 1,
        counted.made - counted.ended + 1,
    );
    let less = |between: &mut u64| *between = between.wrapping_sub(1);
    use std::mem::swap;
    vec![
        (
            "all and one",
            changed!(claim, Together { counted } => counted.made = blocks + 1),
        ),
        (
            "more ended",
            changed!(claim, Together { counted } => counted.ended = ended),
        ),
        (
            "more live",
            changed!(claim, Together { counted } => counted.live = live),
        ),
        (
            "more firsts ended",
            changed!(claim, Together { counted } => counted.first_before = counted.ended + 1),
        ),
        (
            "fewer blocks",
            changed!(claim, Together { blocks } => *blocks -= 1),
        ),
        (
            "no first",
            changed!(claim, Together { first } => first.clear()),
        ),
        (
            "turned round",
            changed!(claim, Together { first, second } => swap(first, second)),
        ),
        (
            NOT_ALWAYS,
            changed!(claim, Together { counted } => less(&mut counted.between)),
        ),
    ]
}

fn rows(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "followers + 1",
            changed!(claim, Rows { followers } => *followers += 1),
        ),
        (
            "followers - 1",
            changed!(claim, Rows { followers } => *followers -= 1),
        ),
        ("ended + 1", changed!(claim, Rows { ended } => *ended += 1)),
        ("live + 1", changed!(claim, Rows { live } => *live += 1)),
        (
            "size + 1",
            changed!(claim, Rows { largest_bytes } => *largest_bytes += 1),
        ),
        (
            "fewer blocks",
            changed!(claim, Rows { blocks } => *blocks -= 1),
        ),
    ]
}

fn foreign(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "foreign + 1",
            changed!(claim, Foreign { foreign } => *foreign += 1),
        ),
        (
            "foreign - 1",
            changed!(claim, Foreign { foreign } => *foreign -= 1),
        ),
        (
            "freed + 1",
            changed!(claim, Foreign { freed } => *freed += 1),
        ),
    ]
}

fn left(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "blocks + 1",
            changed!(claim, Left { blocks } => *blocks += 1),
        ),
        (
            "blocks - 1",
            changed!(claim, Left { blocks } => *blocks -= 1),
        ),
        ("bytes + 1", changed!(claim, Left { bytes } => *bytes += 1)),
        ("made - 1", changed!(claim, Left { made } => *made -= 1)),
        (
            "no origin",
            changed!(claim, Left { origins } => origins.clear()),
        ),
    ]
}

fn lost(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "blocks + 1",
            changed!(claim, Lost { blocks } => *blocks += 1),
        ),
        (
            "blocks - 1",
            changed!(claim, Lost { blocks } => *blocks -= 1),
        ),
        ("bytes + 1", changed!(claim, Lost { bytes } => *bytes += 1)),
        ("live + 1", changed!(claim, Lost { live } => *live += 1)),
        (
            "no origin",
            changed!(claim, Lost { origins } => origins.clear()),
        ),
    ]
}

fn rises(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "end + 1",
            changed!(claim, Rises { end_bytes } => *end_bytes += 1),
        ),
        (
            "halfway - 1",
            changed!(claim, Rises { halfway_bytes } => *halfway_bytes -= 1),
        ),
        (
            "no origin",
            changed!(claim, Rises { origins } => origins.clear()),
        ),
    ]
}

fn grew(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "buffers + 1",
            changed!(claim, Grew { buffers } => *buffers += 1),
        ),
        (
            "buffers - 1",
            changed!(claim, Grew { buffers } => *buffers -= 1),
        ),
        ("steps + 1", changed!(claim, Grew { steps } => *steps += 1)),
        (
            "bytes - 1",
            changed!(claim, Grew { outgrown_bytes } => *outgrown_bytes -= 1),
        ),
    ]
}

fn ends(claim: &Claim) -> Vec<Wrong> {
    let Claim::Ends {
        largest_bytes,
        at_most,
        ..
    } = claim
    else {
        return Vec::new();
    };
    // No size is smaller than 0.
    if at_most[0].1 == 0 {
        return Vec::new();
    }
    // Sizes are known to an eighth.
    let less = |size: &mut u64| *size -= *size / 8 + 1;
    let below = (100, largest_bytes - 1);
    vec![
        (
            "largest + 1",
            changed!(claim, Ends { largest_bytes } => *largest_bytes += 1),
        ),
        (
            "half",
            changed!(claim, Ends { at_most } => less(&mut at_most[0].1)),
        ),
        (
            "all below it",
            changed!(claim, Ends { at_most } => at_most[2] = below),
        ),
    ]
}

fn equal(claim: &Claim) -> Vec<Wrong> {
    let all = |made: u64, blocks: &mut u64| *blocks = made;
    vec![
        ("made - 1", changed!(claim, Equal { made } => *made -= 1)),
        (
            "all and one",
            changed!(claim, Equal { made, blocks } => all(*made + 1, blocks)),
        ),
        (
            "many at once",
            changed!(claim, Equal { most } => *most += 10_000),
        ),
        (
            "of no size",
            changed!(claim, Equal { most_bytes } => *most_bytes += 1 << 40),
        ),
        (
            "no origin",
            changed!(claim, Equal { origins } => origins.clear()),
        ),
    ]
}

fn source(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "no first",
            changed!(claim, Source { firsts } => firsts.clear()),
        ),
        (
            "more outlived",
            changed!(claim, Source { blocks, outlived } => *outlived = *blocks + 1),
        ),
        (
            "no origin",
            changed!(claim, Source { origins } => origins.clear()),
        ),
    ]
}

fn overwritten(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "seen + 1",
            changed!(claim, Overwritten { seen } => *seen += 1),
        ),
        (
            "made - 1",
            changed!(claim, Overwritten { made } => *made -= 1),
        ),
        (
            "words",
            changed!(claim, Overwritten { words } => *words = !*words),
        ),
    ]
}

fn freed(claim: &Claim) -> Vec<Wrong> {
    vec![
        ("freed + 1", changed!(claim, Freed { freed } => *freed += 1)),
        ("begun - 1", changed!(claim, Freed { begun } => *begun -= 1)),
    ]
}

fn swept(claim: &Claim) -> Vec<Wrong> {
    vec![
        (
            "sweeps + 1",
            changed!(claim, Swept { sweeps } => *sweeps += 1),
        ),
        (
            "sweeps - 1",
            changed!(claim, Swept { sweeps } => *sweeps -= 1),
        ),
        (
            "buffers - 1",
            changed!(claim, Swept { buffers } => *buffers -= 1),
        ),
        (
            "no origin",
            changed!(claim, Swept { origins } => origins.clear()),
        ),
    ]
}
