//! The observer that collects the facts of each origin from every block of a trace.
//!
//! Memory: 48 bytes a live block, 24 bytes an origin and thread, and the facts.

use std::cell::{OnceCell, RefCell};

use larder_trace::{
    Action, Event, Events, Fingerprint, FreeCall, Lost, StackId, StackTable, Trace,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::contents::{Contents, Life};
use super::facts::{Array, Facts, ImageFacts, Owner, Site};
use super::finding::{Places, container_of};
use super::loops::{self, Loops};
use super::returns::{Depths, Returns, common};
use super::threads::Threads;
use crate::reading::chain::{Chain, Location};
use crate::reading::heap::{Block, OriginId};
use crate::reading::observe::{End, Finished, Live, Made, Moment, Observer};
use crate::reading::resolve::ChainFrame;
use crate::reading::work::{Io, Marks};

/// Blocks from this size on count as arrays.
pub const ARRAY_BYTES: u64 = 64 << 10;
/// Realloc may move larger blocks by their pages.
const MOST_COPIED: u64 = 128 << 10;
/// The largest number of arrays examined in one image.
const MOST_ARRAYS: usize = 4096;
/// The companions of a block are among this many that its thread allocated before it.
pub const NEAR: usize = 4;

/// The note of a live block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note {
    serial: u64,
    /// The block of the same origin that its thread allocated right before; 0: none.
    before: u64,
    /// The thread's event that allocated its buffer.
    event: u64,
    /// The largest size of its buffer so far.
    largest: u64,
    /// The thread that allocated its buffer, and the thread that allocated the block.
    thread: u32,
    maker: u32,
    /// The origin of its buffer, and the number of its steps.
    root: u32,
    step: u32,
}

#[derive(Default)]
struct Thread {
    returns: Returns,
    last_made: Last,
    /// The origins of the last blocks, the latest first; their numbers plus one, or 0: there were fewer.
    made: [u32; NEAR],
    last_ended: Ended,
}

/// The last freed block of a thread, and the event that freed it; 0: there was none.
#[derive(Clone, Copy, Default)]
struct Ended {
    serial: u64,
    before: u64,
    event: u64,
    origin: OriginId,
}

/// The last block that a thread allocated; serial 0: there was none.
#[derive(Clone, Copy, Default)]
struct Last {
    serial: u64,
    event: u64,
    origin: OriginId,
    size: u64,
}

/// Watches the blocks of each image in turn.
#[derive(Default)]
pub struct Watch {
    pub images: Vec<ImageFacts>,
    depths: Depths,
    threads: Threads<Thread>,
    /// The number of the thread whose call this is.
    thread: u32,
    /// They move to the sites, which would be as large again.
    #[allow(clippy::vec_box)]
    facts: Vec<Box<Facts>>,
    stacks: Vec<StackId>,
    /// The thread's event of the last block, by origin and thread, except for the thread in the
    /// origin's facts.
    last: FxHashMap<(u32, u32), u64>,
    /// By serial, blocks that replaced a smaller one without realloc: root and step.
    grown: FxHashMap<u64, (u32, u32)>,
    /// Where the block was that the current call reallocates.
    resized_from: u64,
    arrays: FxHashMap<u64, Array>,
    aliases: Vec<Array>,
    contents: Contents,
    /// The time at which lost blocks were determined, and the addresses allocated later.
    looked_at: Option<u64>,
    made_later: FxHashSet<u64>,
    io: FxHashMap<StackId, Io>,
    marks: Marks,
    serial: u64,
}

impl Watch {
    #[inline]
    fn facts(&mut self, origin: OriginId) -> &mut Facts {
        let index = origin.index();
        if self.facts.len() <= index {
            self.add_facts(index + 1);
        }
        &mut self.facts[index]
    }

    #[cold]
    fn add_facts(&mut self, origins: usize) {
        self.facts.resize_with(origins, Box::default);
        self.stacks.resize(origins, StackId::UNKNOWN);
    }

    /// This array and those at the same offset in their page.
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

