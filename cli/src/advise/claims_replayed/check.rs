//! Each kind of claim against what truly happened, by the plainest way to count it.

use std::collections::{BTreeSet, HashMap, HashSet};

use larder_trace::{StackId, StackTable};

use super::program::{FUNCTIONS, PlaceId};
use super::replay::{Block, Buffer, Replay};
use super::write::place_of;
use crate::advise::claim::{Claim, Scope};
use crate::advise::prove::Together;

const PARTS: usize = 16;
const NEAR_MAKES: usize = 4;
const NEAR_ENDS: usize = 4;

/// Why a claim is not true.
pub type Verdict = Result<(), String>;

macro_rules! hold {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

pub fn check(replay: &Replay, stacks: &StackTable, claim: &Claim) -> Verdict {
    match claim {
        Claim::EndsWithin { calls, owner, .. } => {
            for (origin, call) in calls {
                ends_within(replay, *origin, &path(stacks, *call), owner)?;
            }
            Ok(())
        }
        Claim::AtOnce { .. } => at_once(replay, stacks, claim),
        Claim::Together {
            first,
            second,
            blocks,
            counted,
            ..
        } => together(replay, first, second, *blocks, counted),
        Claim::Rows { .. } => rows(replay, claim),
        Claim::Foreign {
            origins,
            foreign,
            freed,
        } => {
            let all: Vec<&Block> = blocks_of(replay, origins).collect();
            let over = all
                .iter()
                .filter_map(|b| Some((b, b.over.filter(|o| o.freed)?)));
            let crossed = over.clone().filter(|(b, o)| b.thread != o.thread).count();
            hold!(over.count() as u64 == *freed, "freed");
            hold!(crossed as u64 == *foreign, "foreign are {crossed}");
            Ok(())
        }
        Claim::Left {
            origins,
            blocks,
            bytes,
            made,
        } => {
            let live = || blocks_of(replay, origins).filter(|block| block.over.is_none());
            hold!(live().count() as u64 == *blocks, "blocks");
            hold!(live().map(|b| b.size).sum::<u64>() == *bytes, "bytes");
            hold!(blocks_of(replay, origins).count() as u64 == *made, "made");
            Ok(())
        }
        Claim::Rises {
            origins,
            halfway_bytes,
            end_bytes,
        } => rises(replay, origins, *halfway_bytes, *end_bytes),
        Claim::Note(_) => Ok(()),
    }
}

/// Places of a stack, outermost first.
pub fn path(stacks: &StackTable, stack: StackId) -> Vec<PlaceId> {
    let mut path: Vec<PlaceId> = stacks.frames(stack).map(|f| place_of(f.address)).collect();
    path.reverse();
    path
}

fn blocks_of<'a>(replay: &'a Replay, origins: &'a [usize]) -> impl Iterator<Item = &'a Block> {
    let of = |block: &&Block| origins.contains(&block.origin);
    replay.blocks.iter().filter(of)
}

fn buffers_of(replay: &Replay, origins: &[usize]) -> Vec<usize> {
    let all = 0..replay.buffers.len();
    all.filter(|buffer| origins.contains(&replay.buffers[*buffer].origin))
        .collect()
}

/// Whether a stack shows the call still running in which the function `owner` was called with
/// `outer` below it: the same calls around, at the same lines, and the function itself.
fn runs(replay: &Replay, began: &[PlaceId], outer: usize, inward: usize, now: &[PlaceId]) -> bool {
    if now.len() <= outer || now[..outer] != began[..outer] {
        return false;
    }
    let [then, now] = [began[outer], now[outer]].map(|place| replay.functions(place));
    let (then, now): (Vec<_>, Vec<_>) = (then.collect(), now.collect());
    now.len() > inward && then[..inward] == now[..inward] && then[inward].0 == now[inward].0
}

/// Every buffer of the origin is freed by its own thread, in the call that began it, of the function
/// called by the last frame of `outer`.
fn ends_within(replay: &Replay, origin: usize, outer: &[PlaceId], owner: &str) -> Verdict {
    for buffer in buffers_of(replay, &[origin]) {
        let buffer = &replay.buffers[buffer];
        let (first, began) = (buffer.call, &replay.calls[buffer.call].stack);
        hold!(began.len() > outer.len(), "no frame below the call");
        hold!(began[..outer.len()] == *outer, "made in another call");
        let over = buffer.over.filter(|over| over.freed);
        let Some(over) = over else {
            return Err(format!("what call {first} made is not freed"));
        };
        hold!(over.thread == buffer.thread, "freed on another thread");
        let names = replay.functions(began[outer.len()]);
        let inward = names
            .enumerate()
            .filter(|(_, (f, _))| FUNCTIONS[*f] == owner);
        let mut inward = inward.map(|(inward, _)| inward).peekable();
        hold!(inward.peek().is_some(), "{owner} is not there");
        let last = over.tick / 2;
        let stays = |inward: usize| {
            let mine = (first..=last).filter(|n| replay.calls[*n].thread == buffer.thread);
            let mut others = mine.filter(|number| {
                let now = &replay.calls[*number].stack;
                // The free may be what the function jumps to at its end.
                let jumps = *number == last && now == outer && inward == 0;
                !jumps && !runs(replay, began, outer.len(), inward, now)
            });
            others.next()
        };
        let mut gone = None;
        let held = inward.any(|inward| {
            gone = stays(inward);
            gone.is_none()
        });
        hold!(
            held,
            "{owner} had returned at call {gone:?}, made at {first}, freed at {last}"
        );
    }
    Ok(())
}

/// The most of these buffers that live at the same time.
fn most_at_once(replay: &Replay, buffers: &[usize]) -> u64 {
    let at = |tick| {
        let live = buffers.iter().filter(|b| replay.buffers[**b].lives(tick));
        live.count() as u64
    };
    let begins = buffers.iter().map(|b| at(replay.buffers[*b].begun()));
    begins.max().unwrap_or(0)
}

/// The first call of the thread since which all its calls were made within this one.
fn entered(replay: &Replay, call: usize, outer: usize) -> usize {
    let (mut at, stack) = (call, &replay.calls[call].stack);
    while let Some(before) = replay.before[at] {
        if !runs(replay, stack, outer, 0, &replay.calls[before].stack) {
            break;
        }
        at = before;
    }
    at
}

fn at_once(replay: &Replay, stacks: &StackTable, claim: &Claim) -> Verdict {
    let Claim::AtOnce {
        origins,
        scope,
        most,
        begun,
        largest_bytes,
        equal,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let numbers: Vec<usize> = origins.iter().map(|(origin, _)| *origin).collect();
    let all = buffers_of(replay, &numbers);
    hold!(all.len() as u64 == *begun, "begun are {}", all.len());
    let mut groups: HashMap<(u32, Vec<PlaceId>, usize), Vec<usize>> = HashMap::new();
    for number in &all {
        let Buffer {
            origin,
            thread,
            call,
            ..
        } = replay.buffers[*number];
        let of = origins.iter().find(|(of, _)| *of == origin);
        let key = match (scope, of.and_then(|(_, call)| *call)) {
            (Scope::Process, _) => (0, Vec::new(), 0),
            (Scope::Thread, _) => (thread, Vec::new(), 0),
            (Scope::Call, Some(stack)) => {
                let outer = path(stacks, stack);
                let entered = entered(replay, call, outer.len());
                (thread, outer, entered)
            }
            (Scope::Call, None) => return Err("no call".to_owned()),
        };
        groups.entry(key).or_default().push(*number);
    }
    let seen = groups.values().map(|group| most_at_once(replay, group));
    let seen = seen.max().unwrap_or(0);
    hold!(seen == *most, "{seen} at once");
    let sizes: BTreeSet<u64> = all.iter().map(|b| replay.buffers[*b].largest()).collect();
    hold!(sizes.last() == Some(largest_bytes), "largest of {sizes:?}");
    hold!((sizes.len() == 1) == *equal, "equal");
    Ok(())
}

/// Blocks of the second that were begun soon after one of the first, each with one of its own: the
/// nearest that is free; and the makings in between.
fn partners(replay: &Replay, first: &[usize], second: &[usize]) -> Vec<(usize, usize, usize)> {
    let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
    let mut taken: HashSet<usize> = HashSet::new();
    for (number, buffer) in replay.buffers.iter().enumerate() {
        if !second.contains(&buffer.origin) {
            continue;
        }
        let before = (0..number).rev();
        let before = before.filter(|other| replay.buffers[*other].thread == buffer.thread);
        let near = before.take(NEAR_MAKES).enumerate().find(|(_, other)| {
            first.contains(&replay.buffers[*other].origin) && !taken.contains(other)
        });
        if let Some((between, other)) = near {
            taken.insert(other);
            pairs.push((other, number, between));
        }
    }
    pairs
}

/// How many other buffers the thread that freed both freed in between; `None` if one is not freed,
/// or not by the same.
fn frees_between(replay: &Replay, a: usize, b: usize) -> Option<usize> {
    let over = |number: usize| replay.buffers[number].over.filter(|over| over.freed);
    let (a, b) = (over(a)?, over(b)?);
    let (low, high) = (a.tick.min(b.tick), a.tick.max(b.tick));
    let others = (0..replay.buffers.len()).filter_map(over);
    let between = others.filter(|o| o.thread == a.thread && low < o.tick && o.tick < high);
    (a.thread == b.thread).then(|| between.count())
}

fn together(
    replay: &Replay,
    first: &[usize],
    second: &[usize],
    blocks: u64,
    counted: &Together,
) -> Verdict {
    let all = blocks_of(replay, second).count() as u64;
    hold!(all == blocks, "{all} blocks");
    let pairs = partners(replay, first, second);
    let between = pairs.iter().map(|(_, _, between)| *between).max();
    let ended = pairs
        .iter()
        .filter_map(|(a, b, _)| frees_between(replay, *a, *b));
    let ended: Vec<usize> = ended.filter(|between| *between < NEAR_ENDS).collect();
    let live = |number: &usize| replay.buffers[*number].over.is_none();
    let left = pairs.iter().filter(|(a, b, _)| live(a) && live(b)).count();
    let truth = Together {
        made: pairs.len() as u64,
        between: between.unwrap_or(0) as u64,
        ended: ended.len() as u64,
        frees_between: ended.iter().max().copied().unwrap_or(0) as u64,
        live: left as u64,
    };
    hold!(truth == *counted, "it is {truth:?}");
    Ok(())
}

fn rows(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Rows {
        origins,
        blocks,
        size_bytes,
        followers,
        ended,
        live,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let all: Vec<&Block> = blocks_of(replay, origins).collect();
    hold!(all.len() as u64 == *blocks, "blocks");
    hold!(all.iter().all(|block| block.size == *size_bytes), "size");
    let mut counts = [0; 3];
    for block in all {
        let before = replay.before[block.call].and_then(|call| replay.made[call]);
        let Some(other) = before.map(|other| &replay.blocks[other]) else {
            continue;
        };
        if other.origin != block.origin {
            continue;
        }
        counts[0] += 1;
        let beside = |a: &Block, b: &Block| {
            let (a, b) = (a.over.filter(|o| o.freed), b.over.filter(|o| o.freed));
            let (Some(a), Some(b)) = (a, b) else {
                return false;
            };
            replay.before[b.tick / 2] == Some(a.tick / 2)
        };
        counts[1] += u64::from(beside(block, other) || beside(other, block));
        counts[2] += u64::from(block.over.is_none() && other.over.is_none());
    }
    hold!(counts == [*followers, *ended, *live], "they are {counts:?}");
    Ok(())
}

/// The least that lived in each part of the run.
fn least(replay: &Replay, origins: &[usize]) -> [u64; PARTS] {
    let mut changes = vec![0i64; 2 * replay.calls.len() + 2];
    for number in buffers_of(replay, origins) {
        let buffer = &replay.buffers[number];
        let mut held = 0;
        for (tick, size) in &buffer.sizes {
            changes[*tick] += *size as i64 - held;
            held = *size as i64;
        }
        if let Some(over) = buffer.over {
            changes[over.tick] -= held;
        }
    }
    let part_calls = replay.calls.len().div_ceil(PARTS).max(1);
    let (mut live, mut parts) = (0i64, [u64::MAX; PARTS]);
    for call in 0..part_calls * PARTS {
        let least = &mut parts[call / part_calls];
        *least = (*least).min(live as u64);
        for tick in [2 * call, 2 * call + 1] {
            live += changes.get(tick).copied().unwrap_or(0);
            *least = (*least).min(live as u64);
        }
    }
    parts
}

fn rises(replay: &Replay, origins: &[usize], halfway: u64, end: u64) -> Verdict {
    let least = least(replay, origins);
    let pairs = || least.windows(2);
    hold!(pairs().all(|two| two[1] >= two[0]), "falls: {least:?}");
    let risen = pairs().filter(|two| two[1] > two[0]).count();
    hold!(risen >= PARTS - 2, "rises {risen} times");
    hold!(least[PARTS / 2] == halfway, "halfway of {least:?}");
    hold!(least[PARTS - 1] == end, "end of {least:?}");
    Ok(())
}
