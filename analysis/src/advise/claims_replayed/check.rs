//! Checks each kind of claim against the replay, by the simplest way to count.

use std::collections::{BTreeSet, HashMap, HashSet};

use larder_trace::{StackId, StackTable};

use super::grown;
use super::held;
use super::program::{FUNCTIONS, PlaceId};
use super::replay::{Block, Buffer, Replay};
use super::write::place_of;
use crate::advise::claim::{Claim, Scope};
use crate::advise::prove::Together;

const PARTS: usize = 16;
const NEAR_MAKES: u64 = 4;
const NEAR_ENDS: u64 = 4;

/// Why a claim is false.
pub type Verdict = Result<(), String>;

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
        Claim::Foreign { .. } => foreign(replay, claim),
        Claim::Left { .. } => left(replay, claim),
        Claim::Lost { .. } => lost(replay, claim),
        Claim::Rises {
            origins,
            halfway_bytes,
            end_bytes,
        } => rises(replay, origins, *halfway_bytes, *end_bytes),
        Claim::Grew {
            origins,
            buffers,
            steps,
            outgrown_bytes,
        } => grown::grew(replay, origins, *buffers, *steps, *outgrown_bytes),
        Claim::Ends {
            origins,
            at_most,
            largest_bytes,
        } => grown::ends(replay, origins, at_most, *largest_bytes),
        Claim::Equal { .. } => held::equal(replay, claim),
        Claim::Source { .. } => held::source(replay, claim),
        Claim::Overwritten { .. } => held::overwritten(replay, claim),
        Claim::Freed { .. } => freed(replay, claim),
        Claim::Swept { .. } => swept(replay, claim),
        Claim::Note(_) => Ok(()),
    }
}

