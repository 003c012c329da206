//! The observer that watches every block of a trace and learns the facts of its origins.
//!
//! Memory: about 56 bytes a live block, 48 bytes a pair of origins that followed each other, and
//! the facts.

use std::collections::hash_map::Entry;

use larder_trace::{Action, Event, Events, Fingerprint, FreeCall, StackId, StackTable, Trace};
use rustc_hash::FxHashMap;

use super::contents::{Contents, Life};
use super::facts::{Array, Facts, ImageFacts, Owner, PARTS, Pair, Site};
use super::loops::Loops;
use super::returns::{Depths, Returns, common};
use crate::analysis::chain::Chain;
use crate::analysis::heap::{Block, OriginId};
use crate::analysis::observe::{End, Finished, Live, Made, Moment, Observer};
use crate::analysis::work::{Io, Marks};

/// Pairs of origins that are looked at; beyond, new ones are not.
const MOST_PAIRS: usize = 1 << 18;
/// Blocks from this size on are looked at as arrays.
pub const ARRAY_BYTES: u64 = 64 << 10;
/// Arrays that are looked at in one image.
const MOST_ARRAYS: usize = 4096;

/// What is kept of a live block.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    serial: u64,
    /// The thread's event that made it.
    event: u64,
    /// The block that its thread made right before.
    before: u64,
    thread: u32,
    before_origin: u32,
    /// The origin of the first block of its chain, and which of the chain it is, from 0.
    root: u32,
    step: u32,
}

impl Default for Note {
    fn default() -> Self {
        Self {
            serial: 0,
            event: 0,
            before: 0,
            thread: 0,
            before_origin: NONE,
            root: NONE,
            step: 0,
        }
    }
}

const NONE: u32 = u32::MAX;

#[derive(Default)]
struct Thread {
    returns: Returns,
    last_made: Option<Last>,
    /// With the event that ended it.
    last_ended: Option<(Note, OriginId, u64)>,
}

/// The block that a thread made last.
#[derive(Clone, Copy)]
struct Last {
    serial: u64,
    event: u64,
    origin: OriginId,
    address: u64,
    size: u64,
    stack: StackId,
}

/// Watches the blocks of each image in turn.
#[derive(Default)]
pub struct Watch {
    pub images: Vec<ImageFacts>,
    depths: Depths,
    threads: FxHashMap<u32, Thread>,
    facts: Vec<Facts>,
    stacks: Vec<StackId>,
    /// By origin and thread: live blocks, and the thread's event that made the last.
    live: FxHashMap<(u32, u32), (u64, u64)>,
    pairs: FxHashMap<(u32, u32), Pair>,
    /// Blocks that a larger one without realloc took over from: root and step.
    grown: FxHashMap<u64, (u32, u32)>,
    arrays: FxHashMap<u64, Array>,
    aliases: Vec<Array>,
    contents: Contents,
    io: FxHashMap<StackId, Io>,
    marks: Marks,
    serial: u64,
    events: u64,
    expected: u64,
}

impl Watch {
    fn part(&self) -> usize {
        let part = self.events.saturating_mul(PARTS as u64) / self.expected.max(1);
        (part as usize).min(PARTS - 1)
    }

    fn facts(&mut self, origin: OriginId) -> &mut Facts {
        let index = origin.index();
        if self.facts.len() <= index {
            self.facts.resize_with(index + 1, Facts::default);
            self.stacks.resize(index + 1, StackId::UNKNOWN);
        }
        &mut self.facts[index]
    }

    fn follow(&mut self, thread: u32, origin: OriginId, note: &mut Note) {
        let thread = self.threads.entry(thread).or_default();
        let now = thread.returns.now();
        let Some(last) = thread.last_made else {
            return;
        };
        let key = (last.origin.index() as u32, origin.index() as u32);
        // A row of equals is one only if nothing else happens in between.
        if key.0 == key.1 && last.event + 1 != now {
            return;
        }
        let full = self.pairs.len() >= MOST_PAIRS;
        match self.pairs.entry(key) {
            Entry::Occupied(pair) => pair.into_mut().made += 1,
            Entry::Vacant(_) if full => return,
            Entry::Vacant(pair) => pair.insert(Pair::default()).made += 1,
        }
        note.before = last.serial;
        note.before_origin = key.0;
    }

