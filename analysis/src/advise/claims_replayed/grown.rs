//! Finds buffers that grew: by realloc, or by a larger block after whose allocation the same function
//! freed the smaller one. Such a larger block continues the buffer, until a realloc begins another.

use std::collections::BTreeSet;

use super::check::Verdict;
use super::replay::Replay;

#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// The buffer that grew, and the bytes of the block that it replaced.
    buffer: usize,
    bytes: u64,
}

struct Grown {
    steps: Vec<Step>,
    /// The origin and the final size of each buffer that continues no other.
    ends: Vec<(usize, u64)>,
}

/// The block that its thread allocated right before a call that frees an outgrown block.
fn outgrown_by(replay: &Replay, call: usize, ended: usize) -> Option<usize> {
    let before = replay.before[call]?;
    let next = replay.made[before].filter(|next| *next != ended)?;
    let around = |call: usize| {
        replay.calls[call]
            .stack
            .split_last()
            .map(|(_, around)| around)
    };
    let (small, large) = (replay.blocks[ended].size, replay.blocks[next].size);
    let larger = small > 0 && 5 * large >= 6 * small && 2 * large <= 9 * small;
    (around(before) == around(call) && larger).then_some(next)
}

fn grown(replay: &Replay) -> Grown {
    // By block: the buffer that it continues.
    let mut carries: Vec<usize> = replay.blocks.iter().map(|block| block.buffer).collect();
    let mut steps = Vec::new();
    let mut ends = Vec::new();
    let end = |carries: &[usize], block: usize| {
        let origin = replay.buffers[carries[block]].origin;
        (origin, replay.blocks[block].size)
    };
    for call in 0..replay.calls.len() {
        let Some(block) = replay.ended[call] else {
            continue;
        };
        let old = &replay.blocks[block];
        let freed = old.over.is_some_and(|over| over.freed);
        match (freed, replay.made[call]) {
            (false, Some(new)) if replay.blocks[new].size > old.size => steps.push(Step {
                buffer: old.buffer,
                bytes: old.size,
            }),
            (false, _) => {}
            (true, _) => match outgrown_by(replay, call, block) {
                Some(next) => {
                    carries[next] = carries[block];
                    steps.push(Step {
                        buffer: carries[block],
                        bytes: old.size,
                    });
                }
                None => ends.push(end(&carries, block)),
            },
        }
    }
    let unseen = |block: &usize| {
        let over = replay.blocks[*block].over;
        over.is_none_or(|over| !over.freed && over.thread == 0)
    };
    let left = (0..replay.blocks.len()).filter(unseen);
    ends.extend(left.map(|block| end(&carries, block)));
    Grown { steps, ends }
}

pub fn grew(replay: &Replay, origins: &[usize], buffers: u64, steps: u64, bytes: u64) -> Verdict {
    let grown = grown(replay);
    let of = |step: &&Step| origins.contains(&replay.buffers[step.buffer].origin);
    let all: Vec<&Step> = grown.steps.iter().filter(of).collect();
    let distinct: BTreeSet<usize> = all.iter().map(|step| step.buffer).collect();
    let given_up: u64 = all.iter().map(|step| step.bytes).sum();
    let truth = (distinct.len() as u64, all.len() as u64, given_up);
    hold!(truth == (buffers, steps, bytes), "they are {truth:?}");
    Ok(())
}

pub fn ends(replay: &Replay, origins: &[usize], at_most: &[(u64, u64)], largest: u64) -> Verdict {
    let grown = grown(replay);
    let all = grown.ends.iter().filter(|(o, _)| origins.contains(o));
    let sizes: Vec<u64> = all.map(|(_, size)| *size).collect();
    hold!(sizes.iter().max() == Some(&largest), "largest of {sizes:?}");
    for (percent, size) in at_most {
        let within = sizes.iter().filter(|held| *held <= size).count() as u64;
        let all = sizes.len() as u64;
        hold!(
            100 * within >= percent * all,
            "{within} of {all} have {size}"
        );
    }
    Ok(())
}