fn foreign(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Foreign {
        origins,
        foreign,
        freed,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let all: Vec<&Block> = blocks_of(replay, origins).collect();
    let over = all
        .iter()
        .filter_map(|b| Some((b, b.over.filter(|o| o.freed)?)));
    let crossed = over.clone().filter(|(b, o)| b.thread != o.thread).count();
    hold!(over.count() as u64 == *freed, "freed");
    hold!(crossed as u64 == *foreign, "foreign are {crossed}");
    Ok(())
}

fn left(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Left {
        origins,
        blocks,
        bytes,
        made,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let live = || blocks_of(replay, origins).filter(|block| block.over.is_none());
    hold!(live().count() as u64 == *blocks, "blocks");
    hold!(live().map(|b| b.size).sum::<u64>() == *bytes, "bytes");
    hold!(blocks_of(replay, origins).count() as u64 == *made, "made");
    Ok(())
}

fn lost(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Lost {
        origins,
        blocks,
        bytes,
        live,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let all = || blocks_of(replay, origins).filter(|block| block.over.is_none());
    let lost = || all().filter(|block| replay.is_lost(block));
    hold!(lost().count() as u64 == *blocks, "blocks");
    hold!(lost().map(|b| b.size).sum::<u64>() == *bytes, "bytes");
    hold!(all().count() as u64 == *live, "live");
    Ok(())
}

fn freed(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Freed {
        origins,
        freed,
        begun,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let all = buffers_of(replay, origins);
    let over = |buffer: &&usize| replay.buffers[**buffer].over.is_some_and(|o| o.freed);
    hold!(all.len() as u64 == *begun, "begun");
    hold!(all.iter().filter(over).count() as u64 == *freed, "freed");
    Ok(())
}

/// A sweep ends when none is live; until then none is allocated.
fn swept(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Swept {
        origins,
        buffers,
        sweeps,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let all: Vec<&Buffer> = buffers_of(replay, origins)
        .into_iter()
        .map(|buffer| &replay.buffers[buffer])
        .collect();
    hold!(all.len() as u64 == *buffers, "buffers");
    let ends = || all.iter().filter_map(|b| b.over.filter(|over| over.freed));
    hold!(ends().count() == all.len(), "not all are freed");
    hold!(all.iter().all(|b| b.sizes.len() == 1), "one is resized");
    let empty = |tick| !all.iter().any(|buffer| buffer.lives(tick));
    let last = ends().filter(|over| empty(over.tick)).count();
    hold!(last as u64 == *sweeps, "{last} sweeps");
    for buffer in &all {
        let before = ends().map(|over| over.tick);
        let before = before.filter(|tick| *tick < buffer.begun()).max();
        hold!(before.is_none_or(empty), "allocated within a sweep");
    }
    Ok(())
}

/// Places of a stack, outermost first.
pub fn path(stacks: &StackTable, stack: StackId) -> Vec<PlaceId> {
    let mut path: Vec<PlaceId> = stacks.frames(stack).map(|f| place_of(f.address)).collect();
    path.reverse();
    path
}

pub fn blocks_of<'a>(replay: &'a Replay, origins: &'a [usize]) -> impl Iterator<Item = &'a Block> {
    let of = |block: &&Block| origins.contains(&block.origin);
    replay.blocks.iter().filter(of)
}

fn buffers_of(replay: &Replay, origins: &[usize]) -> Vec<usize> {
    let all = 0..replay.buffers.len();
    all.filter(|buffer| origins.contains(&replay.buffers[*buffer].origin))
        .collect()
}

/// Whether a stack shows that the call of `owner` with `outer` below it is still running: the same
/// calls around it, at the same lines, and the function itself.
fn runs(replay: &Replay, began: &[PlaceId], outer: usize, inward: usize, now: &[PlaceId]) -> bool {
    if now.len() <= outer || now[..outer] != began[..outer] {
        return false;
    }
    let [then, now] = [began[outer], now[outer]].map(|place| replay.functions(place));
    let (then, now): (Vec<_>, Vec<_>) = (then.collect(), now.collect());
    now.len() > inward && then[..inward] == now[..inward] && then[inward].0 == now[inward].0
}

/// Every buffer of the origin is freed by its own thread, within the call in which it was allocated, of
/// the function called by the last frame of `outer`.
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
                // The free may be a tail call of the function.
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

/// The largest number of these buffers that live at the same time.
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

/// The number of other buffers freed between these two by the thread that freed both; `None` if one is
/// not freed, or by another thread.
fn frees_between(replay: &Replay, a: usize, b: usize) -> Option<u64> {
    let over = |number: usize| replay.buffers[number].over.filter(|over| over.freed);
    let (a, b) = (over(a)?, over(b)?);
    let (low, high) = (a.tick.min(b.tick), a.tick.max(b.tick));
    let others = (0..replay.buffers.len()).filter_map(over);
    let between = others.filter(|o| o.thread == a.thread && low < o.tick && o.tick < high);
    (a.thread == b.thread).then(|| between.count() as u64)
}

/// By buffer of the second: those of the first that its thread allocated before, with up to this many
/// in between.
fn begun_near(
    replay: &Replay,
    first: &[usize],
    second: &[usize],
    between: u64,
) -> Vec<(usize, Vec<usize>)> {
    let near = buffers_of(replay, second).into_iter().map(|number| {
        let buffer = &replay.buffers[number];
        let before = (0..number).rev();
        let before = before.filter(|other| replay.buffers[*other].thread == buffer.thread);
        let near = before.take(between as usize + 1);
        let of = |other: &usize| first.contains(&replay.buffers[*other].origin);
        (number, near.filter(of).collect())
    });
    near.collect()
}

/// The largest number of pairs, each with one of its own (augmenting paths).
fn most_paired(wanted: &[(usize, Vec<usize>)]) -> u64 {
    fn find(
        at: usize,
        wanted: &[(usize, Vec<usize>)],
        taken: &mut HashMap<usize, usize>,
        seen: &mut HashSet<usize>,
    ) -> bool {
        for first in &wanted[at].1 {
            if !seen.insert(*first) {
                continue;
            }
            let holder = taken.get(first).copied();
            if holder.is_none_or(|holder| find(holder, wanted, taken, seen)) {
                taken.insert(*first, at);
                return true;
            }
        }
        false
    }
    let mut taken = HashMap::new();
    let found = (0..wanted.len()).filter(|at| find(*at, wanted, &mut taken, &mut HashSet::new()));
    found.count() as u64
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
    hold!(
        counted.first_before <= counted.ended,
        "more firsts end than end"
    );
    hold!(counted.between < NEAR_MAKES, "made apart");
    hold!(counted.frees_between < NEAR_ENDS, "ended apart");
    hold!(
        counted.ended + counted.live <= counted.made,
        "more end than are made"
    );
    let near = begun_near(replay, first, second, counted.between);
    let most = most_paired(&near);
    hold!(counted.made <= most, "{most} made near");
    let most_of = |fits: &dyn Fn(usize, usize) -> bool| {
        let of = near.iter().map(|(second, firsts)| {
            let firsts = firsts.iter().copied();
            (
                *second,
                firsts.filter(|first| fits(*first, *second)).collect(),
            )
        });
        most_paired(&of.collect::<Vec<_>>())
    };
    let beside = |a, b| frees_between(replay, a, b).is_some_and(|b| b <= counted.frees_between);
    let most = most_of(&beside);
    hold!(counted.ended <= most, "{most} ended beside it");
    let over = |number: usize| replay.buffers[number].over.map(|over| over.tick);
    for (order, ended) in [
        (true, counted.first_before),
        (false, counted.ended - counted.first_before),
    ] {
        let most = most_of(&|a, b| beside(a, b) && (over(a) < over(b)) == order);
        hold!(ended <= most, "{most} ended so, the first before: {order}");
    }
    let live = |number: usize| replay.buffers[number].over.is_none();
    let most = most_of(&|a, b| live(a) && live(b));
    hold!(counted.live <= most, "{most} live with it");
    Ok(())
}

fn rows(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Rows {
        origins,
        blocks,
        smallest_bytes,
        largest_bytes,
        followers,
        ended,
        live,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let all: Vec<&Block> = blocks_of(replay, origins).collect();
    hold!(all.len() as u64 == *blocks, "blocks");
    let sizes = || all.iter().map(|block| block.size);
    hold!(sizes().min() == Some(*smallest_bytes), "smallest");
    hold!(sizes().max() == Some(*largest_bytes), "largest");
    let mut counts = [0; 3];
    for block in all {
        let before = replay.before[block.call].and_then(|call| replay.made[call]);
        let Some(other) = before.map(|other| &replay.blocks[other]) else {
            continue;
        };
        if other.origin != block.origin || other.size != block.size {
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

/// The lowest live bytes in each part of the run.
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