    /// Arrays that begin at the same place in their page as this one, and it.
    fn alias(&mut self, array: Array) {
        if self.arrays.len() >= MOST_ARRAYS {
            return;
        }
        self.arrays.insert(array.address, array);
        let place = |array: &Array| array.address % 4096;
        let same: Vec<Array> = self
            .arrays
            .values()
            .filter(|other| place(other) == place(&array))
            .copied()
            .collect();
        if same.len() > self.aliases.len() {
            self.aliases = same;
        }
    }

    /// A block ends after its thread made another: perhaps it has outgrown it.
    fn outgrown(&mut self, at: Moment<'_>, parent: StackId, block: &Block<Note>, frees: StackId) {
        let Some(thread) = self.threads.get(&at.thread) else {
            return;
        };
        let Some(last) = thread.last_made else { return };
        let neighbours = last.event + 1 == thread.returns.now();
        if !neighbours || last.serial == block.note.serial || parent != frees {
            return;
        }
        let larger = last.size.saturating_mul(5) >= block.size.saturating_mul(6)
            && last.size.saturating_mul(2) <= block.size.saturating_mul(9)
            && block.size > 0;
        let growth = &mut self.facts(block.origin).growth;
        growth.followed += 1;
        if larger {
            growth.followed_larger += 1;
            let (root, step) = (block.note.root, block.note.step);
            let stepper = last.origin.index() as u32;
            self.grow(root, block.size, last.size, stepper, step == 0);
            self.grown.insert(last.address, (root, step + 1));
        }
    }

    fn grow(&mut self, root: u32, from: u64, to: u64, stepper: u32, first: bool) {
        if let Some(facts) = self.facts.get_mut(root as usize) {
            let growth = &mut facts.growth;
            growth.chains += u64::from(first);
            growth.steps += 1;
            growth.outgrown_bytes = growth.outgrown_bytes.saturating_add(from);
            growth.grown_bytes = growth.grown_bytes.saturating_add(to);
            growth.step_sizes.add(to);
            *growth.steppers.entry(stepper).or_default() += 1;
        }
    }
}

/// The stack of an event that is a call of the program.
fn stack_of(event: &Event) -> Option<StackId> {
    match event.action {
        Action::Alloc { stack, .. }
        | Action::Free { stack, .. }
        | Action::ReallocEnd { stack, .. }
        | Action::Io { stack, .. } => Some(stack),
        _ => None,
    }
}

impl Observer for Watch {
    type Note = Note;

    fn begin_image(&mut self, trace: &Trace) {
        self.expected = trace.event_count();
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        match event.action {
            Action::Io {
                call,
                result,
                stack,
            } => self.io.entry(stack).or_default().add(call, result),
            Action::Contents {
                address,
                fingerprint,
            } => self.contents.tell(address, fingerprint),
            Action::Mark { name } => self.marks.pass(events.mark_name(name)),
            _ => {}
        }
        if let Some(stack) = stack_of(event) {
            self.events += 1;
            let thread = self.threads.entry(event.thread).or_default();
            thread
                .returns
                .step(events.stacks(), &mut self.depths, stack);
        }
    }

    fn made(&mut self, at: Moment<'_>, made: &Made<'_, Note>) -> Note {
        self.serial += 1;
        self.contents.take(made.address);
        let part = self.part();
        let index = made.origin.index() as u32;
        let returns = &self.threads.entry(at.thread).or_default().returns;
        let (live, last) = self.live.entry((index, at.thread)).or_default();
        let stayed = (*last > 0).then(|| returns.stayed(*last));
        *last = returns.now();
        let alone = *live == 0;
        *live += 1;
        let facts = self.facts(made.origin);
        if let Some(stayed) = stayed {
            *facts.stays.entry(stayed).or_default() += 1;
        }
        facts.alone += u64::from(alone);
        let bytes = facts.live_bytes.saturating_add(made.size);
        facts.change(part, bytes);
        facts.sizes.add(made.size);
        self.stacks[index as usize] = at.stack;
        let mut note = Note {
            serial: self.serial,
            thread: at.thread,
            root: index,
            ..Note::default()
        };
        if let Some(old) = made.old {
            note.root = old.note.root;
            note.step = old.note.step + 1;
            if made.size > old.size {
                self.grow(note.root, old.size, made.size, index, old.note.step == 0);
            }
        }
        self.follow(at.thread, made.origin, &mut note);
        let thread = self.threads.entry(at.thread).or_default();
        note.event = thread.returns.now();
        thread.last_made = Some(Last {
            serial: self.serial,
            event: note.event,
            origin: made.origin,
            address: made.address,
            size: made.size,
            stack: at.stack,
        });
        self.grown.remove(&made.address);
        if made.size >= ARRAY_BYTES {
            self.alias(Array {
                origin: made.origin,
                address: made.address,
                size: made.size,
            });
        }
        note
    }