    /// Realloc replaced a block: the buffer lives on.
    fn resized(
        &mut self,
        at: Moment<'_>,
        made: &Made<'_, Note>,
        old: &Block<Note>,
        new: Note,
    ) -> Note {
        let was = old.note;
        if made.size > old.size {
            let moved = made.address != self.resized_from;
            self.grow(was.root, old.size, made.size, new.root, was.step == 0);
            self.copied(was.root, old.size, moved);
        }
        if let Some(facts) = self.facts.get_mut(was.root as usize) {
            facts.buffers.foreign += u64::from(was.thread != at.thread);
            *facts.buffers.steps.entry(new.root).or_default() += 1;
        }
        Note {
            event: was.event,
            largest: was.largest.max(made.size),
            thread: was.thread,
            root: was.root,
            step: was.step + u32::from(made.size > old.size),
            ..new
        }
    }

    fn buffer_freed(&mut self, at: Moment<'_>, note: &Note) {
        let Some(facts) = self.facts.get_mut(note.root as usize) else {
            return;
        };
        let buffers = &mut facts.buffers;
        buffers.freed += 1;
        buffers.largest.add(note.largest);
        buffers.foreign += u64::from(note.thread != at.thread);
        let (shared, owner) = match (buffers.freed_at, buffers.owner) {
            // Like the last one: the owner is common to both.
            (Some((stack, shared)), Some(owner)) if stack == at.stack => (shared, owner),
            (_, owner) => {
                let shared = shared_part(at, self.stacks[note.root as usize]);
                let owner = owner.map_or(shared, |owner| common(at.stacks, owner, shared));
                (shared, owner)
            }
        };
        (buffers.freed_at, buffers.owner) = (Some((at.stack, shared)), Some(owner));
        let depth = self.depths.of(at.stacks, owner);
        let stayed = match note.thread == at.thread {
            true => self.threads.state(self.thread).returns.stayed(note.event),
            false => 0,
        };
        buffers.returned += u64::from(note.thread != at.thread || stayed < depth);
        let shared = self.depths.of(at.stacks, shared);
        buffers.shared.add(shared.min(stayed));
    }

    /// A block is freed after its thread allocated another: checks whether that replaced it. `of`: the
    /// first block of its buffer.
    fn outgrown(&mut self, at: Moment<'_>, block: &Block<Note>, of: (u32, u32)) -> bool {
        let thread = self.threads.state(self.thread);
        let neighbours = thread.last_made.event + 1 == thread.returns.now();
        if !neighbours || [0, block.note.serial].contains(&thread.last_made.serial) {
            return false;
        }
        let last = thread.last_made;
        let made_at = self.stacks[last.origin.index()];
        // One function allocates the larger block and frees the smaller one.
        if at.stacks.parent(made_at) != at.stacks.parent(at.stack) {
            return false;
        }
        let larger = last.size.saturating_mul(5) >= block.size.saturating_mul(6)
            && last.size.saturating_mul(2) <= block.size.saturating_mul(9)
            && block.size > 0;
        let growth = &mut self.facts(block.origin).growth;
        growth.followed += 1;
        if larger {
            growth.followed_larger += 1;
            let (root, step) = of;
            let stepper = last.origin.index() as u32;
            self.grow(root, block.size, last.size, stepper, step == 0);
            self.copied(root, block.size, true);
            self.grown.insert(last.serial, (root, step + 1));
            self.facts(last.origin).steps = true;
        }
        larger
    }

    fn copied(&mut self, root: u32, bytes: u64, moved: bool) {
        if moved
            && bytes <= MOST_COPIED
            && let Some(facts) = self.facts.get_mut(root as usize)
            && let Some(steps) = &mut facts.growth.steps
        {
            steps.copied_bytes = steps.copied_bytes.saturating_add(bytes);
        }
    }

    fn grow(&mut self, root: u32, from: u64, to: u64, stepper: u32, first: bool) {
        if let Some(facts) = self.facts.get_mut(root as usize) {
            let steps = facts.growth.steps.get_or_insert_default();
            steps.chains += u64::from(first);
            steps.count += 1;
            steps.crawls += u64::from(to.saturating_sub(from) < from / 10);
            steps.outgrown_bytes = steps.outgrown_bytes.saturating_add(from);
            steps.grown_bytes = steps.grown_bytes.saturating_add(to);
            steps.sizes.add(to);
            *steps.steppers.entry(stepper).or_default() += 1;
        }
    }
}

