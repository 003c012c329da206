//! The facts of an origin (a distinct stack and call) at the end of an image, for the detectors. Up to
//! 2 KiB an origin.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use larder_trace::StackId;
use rustc_hash::FxHashMap;

use super::contents::{Pairs, Zeros};
use super::finding::{Place, Places};
use super::loops;
use super::sizes::Sizes;
use crate::reading::chain::{Chain, Location, StackKey};
use crate::reading::heap::{Origin, OriginId};
use crate::reading::resolve::ChainFrame;
use crate::reading::suppressions::Suppressions;
use crate::reading::work::{Io, Marks};

/// The run is divided into this many parts with equally many events, to detect growth.
pub const PARTS: usize = 16;
/// Buffers that grew: by realloc, or by a larger block and a free of the smaller one.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// `None`: none grew.
    pub steps: Option<Box<Steps>>,
    /// The final size of every buffer allocated here, grown or not.
    pub finals: Sizes,
    /// Frees right after an allocation of the same function, like in growth without realloc; and those
    /// of them after a block that was larger by a factor of 1.2 to 4.5.
    pub followed: u64,
    pub followed_larger: u64,
}

/// The steps in which buffers of an origin grew. Few origins have any.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Buffers allocated here that grew.
    pub chains: u64,
    /// Blocks allocated for them after the first.
    pub count: u64,
    /// Bytes of the blocks that were replaced by larger ones.
    pub outgrown_bytes: u64,
    /// Bytes of the larger ones.
    pub grown_bytes: u64,
    /// Of the replaced ones, the bytes that were copied elsewhere.
    pub copied_bytes: u64,
    /// Steps by less than a tenth.
    pub crawls: u64,
    /// The sizes of the larger ones.
    pub sizes: Sizes,
    /// Steps by the origin of the new block.
    pub steppers: FxHashMap<u32, u64>,
}

/// Buffers: each is an allocation together with everything that realloc makes of it, until it is freed.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    pub begun: u64,
    pub freed: u64,
    /// Reallocated or freed by another thread than the allocating one.
    pub foreign: u64,
    /// Reallocs of them, by origin.
    pub steps: FxHashMap<u32, u64>,
    /// The largest size of each.
    pub largest: Sizes,
    /// The common part of the stacks that allocated and freed them: the function above it, or its
    /// callees, freed all. `None`: none was freed.
    pub owner: Option<StackId>,
    /// The stack that freed the last one, and its common part with the one that allocated.
    pub freed_at: Option<(StackId, StackId)>,
    /// Those freed after their `owner` function had certainly returned.
    pub returned: u64,
    /// Of each buffer that was freed, the number of outermost frames that allocation and free may share.
    pub shared: Stays,
}

impl Buffers {
    /// Whether all were freed within the call of `owner` that allocated them.
    pub fn end_within_a_call(&self) -> bool {
        self.freed == self.begun && self.returned == 0 && self.foreign == 0
    }
}

/// Blocks of one origin that a thread allocated right after another of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    pub made: u64,
    /// Allocated right after one of another size.
    pub unlike: u64,
    /// Of these, freed right before or after the other.
    pub ended: u64,
    /// Of these, live at the end with the other.
    pub live: u64,
}

impl Row {
    pub fn add(&mut self, alike: bool) {
        self.made += u64::from(alike);
        self.unlike += u64::from(!alike);
    }
}

/// Lifetimes of freed blocks, in allocations of the process, by powers of two.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// While all have equally many binary digits: these, and the number of blocks.
    only: (usize, u32),
    /// By digits, once they differ.
    counts: Option<Box<[u32; LIVES]>>,
}

const LIVES: usize = 24;

impl Lives {
    pub fn add(&mut self, allocations: u64) {
        let digits = (u64::BITS - allocations.leading_zeros()) as usize;
        self.add_many(digits.min(LIVES - 1), 1);
    }

    #[inline]
    fn add_many(&mut self, digits: usize, blocks: u32) {
        match &mut self.counts {
            Some(counts) => counts[digits] = counts[digits].saturating_add(blocks),
            None => self.add_to_only(digits, blocks),
        }
    }