    fn ended(&mut self, at: Moment<'_>, address: u64, block: &Block<Note>, how: End) {
        let mut block = *block;
        if let Some((root, step)) = self.grown.remove(&address) {
            (block.note.root, block.note.step) = (root, step);
        }
        self.arrays.remove(&address);
        let (part, note) = (self.part(), block.note);
        if let Some((live, _)) = self
            .live
            .get_mut(&(block.origin.index() as u32, note.thread))
        {
            *live = live.saturating_sub(1);
        }
        let made_at = self.stacks[block.origin.index()];
        let stacks = at.stacks;
        let facts = self.facts(block.origin);
        let bytes = facts.live_bytes.saturating_sub(block.size);
        facts.change(part, bytes);
        let held = self.contents.take(address);
        self.look(held, &block, how, self.serial);
        let facts = self.facts(block.origin);
        match how {
            End::Reallocated(size) if size > 0 => {
                facts.reallocated += 1;
                return;
            }
            End::Replaced => return,
            _ => {}
        }
        facts.freed += 1;
        facts.foreign += u64::from(note.thread != at.thread);
        facts.freed_at = Some(at.stack);
        let mut shared = common(stacks, made_at, at.stack);
        // A free whose whole stack led to the block's making was a tail call of the function above.
        if shared == made_at {
            shared = stacks.parent(shared);
        }
        let owner = facts
            .owner
            .map_or(shared, |owner| common(stacks, owner, shared));
        facts.owner = Some(owner);
        let depth = self.depths.of(stacks, owner);
        let thread = self.threads.entry(at.thread).or_default();
        if note.thread != at.thread || thread.returns.stayed(note.event) < depth {
            self.facts(block.origin).returned += 1;
        }
        let last = self.threads.get(&at.thread).and_then(|t| t.last_made);
        if let Some(last) = last {
            let (parent, frees) = (stacks.parent(last.stack), stacks.parent(at.stack));
            self.outgrown(at, parent, &block, frees);
        }
        let outgrown = last.is_some_and(|last| self.grown.contains_key(&last.address));
        if !outgrown && let Some(root) = self.facts.get_mut(note.root as usize) {
            root.growth.finals.add(block.size);
        }
        self.part_together(at.thread, &block);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Note>) {
        self.settle(live);
        let images = self.finish(image);
        let done = std::mem::take(self);
        self.images = done.images;
        self.images.push(images);
    }
}

impl Watch {
    /// Whether the block ended right after, or before, the one that it was made next to.
    fn part_together(&mut self, thread: u32, block: &Block<Note>) {
        let thread = self.threads.entry(thread).or_default();
        let now = thread.returns.now();
        let last = thread.last_ended.replace((block.note, block.origin, now));
        let Some((other, other_origin, event)) = last else {
            return;
        };
        if other_origin == block.origin && event + 1 != now {
            return;
        }
        let (note, origin) = (block.note, block.origin);
        let pair = if note.before == other.serial && note.before_origin != NONE {
            (note.before_origin, origin.index() as u32)
        } else if other.before == note.serial && other.before_origin != NONE {
            (other.before_origin, other_origin.index() as u32)
        } else {
            return;
        };
        if let Some(pair) = self.pairs.get_mut(&pair) {
            pair.ended += 1;
        }
    }

    /// A block ends, at this many makings.
    fn look(&mut self, held: Option<Fingerprint>, block: &Block<Note>, how: End, ended: u64) {
        let Some(held) = held else { return };
        let zeros = &mut self.facts(block.origin).zeros;
        zeros.told += 1;
        zeros.overwritten += u64::from(held.has(Fingerprint::NO_ZEROS));
        zeros.data += u64::from(held.has(Fingerprint::DATA));
        if matches!(how, End::Freed(_) | End::Reallocated(0)) {
            let life = Life {
                origin: block.origin.index() as u32,
                size: block.size,
                made: block.note.serial,
                ended,
            };
            self.contents.end(held, life);
        }
    }