/// The common part of the stacks of a free and of the allocation.
fn shared_part(at: Moment<'_>, made_at: StackId) -> StackId {
    match common(at.stacks, made_at, at.stack) {
        // The whole stack of the free is part of the allocation's: it was a tail call of the function above.
        whole if whole == made_at => at.stacks.parent(whole),
        shared => shared,
    }
}

/// The stack of an event that is a call.
pub fn stack_of(event: &Event) -> Option<StackId> {
    match event.action {
        Action::Alloc { stack, .. }
        | Action::Free { stack, .. }
        | Action::ReallocEnd { stack, .. }
        | Action::SystemCall { stack, .. } => Some(stack),
        _ => None,
    }
}

impl Observer for Watch {
    type Note = Note;
    const LOOKS_AGAIN: bool = true;

    fn begin_image(&mut self, trace: &Trace) {
        self.looked_at = trace.lost().map(|lost| lost.time);
    }

    #[inline(always)]
    fn event(&mut self, event: &Event, events: &Events<'_>) {
        match event.action {
            Action::Alloc { .. } | Action::Free { .. } | Action::ReallocEnd { .. } => {}
            _ => self.other_event(event, events),
        }
        if let Some(stack) = stack_of(event) {
            self.thread = self.threads.number(event.thread);
            let returns = &mut self.threads.state(self.thread).returns;
            returns.step(events.stacks(), &mut self.depths, stack);
        }
    }

    fn made(&mut self, at: Moment<'_>, made: &Made<'_, Note>) -> Note {
        self.serial += 1;
        self.contents.take(made.address);
        if self.looked_at.is_some_and(|look| look < at.time) {
            self.made_later.insert(made.address);
        }
        let (serial, index) = (self.serial, made.origin.index() as u32);
        self.facts(made.origin);
        let thread = self.threads.state(self.thread);
        let now = thread.returns.now();
        let facts = &mut *self.facts[index as usize];
        if facts.last.0 != at.thread {
            let (before, event) = facts.last;
            self.last.insert((index, before), event);
            facts.last = (
                at.thread,
                self.last.remove(&(index, at.thread)).unwrap_or(0),
            );
        }
        let last = std::mem::replace(&mut facts.last.1, now);
        let stayed = (last > 0).then(|| thread.returns.stayed(last));
        if let Some(stayed) = stayed {
            facts.stays.add(stayed);
        }
        facts.sizes.add(made.size);
        facts.latest = serial;
        for number in thread.made {
            if number != index + 1 && number > 0 {
                facts.companions.add(number - 1);
            }
        }
        thread.made.copy_within(..NEAR - 1, 1);
        thread.made[0] = index + 1;
        let last = &thread.last_made;
        let next_to = last.origin == made.origin && last.event + 1 == now && last.serial > 0;
        let in_row = next_to && last.size == made.size;
        if next_to {
            facts.row.get_or_insert_default().add(in_row);
        }
        let before = if in_row { last.serial } else { 0 };
        thread.last_made = Last {
            serial,
            event: now,
            origin: made.origin,
            size: made.size,
        };
        self.stacks[index as usize] = at.stack;
        let note = Note {
            serial,
            before,
            event: now,
            largest: made.size,
            thread: at.thread,
            maker: at.thread,
            root: index,
            step: 0,
        };
        if made.size >= ARRAY_BYTES {
            self.alias(Array {
                origin: made.origin,
                address: made.address,
                size: made.size,
            });
        }
        match made.old {
            Some(old) => self.resized(at, made, old, note),
            None => {
                self.facts[index as usize].buffers.begun += 1;
                note
            }
        }
    }

    fn ended(&mut self, at: Moment<'_>, address: u64, block: &Block<Note>, how: End) {
        let note = block.note;
        if block.size >= ARRAY_BYTES {
            self.arrays.remove(&address);
        }
        if let Some(held) = self.contents.take(address) {
            self.look(held, block, how, self.serial);
        }
        let grown = match self.facts(block.origin).steps {
            true => self.grown.remove(&note.serial),
            false => None,
        };
        match how {
            End::Reallocated(size) if size > 0 => {
                self.facts(block.origin).reallocated += 1;
                self.resized_from = address;
                return;
            }
            End::Replaced => {
                self.lost(block, grown);
                return;
            }
            _ => {}
        }
        let lived = self.serial - note.serial;
        let facts = self.facts(block.origin);
        facts.freed += 1;
        facts.lives.add(lived);
        facts.foreign += u64::from(note.maker != at.thread);
        self.buffer_freed(at, &note);
        let (root, step) = grown.unwrap_or((note.root, note.step));
        let outgrown = self.outgrown(at, block, (root, step));
        if !outgrown && let Some(root) = self.facts.get_mut(root as usize) {
            root.growth.finals.add(block.size);
        }
        self.part_together(block);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Note>) {
        self.settle(live, image.trace.lost());
        let images = self.finish(image);
        let done = std::mem::take(self);
        self.images = done.images;
        self.images.push(images);
    }
}

