//! What is known of an origin (a distinct stack and call) when an image ends: all that the
//! detectors see. At most 2 KiB an origin.

use std::cell::{OnceCell, RefCell};

use larder_trace::StackId;
use rustc_hash::FxHashMap;

use super::contents::{Pairs, Zeros};
use super::finding::{Place, Places};
use super::loops;
use super::sizes::Sizes;
use crate::reading::chain::{Chain, Location, StackKey};
use crate::reading::heap::{Origin, OriginId};
use crate::reading::resolve::ChainFrame;
use crate::reading::work::{Io, Marks};

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
    /// Steps by less than a tenth.
    pub crawls: u64,
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

/// Buffers: each is what one allocation began, whatever realloc made of it, until it is freed.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    pub begun: u64,
    pub freed: u64,
    /// Reallocated or freed by another thread than began them.
    pub foreign: u64,
    /// Reallocs that made others of them, by origin.
    pub steps: FxHashMap<u32, u64>,
    /// The most that each held.
    pub largest: Sizes,
    /// The common part of the stacks that began and freed them: all were freed by the function
    /// above it, or by what it called. `None`: nothing was freed.
    pub owner: Option<StackId>,
    /// A stack that freed one.
    pub freed_at: Option<StackId>,
    /// Those whose `owner` function had certainly returned before they were freed.
    pub returned: u64,
}

impl Buffers {
    /// Whether all were freed in the call of `owner` that began them.
    pub fn end_within_a_call(&self) -> bool {
        self.freed == self.begun && self.returned == 0 && self.foreign == 0
    }
}

/// Blocks of one origin that its thread made right after another of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    pub made: u64,
    /// Made right after another that was of another size.
    pub unlike: u64,
    /// Of these, ended right before or after the other.
    pub ended: u64,
    /// Of these, live at the end with the other.
    pub live: u64,
}

/// How many allocations of the process came while blocks lived, by powers of two; for those freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lives([u32; LIVES]);

const LIVES: usize = 24;

impl Lives {
    pub fn add(&mut self, allocations: u64) {
        let digits = (u64::BITS - allocations.leading_zeros()) as usize;
        let count = &mut self.0[digits.min(LIVES - 1)];
        *count = count.saturating_add(1);
    }

    pub fn merge(&mut self, other: &Lives) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// What half of them did not outlive; `None`: none was freed.
    pub fn half(&self) -> Option<u64> {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let mut seen = 0;
        let digits = self.0.iter().position(|count| {
            seen += u64::from(*count);
            seen > 0 && seen * 2 >= all
        });
        digits.map(|digits| (1u64 << digits) - 1)
    }
}

/// What is known of an origin.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub sizes: Sizes,
    /// How many allocations of the process came up to the last.
    pub latest: u64,
    pub lives: Lives,
    pub freed: u64,
    pub reallocated: u64,
    /// Live at the end, and nothing led to them any more; and their bytes.
    pub lost: u64,
    pub lost_bytes: u64,
    /// Ended on another thread than they were made on.
    pub foreign: u64,
    pub buffers: Buffers,
    pub row: Row,
    pub companions: Companions,
    /// Between one call and the thread's next: how many frames may have stayed on the stack, and
    /// how often.
    pub stays: Stays,
    /// The thread that made the last block, and its event that did.
    pub last: (u32, u64),
    pub growth: Growth,
    pub zeros: Zeros,
}

impl Facts {
    /// In percent of all calls but the first, those before which the outermost `frames` may have
    /// stayed since the one before. `None`: one call.
    pub fn stayed(&self, frames: usize) -> Option<u64> {
        let all: u64 = self.stays.0.iter().map(|(_, calls)| calls).sum();
        let least = u32::try_from(frames).unwrap_or(u32::MAX);
        let enough = self.stays.0.iter().filter(|(frames, _)| *frames >= least);
        let stayed: u64 = enough.map(|(_, calls)| calls).sum();
        stayed.saturating_mul(100).checked_div(all)
    }
}

/// How often so many frames stayed. There are as many entries as the stack has frames, at most.
#[derive(Clone, Debug, Default)]
pub struct Stays(Vec<(u32, u64)>);

impl Stays {
    pub fn add(&mut self, frames: u32) {
        match self.0.iter_mut().find(|(known, _)| *known == frames) {
            Some((_, calls)) => *calls += 1,
            None => self.0.push((frames, 1)),
        }
    }
}

/// The origins whose blocks were most often made shortly before those of this one. A few are kept:
/// one that is new takes the place of the rarest, with its count, so none that makes up more than a
/// `COMPANIONS`th of all is missed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Companions([(u32, u32); COMPANIONS]);

