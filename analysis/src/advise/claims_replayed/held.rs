//! Contents of blocks at their end: each compared with each.

use larder_trace::Fingerprint;

use super::check::{Verdict, blocks_of};
use super::replay::{Block, Replay};
use crate::advise::claim::Claim;

const SMALLEST: u64 = 16;

/// The contents of a block that may be a copy: it was freed, or is live at the end.
fn held(block: &Block) -> Option<(u64, u64)> {
    let held = block.held.filter(|held| !held.has(Fingerprint::UNIFORM))?;
    (block.size >= SMALLEST).then_some((block.size, held.hash))
}

/// The other blocks with the same contents at their end.
fn alike<'a>(replay: &'a Replay, block: &'a Block) -> impl Iterator<Item = &'a Block> {
    let same = move |other: &&Block| {
        other.call != block.call && held(block).is_some() && held(other) == held(block)
    };
    replay.blocks.iter().filter(same)
}

pub fn equal(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Equal {
        origins,
        made,
        blocks,
        most,
        most_bytes,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let mine = || blocks_of(replay, origins);
    hold!(mine().count() as u64 == *made, "made");
    let meets = |a: &Block, b: &Block| a.made() <= b.ended() && b.made() <= a.ended();
    let met = mine().filter(|block| alike(replay, block).any(|other| meets(block, other)));
    let met = met.count() as u64;
    hold!(met >= *blocks, "only {met} have an equal");
    let at_once = |block: &Block| {
        let there = |other: &&Block| other.made() <= block.made() && other.ended() > block.made();
        1 + alike(replay, block).filter(there).count() as u64
    };
    let sized = replay
        .blocks
        .iter()
        .filter(|block| block.size == *most_bytes);
    let at_once = sized.map(at_once).max().unwrap_or(0);
    hold!(at_once >= *most, "only {at_once} at once");
    Ok(())
}

pub fn source(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Source {
        origins,
        firsts,
        blocks,
        outlived,
        ..
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let before = |block: &Block, other: &Block| {
        firsts.contains(&other.origin) && other.made() < block.made()
    };
    let (mut later, mut shorter) = (0, 0);
    for block in blocks_of(replay, origins) {
        let mut sources = alike(replay, block)
            .filter(|other| before(block, other))
            .peekable();
        later += u64::from(sources.peek().is_some());
        shorter += u64::from(sources.any(|other| other.ended() >= block.ended()));
    }
    hold!(later >= *blocks, "only {later} came later");
    hold!(shorter >= *outlived, "only {shorter} ended no later");
    hold!(outlived <= blocks, "more ended than came");
    Ok(())
}

pub fn overwritten(replay: &Replay, claim: &Claim) -> Verdict {
    let Claim::Overwritten {
        origins,
        seen,
        made,
        mean_bytes,
        words,
    } = claim
    else {
        return Err("another claim".to_owned());
    };
    let mine = || blocks_of(replay, origins);
    hold!(mine().count() as u64 == *made, "made");
    let bytes: u64 = mine().map(|block| block.size).sum();
    hold!(bytes / made == *mean_bytes, "mean");
    let reported = || mine().filter_map(|block| block.held);
    hold!(reported().count() as u64 == *seen, "seen");
    let all = |flag| reported().all(|held| held.has(flag));
    hold!(all(Fingerprint::NO_ZEROS), "zeros are left");
    hold!(all(Fingerprint::DATA) == *words, "words");
    Ok(())
}