    #[inline(never)]
    fn add_to_only(&mut self, digits: usize, blocks: u32) {
        let (known, all) = self.only;
        if all == 0 || known == digits {
            self.only = (digits, all.saturating_add(blocks));
        } else {
            self.spread()[digits] = blocks;
        }
    }

    fn spread(&mut self) -> &mut [u32; LIVES] {
        let only = self.only;
        self.counts.get_or_insert_with(|| {
            let mut counts = Box::new([0; LIVES]);
            counts[only.0] = only.1;
            counts
        })
    }

    pub fn merge(&mut self, other: &Lives) {
        match &other.counts {
            None => self.add_many(other.only.0, other.only.1),
            Some(counts) => {
                for (count, more) in self.spread().iter_mut().zip(&**counts) {
                    *count = count.saturating_add(*more);
                }
            }
        }
    }

    /// The median lifetime; `None`: none was freed.
    pub fn half(&self) -> Option<u64> {
        let longest = |digits: usize| (1u64 << digits) - 1;
        let Some(counts) = &self.counts else {
            return (self.only.1 > 0).then(|| longest(self.only.0));
        };
        let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let mut seen = 0;
        let digits = counts.iter().position(|count| {
            seen += u64::from(*count);
            seen > 0 && seen * 2 >= all
        });
        digits.map(longest)
    }
}

/// The facts of an origin.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub sizes: Sizes,
    /// The number of the last allocation, counted over the process.
    pub latest: u64,
    pub lives: Lives,
    pub freed: u64,
    pub reallocated: u64,
    /// Live at the end and unreachable; and their bytes.
    pub lost: u64,
    pub lost_bytes: u64,
    /// Freed by another thread than the allocating one.
    pub foreign: u64,
    pub buffers: Buffers,
    /// Few origins have any.
    pub row: Option<Box<Row>>,
    pub companions: Companions,
    /// How many frames may have stayed on the stack between one call and the thread's next, and how
    /// often.
    pub stays: Stays,
    /// The thread that allocated the last block, and its event.
    pub last: (u32, u64),
    pub growth: Growth,
    /// Whether a block of it replaced a smaller one without realloc.
    pub steps: bool,
    /// `None`: no contents were recorded.
    pub zeros: Option<Box<Zeros>>,
}

impl Facts {
    pub fn row(&self) -> Row {
        self.row.as_deref().copied().unwrap_or_default()
    }

    pub fn zeros(&self) -> Zeros {
        self.zeros.as_deref().copied().unwrap_or_default()
    }

    /// In percent of all calls but the first: those before which the outermost `frames` may have stayed
    /// since the call before. `None`: one call.
    pub fn stayed(&self, frames: usize) -> Option<u64> {
        let all = self.stays.of(0);
        let stayed = self.stays.of(frames);
        stayed.saturating_mul(100).checked_div(all)
    }
}

/// How often this many frames stayed. Up to as many entries as the stack has frames, and one more for every 2³² calls.
#[derive(Clone, Debug, Default)]
pub struct Stays(Vec<(u32, u32)>);

impl Stays {
    pub fn add(&mut self, frames: u32) {
        let counts = |(known, calls): &&mut (u32, u32)| *known == frames && *calls < u32::MAX;
        match self.0.iter_mut().find(counts) {
            Some((_, calls)) => *calls += 1,
            None => self.0.push((frames, 1)),
        }
    }

    /// How often at least this many stayed.
    pub fn of(&self, frames: usize) -> u64 {
        let least = u32::try_from(frames).unwrap_or(u32::MAX);
        let enough = self.0.iter().filter(|(frames, _)| *frames >= least);
        enough.map(|(_, calls)| u64::from(*calls)).sum()
    }
}

/// The origins whose blocks were allocated shortly before those of this one most often. A few are
/// stored: a new one replaces the rarest and takes over its count, so none with more than a
/// `COMPANIONS`th of all is missed.
///
/// Each with its number plus one; 0: none yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Companions([(u32, u32); COMPANIONS]);

pub const COMPANIONS: usize = 4;