impl Watch {
    #[inline(never)]
    fn other_event(&mut self, event: &Event, events: &Events<'_>) {
        match event.action {
            Action::SystemCall {
                call,
                result,
                stack,
                ..
            } => self.io.entry(stack).or_default().add(call, result),
            Action::Contents {
                address,
                fingerprint,
            } => self.contents.record(address, fingerprint),
            Action::Mark { name } => self.marks.pass(events.mark_name(name)),
            _ => {}
        }
    }

    /// The free of this block was not recorded: its contents count all the same.
    fn lost(&mut self, block: &Block<Note>, grown: Option<(u32, u32)>) {
        let note = &block.note;
        let root = grown.map_or(note.root, |(root, _)| root);
        if let Some(facts) = self.facts.get_mut(root as usize) {
            facts.growth.finals.add(block.size);
        }
        if let Some(facts) = self.facts.get_mut(note.root as usize) {
            facts.buffers.largest.add(note.largest);
        }
    }

    /// Whether the block was freed right after, or before, the one of its origin that it was allocated
    /// after.
    fn part_together(&mut self, block: &Block<Note>) {
        let thread = self.threads.state(self.thread);
        let Note { serial, before, .. } = block.note;
        let now = Ended {
            serial,
            before,
            event: thread.returns.now(),
            origin: block.origin,
        };
        let last = std::mem::replace(&mut thread.last_ended, now);
        let follows = last.serial > 0 && last.event + 1 == now.event && last.origin == now.origin;
        if follows && (last.before == serial || before == last.serial) {
            self.facts(now.origin).row.get_or_insert_default().ended += 1;
        }
    }