pub const COMPANIONS: usize = 4;

impl Companions {
    pub fn add(&mut self, origin: u32) {
        let of_it = |entry: &&mut (u32, u32)| entry.1 > 0 && entry.0 == origin;
        if let Some(entry) = self.0.iter_mut().find(of_it) {
            entry.1 = entry.1.saturating_add(1);
        } else if let Some(rarest) = self.0.iter_mut().min_by_key(|entry| entry.1) {
            *rarest = (origin, rarest.1.saturating_add(1));
        }
    }

    /// Those seen before at least so many.
    pub fn of(&self, least: u64) -> impl Iterator<Item = usize> {
        let often = self
            .0
            .iter()
            .filter(move |(_, count)| u64::from(*count) >= least.max(1));
        often.map(|(origin, _)| *origin as usize)
    }
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
    /// The line that is charged, and who called its function.
    pub place: Place,
    pub caller: Place,
    pub call_name: &'static str,
    /// Whether its stack reaches the thread's first function.
    pub whole_stack: bool,
    pub sums: Origin,
    pub facts: Facts,
    /// The function in whose call all buffers that began here were freed: its place in `chain`'s
    /// physical frames, from the innermost; and where it was when it freed one.
    pub owner: Option<Owner>,
    /// Of the function that is charged, in the same call path.
    pub io: Io,
    /// The loop that makes its calls, if that can be told.
    pub turn: Option<loops::Place>,
}

/// See `Site::owner`.
pub struct Owner {
    /// The stack of its call.
    pub call: StackId,
    pub frame: usize,
    pub frees: Chain,
    /// `None`: its call of free was a tail call, which leaves no frame.
    pub frees_frame: Option<usize>,
}

/// Lines whose blocks one call frees: so many are a sweep.
const SWEPT_LINES: usize = 4;
/// Beyond this they are not counted.
pub const MOST_LINES: usize = 8;

/// By call, the first `MOST_LINES` lines whose blocks are freed below it. What has as many needs no
/// look at what called it, so a stack takes a step or two.
fn freed_below(sites: &[Site]) -> FxHashMap<StackKey, Vec<Place>> {
    let mut below: FxHashMap<StackKey, Vec<Place>> = FxHashMap::default();
    for site in sites {
        for call in site.owner.iter().flat_map(|owner| owner.frees.outward()) {
            let places = below.entry(call).or_default();
            if places.len() >= MOST_LINES {
                break;
            }
            if !places.contains(&site.place) {
                places.push(site.place);
            }
        }
    }
    below
}

/// An image, ready for the detectors.
pub struct ImageFacts {
    pub sites: Vec<Site>,
    /// See `lines_freed_with`; found when it is asked for.
    pub freed_below: OnceCell<FxHashMap<StackKey, Vec<Place>>>,
    /// Calls that the program made and that are not in the trace.
    pub lost_calls: u64,
    pub places: RefCell<Places>,
    /// The frames right below the calls that own buffers, with their functions.
    pub called: FxHashMap<StackId, Vec<(StackId, Location)>>,
    /// By the origins of the copy and of the block that held the bytes first; indices into `sites`.
    pub copies: Pairs,
    /// Whether the trace tells what blocks held.
    pub has_contents: bool,
    /// Whether it tells which of those that are live at the end were lost.
    pub tells_lost: bool,
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

impl ImageFacts {
    /// Of how many lines blocks are freed below the call that frees both these sites' blocks, up to
    /// `MOST_LINES`.
    pub fn lines_freed_with(&self, a: &Site, b: &Site) -> usize {
        let frees = |site: &Site| -> Vec<StackKey> {
            let owner = site.owner.as_ref();
            owner.map_or(Vec::new(), |owner| owner.frees.outward().collect())
        };
        let (a, b) = (frees(a), frees(b));
        let shared = b.iter().find(|call| a.contains(call));
        let freed_below = self.freed_below.get_or_init(|| freed_below(&self.sites));
        shared.map_or(0, |call| freed_below.get(call).map_or(0, Vec::len))
    }

    /// Whether the call that frees a site's blocks frees those of many lines: a collector, or the end
    /// of all there is.
    pub fn is_swept(&self, site: &Site) -> bool {
        self.lines_freed_with(site, site) >= SWEPT_LINES
    }

    pub fn place_of(&self, frame: Option<&ChainFrame>) -> Place {
        self.places.borrow_mut().of(frame)
    }
}