impl Companions {
    #[inline]
    pub fn add(&mut self, origin: u32) {
        let number = origin + 1;
        if let Some(entry) = self.0.iter_mut().find(|entry| entry.0 == number) {
            entry.1 = entry.1.saturating_add(1);
        } else if let Some(rarest) = self.0.iter_mut().min_by_key(|entry| entry.1) {
            *rarest = (number, rarest.1.saturating_add(1));
        }
    }

    /// The companions of at least this many blocks.
    pub fn of(&self, least: u64) -> impl Iterator<Item = usize> {
        let often = self
            .0
            .iter()
            .filter(move |(_, count)| u64::from(*count) >= least.max(1));
        often.map(|(number, _)| *number as usize - 1)
    }
}

/// An array that was live together with others at the same offset in their page.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub origin: OriginId,
    pub address: u64,
    pub size: u64,
}

/// One origin of an image, ready for the detectors.
pub struct Site {
    pub chain: Chain,
    /// The charged frame, as an index over all functions of the chain from the innermost.
    pub site: Option<usize>,
    /// The charged line, and the caller of its function.
    pub place: Place,
    pub caller: Place,
    /// The class of the C++ or Rust library for which the block was allocated: the nearest to the line.
    pub container: Option<&'static str>,
    pub call_name: &'static str,
    /// Whether its stack reaches the thread's first function.
    pub whole_stack: bool,
    pub sums: Origin,
    pub facts: Box<Facts>,
    /// The function within whose call all buffers allocated here were freed: its index in `chain`'s
    /// physical frames, from the innermost; and its place at one of the frees.
    pub owner: Option<Owner>,
    /// System calls of the charged function, in the same call path.
    pub io: Option<Box<Io>>,
    /// The loop of its calls, if known.
    pub loop_place: Option<Box<loops::Place>>,
}

/// See `Site::owner`.
pub struct Owner {
    /// The stack of the owner's call.
    pub call: StackId,
    pub frame: usize,
    pub frees: Chain,
    /// `None`: the owner's call of free was a tail call, which leaves no frame.
    pub frees_frame: Option<usize>,
    /// The function that frees does so in a loop of its own.
    pub frees_in_loop: bool,
}

/// A call that frees the blocks of this many lines is a sweep.
const SWEPT_LINES: usize = 4;
/// The largest counted number of lines.
pub const MOST_LINES: usize = 8;

/// Up to `MOST_LINES` lines whose blocks are freed below a call, by call. A call with `MOST_LINES` needs no look at
/// its callers, so a stack takes a step or two.
#[derive(Debug, Default)]
pub struct FreedBelow {
    /// The index of the call's last line in `lines`, and the number of its lines.
    calls: FxHashMap<StackKey, (u32, u32)>,
    /// Each with the index of the same call's line before it.
    lines: Vec<(Place, u32)>,
}

impl FreedBelow {
    fn of(sites: &[Site]) -> Self {
        let mut below = Self::default();
        for site in sites {
            let calls = site.owner.iter().flat_map(|owner| owner.frees.outward());
            for call in calls {
                if !below.add(call, site.place) {
                    break;
                }
            }
        }
        below.lines = Vec::new();
        below
    }

    /// Whether the call had less than `MOST_LINES`.
    fn add(&mut self, call: StackKey, place: Place) -> bool {
        let next = self.lines.len() as u32;
        let (last, count) = self.calls.entry(call).or_default();
        if *count as usize == MOST_LINES {
            return false;
        }
        let mut at = *last;
        for _ in 0..*count {
            let (known, before) = self.lines[at as usize];
            if known == place {
                return true;
            }
            at = before;
        }
        self.lines.push((place, *last));
        (*last, *count) = (next, *count + 1);
        true
    }

    fn lines_of(&self, call: StackKey) -> usize {
        self.calls
            .get(&call)
            .map_or(0, |(_, count)| *count as usize)
    }
}