    /// A block is freed, at this number of allocations.
    fn look(&mut self, held: Fingerprint, block: &Block<Note>, how: End, ended: u64) {
        let zeros = self.facts(block.origin).zeros.get_or_insert_default();
        zeros.checked += 1;
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

    /// A block that is never freed counts as its buffer's end, and as live together with its neighbour.
    fn settle(&mut self, live: &Live<'_, Note>, lost: Option<&Lost>) {
        let mut rows: FxHashMap<u64, (u64, u32)> = FxHashMap::default();
        live(&mut |address, block| {
            let note = block.note;
            let grown = self.grown.get(&note.serial);
            let root = grown.map_or(note.root, |(root, _)| *root);
            if let Some(facts) = self.facts.get_mut(root as usize) {
                facts.growth.finals.add(block.size);
            }
            if let Some(facts) = self.facts.get_mut(note.root as usize) {
                facts.buffers.largest.add(note.largest);
            }
            let is_lost = lost.is_some_and(|lost| lost.has(address));
            if is_lost && !self.made_later.contains(&address) {
                let facts = self.facts(block.origin);
                facts.lost += 1;
                facts.lost_bytes = facts.lost_bytes.saturating_add(block.size);
            }
            if let Some(held) = self.contents.take(address) {
                self.look(held, block, End::Freed(FreeCall::Free), u64::MAX);
            }
            rows.insert(note.serial, (note.before, block.origin.index() as u32));
        });
        for (before, origin) in rows.values() {
            if *before > 0
                && rows.contains_key(before)
                && let Some(facts) = self.facts.get_mut(*origin as usize)
            {
                facts.row.get_or_insert_default().live += 1;
            }
        }
    }

    /// The system calls of the image, and those below each stack with any.
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

    /// The call within which all blocks of these facts are freed.
    fn owner(
        &mut self,
        image: &mut Finished<'_, '_>,
        made_at: StackId,
        facts: &Facts,
    ) -> Option<Owner> {
        let (shared, (freed_at, _)) = facts.buffers.owner.zip(facts.buffers.freed_at)?;
        let stacks = image.events.stacks();
        let depth = self.depths.of(stacks, shared);
        let mut from_root = |stack| {
            let frames = self.depths.of(stacks, stack);
            frames.checked_sub(depth + 1).map(|frame| frame as usize)
        };
        let (frame, frees_frame) = (from_root(made_at)?, from_root(freed_at));
        let frees = image.chain(freed_at);
        Some(Owner {
            call: shared,
            frame,
            frees_frame,
            frees_in_loop: loops::repeats(&frees, image.resolver),
            frees,
        })
    }

    fn finish(&mut self, image: &mut Finished<'_, '_>) -> ImageFacts {
        let (mut loops, mut places) = (Loops::default(), Places::default());
        let mut sites = Vec::with_capacity(image.sources.len());
        let mut all_facts = std::mem::take(&mut self.facts).into_iter();
        let io: Vec<(StackId, u64)> = self.io.iter().map(|(s, io)| (*s, io.all_calls())).collect();
        for (stack, calls) in io {
            loops.add(image, stack, calls, None);
        }
        let (io, below) = self.io_below(image.events.stacks());
        for (index, source) in image.sources.iter().enumerate() {
            let facts = all_facts.next().unwrap_or_default();
            let owner = self.owner(image, source.stack, &facts);
            let chain = image.chain(source.stack);
            let stacks = image.events.stacks();
            let charged = Charged::of(stacks, &chain, source.stack, source.site);
            let io = below.get(&stacks.parent(charged.node));
            let calls = image.origins[index].calls;
            let root = stacks.root(source.stack);
            let loop_place = loops.add(image, source.stack, calls, Some(&facts));
            let (place, caller) = (places.of(charged.frame), places.of(charged.caller));
            sites.push(Site {
                place,
                caller,
                whole_stack: root == StackId::COMPLETE_ROOT,
                loop_place: loop_place.map(Box::new),
                io: io.cloned().map(Box::new),
                container: charged.container,
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
            called: called(image, &sites),
            copies,
            places: RefCell::new(places),
            lost_calls: 0,
            has_contents,
            records_lost: self.looked_at.is_some(),
            allocations: sites.iter().map(|site| site.sums.calls).sum(),
            sites,
            freed_below: OnceCell::new(),
            iterations: loops.iterations(),
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

/// The callees of the owners' calls: several functions if the call is through a pointer.
fn called(
    image: &mut Finished<'_, '_>,
    sites: &[Site],
) -> FxHashMap<StackId, Vec<(StackId, Location)>> {
    let owners = sites.iter().filter_map(|site| site.owner.as_ref());
    let mut called: FxHashMap<StackId, Vec<(StackId, Location)>> =
        owners.map(|owner| (owner.call, Vec::new())).collect();
    let events = image.events;
    for stack in events.stacks().all() {
        if let Some(below) = called.get_mut(&events.stacks().parent(stack)) {
            let chain = image.chain(stack);
            if below.is_empty() {
                // Most have one.
                below.reserve_exact(1);
            }
            below.extend(chain.get(0).map(|frames| (stack, frames.clone())));
        }
    }
    called
}

/// What lies around the charged function of a stack.
struct Charged<'a> {
    /// The stack up to its physical frame.
    node: StackId,
    frame: Option<&'a ChainFrame>,
    caller: Option<&'a ChainFrame>,
    /// See `Site::container`.
    container: Option<&'static str>,
}

impl<'a> Charged<'a> {
    /// Takes time by the frames up to the caller.
    fn of(stacks: &StackTable, chain: &'a Chain, stack: StackId, site: Option<usize>) -> Self {
        let mut found = Self {
            node: stack,
            frame: None,
            caller: None,
            container: None,
        };
        let Some(mut below) = site else { return found };
        let mut at = stack;
        for frames in chain {
            for frame in frames.iter() {
                if found.frame.is_some() {
                    found.caller = Some(frame);
                    return found;
                }
                match below.checked_sub(1) {
                    Some(left) => {
                        below = left;
                        found.container = container_of(frame).or(found.container);
                    }
                    None => (found.frame, found.node) = (Some(frame), at),
                }
            }
            at = stacks.parent(at);
        }
        found
    }
}
