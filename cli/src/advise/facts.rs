//! What is known of an origin (a distinct stack and call) when an image ends: all that the
//! detectors see. At most 2 KiB an origin.

use std::collections::BTreeMap;

use larder_trace::StackId;
use rustc_hash::FxHashMap;

use super::contents::{Copies, Zeros};
use super::loops::Place;
use super::sizes::Sizes;
use crate::analysis::chain::Chain;
use crate::analysis::heap::{Origin, OriginId};
use crate::analysis::work::{Io, Marks};

/// The run is cut into this many parts of equally many events, to see what grows.
pub const PARTS: usize = 16;
/// Buffers that were made larger: by realloc, or by a larger block and the end of the smaller.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// Chains that began here and grew.
    pub chains: u64,
    /// Blocks made for them after the first.
    pub steps: u64,
    /// Bytes of the blocks that had to be given up for a larger one.
    pub outgrown_bytes: u64,
    /// Bytes of the larger ones.
    pub grown_bytes: u64,
    /// Of every buffer that began here, grown or not, at its end.
    pub finals: Sizes,
    /// Of the steps.
    pub step_sizes: Sizes,
    /// Steps by the origin of the block made.
    pub steppers: FxHashMap<u32, u64>,
    /// Ends right after a block of the same function was made: what growth without realloc looks
    /// like; and those of them where the new block was larger by a factor of 1.2 to 4.5.
    pub followed: u64,
    pub followed_larger: u64,
}

/// What is known of an origin.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub sizes: Sizes,
    pub freed: u64,
    pub reallocated: u64,
    /// Ended on another thread than they were made on.
    pub foreign: u64,
    /// Made when their thread had no other block of this origin.
    pub alone: u64,
    /// The common part of the stacks that made and freed the blocks: all of them were freed by the
    /// function above it, or by what it called. `None`: nothing was freed.
    pub owner: Option<StackId>,
    /// A stack that freed one.
    pub freed_at: Option<StackId>,
    /// Blocks whose `owner` function had certainly returned before they were freed.
    pub returned: u64,
    /// Between one call and the thread's next: how many frames may have stayed on the stack, and
    /// how often.
    pub stays: BTreeMap<u32, u64>,
    pub growth: Growth,
    pub zeros: Zeros,
    /// Least bytes live in each part of the run; `None` before the first block.
    pub least: [Option<u64>; PARTS],
    pub live_bytes: u64,
    part: usize,
}

impl Facts {
    pub fn enter_part(&mut self, part: usize) {
        if self.sizes.total() > 0 {
            for passed in self.part + 1..=part {
                self.least[passed] = Some(self.live_bytes);
            }
        }
        self.part = part;
    }

    /// In percent of all calls but the first, those before which the outermost `frames` may have
    /// stayed since the one before. `None`: one call.
    pub fn stayed(&self, frames: usize) -> Option<u64> {
        let all: u64 = self.stays.values().sum();
        let least = u32::try_from(frames).unwrap_or(u32::MAX);
        let stayed: u64 = self.stays.range(least..).map(|(_, calls)| calls).sum();
        stayed.saturating_mul(100).checked_div(all)
    }

    pub fn change(&mut self, part: usize, live_bytes: u64) {
        self.enter_part(part);
        self.live_bytes = live_bytes;
        let least = &mut self.least[part];
        *least = Some(least.map_or(live_bytes, |least| least.min(live_bytes)));
    }
}

/// Two origins: how often a block of the second was made right after one of the first, and how
/// often such two ended right after each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair {
    pub made: u64,
    pub ended: u64,
    /// Both live at the end.
    pub live: u64,
}

/// An array that was live together with others that begin at the same place in their page.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub origin: OriginId,
    pub address: u64,
    pub size: u64,
}

/// One origin of an image, ready for the detectors.
pub struct Site {
    pub chain: Chain,
    /// The frame charged, counted over all functions of the chain from the innermost.
    pub site: Option<usize>,
    pub call_name: &'static str,
    pub sums: Origin,
    pub facts: Facts,
    /// The function in whose call all blocks were made and freed: its place in `chain`'s physical
    /// frames, from the innermost; and where it was when it freed one.
    pub owner: Option<Owner>,
    /// Of the function that is charged, in the same call path.
    pub io: Io,
    /// The loop that makes its calls, if that can be told.
    pub turn: Option<Place>,
}

/// See `Site::owner`.
pub struct Owner {
    pub frame: usize,
    pub frees: Chain,
    /// `None`: its call of free was a tail call, which leaves no frame.
    pub frees_frame: Option<usize>,
}

/// An image, ready for the detectors.
pub struct ImageFacts {
    pub sites: Vec<Site>,
    /// By index into `sites`.
    pub pairs: FxHashMap<(u32, u32), Pair>,
    /// By the origins of the copy and of the block that held the bytes first; indices into `sites`.
    pub copies: FxHashMap<(u32, u32), Copies>,
    /// Whether the trace tells what blocks held.
    pub has_contents: bool,
    /// The most arrays that were live at once at one place of their page, and that place.
    pub aliases: Vec<Array>,
    /// The least turns of each loop, see `Site::turn`.
    pub turns: Vec<u64>,
    pub allocations: u64,
    pub peak_bytes: u64,
    pub io: Io,
    /// The program's marks, and how often it passed each.
    pub marks: Marks,
    /// Files of the modules that were loaded, as the recorder saw them.
    pub modules: Vec<Vec<u8>>,
}