/// An image, ready for the detectors.
pub struct ImageFacts {
    pub sites: Vec<Site>,
    /// See `lines_freed_with`; computed on first use.
    pub freed_below: OnceCell<FreedBelow>,
    /// The program's calls that are missing from the trace.
    pub lost_calls: u64,
    pub places: RefCell<Places>,
    /// The frames right below the calls that own buffers, with their functions.
    pub called: FxHashMap<StackId, Vec<(StackId, Location)>>,
    /// By the origins of the copy and of the block that held the bytes first; indices into `sites`.
    pub copies: Pairs,
    /// Whether the trace records contents.
    pub has_contents: bool,
    /// Whether the trace records which of the blocks live at the end are lost.
    pub records_lost: bool,
    /// The largest set of arrays that were live at once at one offset in their page, and that offset.
    pub aliases: Vec<Array>,
    /// The least number of iterations of each loop, see `Site::loop_place`.
    pub iterations: Vec<u64>,
    pub allocations: u64,
    pub peak_bytes: u64,
    pub io: Io,
    /// The program's marks, and how often it passed each.
    pub marks: Marks,
    /// Files of the modules that were loaded, as the recorder saw them.
    pub modules: Vec<Vec<u8>>,
}

impl ImageFacts {
    /// The number of lines whose blocks are freed below the call that frees both these sites' blocks,
    /// up to `MOST_LINES`.
    pub fn lines_freed_with(&self, a: &Site, b: &Site) -> usize {
        let frees = |site: &Site| -> Vec<StackKey> {
            let owner = site.owner.as_ref();
            owner.map_or(Vec::new(), |owner| owner.frees.outward().collect())
        };
        let (a, b) = (frees(a), frees(b));
        let shared = b.iter().find(|call| a.contains(call));
        let freed_below = self.freed_below.get_or_init(|| FreedBelow::of(&self.sites));
        shared.map_or(0, |call| freed_below.lines_of(*call))
    }

    /// Forgets that these known leaks were lost; returns a line for each that was there.
    pub fn suppress(&mut self, known: &Suppressions) -> Vec<String> {
        let mut sums: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for site in self.sites.iter_mut().filter(|site| site.facts.lost > 0) {
            if let Some(by) = known.find(&site.chain) {
                let (blocks, bytes) = sums.entry(by).or_default();
                *blocks += std::mem::take(&mut site.facts.lost);
                *bytes += std::mem::take(&mut site.facts.lost_bytes);
            }
        }
        let sums = sums.into_iter();
        sums.map(|(by, (blocks, bytes))| known.0[by].describe(blocks, bytes))
            .collect()
    }

    /// Whether the call that frees a site's blocks frees those of many lines: a collector, or the end
    /// of the program.
    pub fn is_swept(&self, site: &Site) -> bool {
        self.lines_freed_with(site, site) >= SWEPT_LINES
    }

    pub fn place_of(&self, frame: Option<&ChainFrame>) -> Place {
        self.places.borrow_mut().of(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lifetime_of_equal_and_of_different_lives() {
        let of = |lives: &[u64]| {
            let mut all = Lives::default();
            lives.iter().for_each(|life| all.add(*life));
            all
        };
        assert_eq!(of(&[]).half(), None);
        assert_eq!(of(&[0]).half(), Some(0));
        assert_eq!(of(&[5, 4, 7]).half(), Some(7));
        assert_eq!(of(&[1, 5, 100]).half(), Some(7));
        assert_eq!(of(&[100, 1, 2, 1]).half(), Some(1));
        for (a, b) in [
            (&[][..], &[3][..]),
            (&[3], &[]),
            (&[9, 9], &[1]),
            (&[1, 9], &[9, 70]),
        ] {
            let mut merged = of(a);
            merged.merge(&of(b));
            assert_eq!(merged.half(), of(&[a, b].concat()).half(), "{a:?} {b:?}");
        }
    }

    #[test]
    fn stays_are_counted_beyond_32_bits() {
        let mut stays = Stays(vec![(2, u32::MAX), (3, 1)]);
        stays.add(2);
        stays.add(2);
        assert_eq!(stays.of(2), (1 << 32) + 2);
        assert_eq!((stays.of(3), stays.0.len()), (1, 3));
    }
}