    /// What never ended counts as its buffer's end, and as live together with its neighbour.
    fn settle(&mut self, live: &Live<'_, Note>) {
        let mut serials = FxHashMap::default();
        live(&mut |address, block| {
            let root = self
                .grown
                .get(&address)
                .map_or(block.note.root, |(root, _)| *root);
            if let Some(facts) = self.facts.get_mut(root as usize) {
                facts.growth.finals.add(block.size);
            }
            let held = self.contents.take(address);
            self.look(held, block, End::Freed(FreeCall::Free), u64::MAX);
            serials.insert(
                block.note.serial,
                (
                    block.note.before,
                    block.note.before_origin,
                    block.origin.index() as u32,
                ),
            );
        });
        for (before, before_origin, origin) in serials.values() {
            if *before_origin != NONE
                && serials.contains_key(before)
                && let Some(pair) = self.pairs.get_mut(&(*before_origin, *origin))
            {
                pair.live += 1;
            }
        }
        for facts in &mut self.facts {
            facts.enter_part(PARTS - 1);
        }
    }

    /// The system calls of the image, and those below each stack from which any came.
    fn io_below(&mut self, stacks: &StackTable) -> (Io, FxHashMap<StackId, Io>) {
        let (mut all, mut below) = (Io::default(), FxHashMap::<StackId, Io>::default());
        for (stack, io) in self.io.drain() {
            all.merge(&io);
            let mut at = stack;
            while stacks.parent(at) != at {
                below.entry(at).or_default().merge(&io);
                at = stacks.parent(at);
            }
        }
        (all, below)
    }

    fn finish(&mut self, image: &mut Finished<'_, '_>) -> ImageFacts {
        let (mut sites, mut loops) = (Vec::new(), Loops::default());
        let io: Vec<(StackId, u64)> = self.io.iter().map(|(s, io)| (*s, io.all_calls())).collect();
        for (stack, calls) in io {
            loops.add(image, stack, calls, None);
        }
        let (io, below) = self.io_below(image.events.stacks());
        for (index, source) in image.sources.iter().enumerate() {
            let facts = self.facts.get(index).cloned().unwrap_or_default();
            let owner = facts.owner.zip(facts.freed_at);
            let owner = owner.and_then(|(shared, freed_at)| {
                let depth = self.depths.of(image.events.stacks(), shared);
                let from_root = |depths: &mut Depths, stack| {
                    let frames = depths.of(image.events.stacks(), stack);
                    frames.checked_sub(depth + 1).map(|frame| frame as usize)
                };
                Some(Owner {
                    frame: from_root(&mut self.depths, source.stack)?,
                    frees_frame: from_root(&mut self.depths, freed_at),
                    frees: image.chain(freed_at),
                })
            });
            let chain = image.chain(source.stack);
            let stacks = image.events.stacks();
            let function = site_node(stacks, &chain, source.stack, source.site);
            let io = below.get(&stacks.parent(function)).cloned();
            let calls = image.origins[index].calls;
            sites.push(Site {
                turn: loops.add(image, source.stack, calls, Some(&facts)),
                io: io.unwrap_or_default(),
                chain,
                site: source.site,
                call_name: source.kind_name,
                sums: image.origins[index].clone(),
                facts,
                owner,
            });
        }
        let (copies, has_contents) = std::mem::take(&mut self.contents).finish();
        ImageFacts {
            copies,
            has_contents,
            allocations: sites.iter().map(|site| site.sums.calls).sum(),
            sites,
            turns: loops.turns(),
            pairs: std::mem::take(&mut self.pairs),
            aliases: std::mem::take(&mut self.aliases),
            io,
            marks: std::mem::take(&mut self.marks),
            peak_bytes: image.peak_bytes,
            modules: image
                .trace
                .modules()
                .iter()
                .map(|m| m.path.clone())
                .collect(),
        }
    }
}

/// The stack that ends in the charged function's physical frame.
fn site_node(stacks: &StackTable, chain: &Chain, stack: StackId, site: Option<usize>) -> StackId {
    let (mut at, mut functions) = (stack, 0);
    for frame in chain {
        functions += frame.len();
        if site.is_none_or(|site| site < functions) {
            break;
        }
        at = stacks.parent(at);
    }
    at
}
