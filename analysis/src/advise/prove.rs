//! The second pass over a trace: counts the answers to the detectors' questions about sets of blocks.
//!
//! The first pass has facts of each origin alone, which do not show whether blocks of several origins,
//! threads and callers lived at once. So the calls are passed over again with these sets, and every answer is
//! exact.
//!
//! A *buffer* is an allocation together with everything that realloc makes of it, until it is freed; it
//! belongs to the sets of its first origin. Time: a few steps for each set that a block is in, up to
//! `MOST_SETS` an origin, and for a watched one up to the watched calls on its stack. Memory: 32 bytes a live
//! block, 4 a stack, and a few words for each thread of a set and of a call in which its buffers end.

use larder_trace::{Event, Events, StackId, StackTable, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

use super::facts::PARTS;
use super::threads::Threads;
use super::watch::{NEAR, stack_of};
use crate::reading::heap::Block;
use crate::reading::image::is_call;
use crate::reading::observe::{End, Finished, Live, Made, Moment, Observer};

/// The largest number of frees between two blocks that are freed together.
const NEAR_ENDS: usize = 4;
/// Sets of one origin: its whole line, the line with its caller, and within a call.
const MOST_SETS: usize = 4;

/// The number of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asked(usize);

/// The number of a watched call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched(u32);

/// The blocks of a question.
#[derive(Clone, Debug)]
enum Question {
    /// Buffers of these origins; optionally with the call in which each of them ends.
    Set(Vec<(usize, Option<StackId>)>),
    /// Blocks of the second origins allocated near one of the first.
    Pair(Vec<usize>, Vec<usize>),
}

/// The questions about one image.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    all: Vec<Question>,
    /// The questions about all buffers of some origins: several detectors ask the same.
    at_once: FxHashMap<Vec<usize>, Asked>,
    watched: Vec<Through>,
    /// By origin: its index in `watched`.
    watched_of: FxHashMap<u32, u32>,
}

/// A call that leads to several functions, through a pointer or a jump: its stack alone does not show
/// whether one of them has returned.
#[derive(Clone, Debug)]
pub struct Through {
    pub call: StackId,
    /// The frames directly below the call, and the number of each one's function.
    pub functions: Vec<(StackId, u32)>,
    /// Whether a free directly from the call may be a tail call of the function.
    pub jumps: bool,
}

impl Questions {
    /// Asks how many buffers of these origins live at once.
    pub fn at_once(&mut self, origins: &[usize]) -> Asked {
        if let Some(asked) = self.at_once.get(origins) {
            return *asked;
        }
        let all = origins.iter().map(|origin| (*origin, None));
        let asked = self.ask(Question::Set(all.collect()));
        self.at_once.insert(origins.to_vec(), asked);
        asked
    }

    /// The same, also within one call of the function given for each.
    pub fn at_once_in_calls(&mut self, origins: &[(usize, StackId)]) -> Asked {
        let all = origins.iter().map(|(origin, call)| (*origin, Some(*call)));
        self.ask(Question::Set(all.collect()))
    }

    /// A call to ask about by `watch`.
    pub fn add_call(&mut self, through: Through) -> Watched {
        self.watched.push(through);
        Watched(self.watched.len() as u32 - 1)
    }

    /// Asks whether the buffers of an origin, asked about with a call, are freed before the function
    /// returns to which this call led.
    pub fn watch(&mut self, origin: usize, call: Watched) {
        self.watched_of.insert(origin as u32, call.0);
    }

    /// Asks how often blocks of `second` are allocated and freed with one of `first`.
    pub fn together(&mut self, first: &[usize], second: &[usize]) -> Asked {
        self.ask(Question::Pair(first.to_vec(), second.to_vec()))
    }

    fn ask(&mut self, question: Question) -> Asked {
        self.all.push(question);
        Asked(self.all.len() - 1)
    }
}

/// The answer about a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtOnce {
    /// The number of buffers.
    pub begun: u64,
    /// The largest number that lived at once; of those of one thread; of those of one call.
    pub most: u64,
    pub most_of_a_thread: u64,
    pub most_in_a_call: u64,
    /// Watched buffers that were not freed before the function returned to which their call led.
    pub returned: u64,
    /// How often the last live one was freed; and the buffers allocated after one was freed and before
    /// that.
    pub sweeps: u64,
    pub amid: u64,
    /// The lowest live bytes in each part of the run, from the first buffer on.
    pub least: [u64; PARTS],
}

/// The answer about a pair. A block that could belong to several pairs counts in one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Together {
    /// Blocks of the second allocated up to `NEAR` allocations after a live one of the first, each with
    /// one of its own; and the largest number of allocations in between.
    pub made: u64,
    pub between: u64,
    /// Of these: freed up to `NEAR_ENDS` frees from it, by the same thread; and the largest number of
    /// frees in between.
    pub ended: u64,
    pub frees_between: u64,
    /// Of those that were freed: the first was freed before the second.
    pub first_before: u64,
    /// Of these: both live at the end.
    pub live: u64,
}

#[derive(Default)]
pub struct Answers {
    sets: FxHashMap<usize, AtOnce>,
    pairs: FxHashMap<usize, Together>,
}

impl Answers {
    pub fn at_once(&self, asked: Asked) -> AtOnce {
        self.sets.get(&asked.0).cloned().unwrap_or_default()
    }

    pub fn together(&self, asked: Asked) -> Together {
        self.pairs.get(&asked.0).copied().unwrap_or_default()
    }
}

#[derive(Default)]
struct Level {
    live: u64,
    most: u64,
}

impl Level {
    fn up(&mut self) {
        self.live += 1;
        self.most = self.most.max(self.live);
    }

    fn down(&mut self) {
        self.live = self.live.saturating_sub(1);
    }
}

/// The level of each thread. That of the first needs no look-up: most sets have one.
#[derive(Default)]
struct Levels {
    first: Option<u32>,
    of_first: Level,
    others: FxHashMap<u32, Level>,
}

impl Levels {
    #[inline(always)]
    fn of(&mut self, thread: u32) -> &mut Level {
        match *self.first.get_or_insert(thread) == thread {
            true => &mut self.of_first,
            false => self.of_other(thread),
        }
    }

    #[cold]
    fn of_other(&mut self, thread: u32) -> &mut Level {
        self.others.entry(thread).or_default()
    }

    fn most(&self) -> u64 {
        let others = self.others.values().map(|level| level.most);
        others.fold(self.of_first.most, u64::max)
    }
}

#[derive(Default)]
struct Set {
    answer: AtOnce,
    all: Level,
    /// A buffer was freed since none was live.
    falling: bool,
    /// By the threads' own numbers.
    threads: Levels,
    /// The same for each call in which buffers end.
    calls: Vec<Levels>,
    live_bytes: u64,
    part: Option<usize>,
}

/// Invariant: `answer.least[part] <= live_bytes`.
impl Set {
    fn enter(&mut self, part: usize) {
        if self.part == Some(part) {
            return;
        }
        let least = &mut self.answer.least;
        match self.part {
            Some(before) if before < part => least[before + 1..=part].fill(self.live_bytes),
            None => least[part] = 0,
            _ => {}
        }
        self.part = Some(part);
    }

    #[inline]
    fn grow(&mut self, part: usize, bytes: u64) {
        self.enter(part);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
    }

    #[inline]
    fn shrink(&mut self, part: usize, bytes: u64) {
        self.enter(part);
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        let least = &mut self.answer.least[part];
        *least = (*least).min(self.live_bytes);
    }

    fn began(&mut self, part: usize, thread: u32, call: Option<u32>, size: u64) {
        self.answer.begun += 1;
        self.answer.amid += u64::from(self.falling);
        self.all.up();
        self.threads.of(thread).up();
        if let Some(call) = call {
            self.calls[call as usize].of(thread).up();
        }
        self.grow(part, size);
    }

    fn over(&mut self, part: usize, thread: u32, call: Option<u32>, size: u64) {
        self.all.down();
        self.falling = self.all.live > 0;
        self.answer.sweeps += u64::from(!self.falling);
        self.threads.of(thread).down();
        if let Some(call) = call {
            self.calls[call as usize].of(thread).down();
        }
        self.shrink(part, size);
    }
}

/// A recent block of a thread, the first of a pair that has no second yet.
#[derive(Clone, Copy, Default)]
struct Recent {
    origin: u32,
    serial: u64,
}

/// The functions of a path from this depth on, up to that of the next such entry, have run since this serial.
type Since = (u32, u64);

#[derive(Default)]
struct Thread {
    events: u64,
    /// The path below the watched calls, and since when its functions run; the depths rise.
    at: u32,
    since: Vec<Since>,
    /// The path before, which the event `left_at` left, and what went out of `since` then, the innermost first.
    before: u32,
    ended: Vec<Since>,
    left_at: u64,
    /// The latest first.
    made: [Recent; NEAR],
    ended_blocks: [Note; NEAR_ENDS],
}

impl Thread {
    /// Goes on to another path, which shares so many functions with this one.
    #[inline(never)]
    fn go(&mut self, path: u32, shared: u32, serial: u64) {
        self.before = std::mem::replace(&mut self.at, path);
        self.left_at = self.events;
        self.ended.clear();
        while let Some(ended) = self.since.pop_if(|(depth, _)| *depth >= shared) {
            self.ended.push(ended);
        }
        self.since.push((shared, serial));
    }

    /// Since when the function at a depth of the path runs.
    fn runs_since(&self, depth: u32) -> Option<u64> {
        since(self.since.iter().rev(), depth)
    }

    /// The same of the path before, for what `left_at` ended.
    fn ran_since(&self, depth: u32) -> Option<u64> {
        let outer = self.since.iter().rev().skip(1);
        since(self.ended.iter().chain(outer), depth)
    }
}

fn since<'a>(mut inward: impl Iterator<Item = &'a Since>, depth: u32) -> Option<u64> {
    let found = inward.find(|(outermost, _)| *outermost <= depth);
    found.map(|(_, serial)| *serial)
}

/// The note of a live block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note {
    serial: u64,
    /// The first of its pair, and the pair's number plus one; 0: none.
    partner: u64,
    pair: u32,
    root: u32,
    /// The number of the thread that allocated it.
    thread: u32,
}

/// What an origin's blocks count for.
#[derive(Default)]
struct Counted {
    /// The sets, and the call of each: an index in `Set::calls`.
    sets: Vec<(u32, Option<u32>)>,
    /// The pairs of which it is the second; and whether it is the first of any.
    pairs: Vec<u32>,
    is_first: bool,
    watched: Option<u32>,
}

/// A function below a watched call, and the next one outward, whose number is smaller: a path. Paths of the same
/// functions have the same number.
#[derive(Default)]
struct Below {
    outer: u32,
    call: u32,
    /// The number of its functions.
    depth: u32,
}

/// The path of a stack below no watched call.
const NO_PATH: u32 = 0;

/// Answers the questions about one image.
pub struct Prover {
    pub answers: Answers,
    /// By origin.
    counted: Vec<Counted>,
    sets: Vec<Set>,
    numbers: Vec<usize>,
    /// With the origins of the first.
    pairs: Vec<(usize, FxHashSet<u32>, Together)>,
    watched: Vec<Through>,
    /// By the frame directly below a watched call, until it is seen: the call, and the function.
    functions: FxHashMap<StackId, Vec<(u32, u32)>>,
    /// By stack, up to the last one that was looked up: the number of its path.
    path_of: Vec<u32>,
    /// The paths that were seen below watched calls; the first is of none.
    paths: Vec<Below>,
    /// By the path outward, the call, and the function.
    path_numbers: FxHashMap<(u32, u32, u32), u32>,
    threads: Threads<Thread>,
    serial: u64,
    events: u64,
    /// The number of events in a part, and the start of the next one.
    part_events: u64,
    part: usize,
    part_ends: u64,
}

impl Prover {
    pub fn new(questions: Questions) -> Self {
        let mut prover = Self {
            answers: Answers::default(),
            counted: Vec::new(),
            sets: Vec::new(),
            numbers: Vec::new(),
            pairs: Vec::new(),
            functions: FxHashMap::default(),
            path_of: Vec::new(),
            paths: vec![Below::default()],
            path_numbers: FxHashMap::default(),
            watched: questions.watched,
            threads: Threads::default(),
            serial: 0,
            events: 0,
            part_events: u64::MAX,
            part: 0,
            part_ends: u64::MAX,
        };
        for (origin, number) in questions.watched_of {
            prover.counted(origin as usize).watched = Some(number);
        }
        for (number, through) in prover.watched.iter().enumerate() {
            for (stack, function) in &through.functions {
                let calls = prover.functions.entry(*stack).or_default();
                calls.push((number as u32, *function));
            }
        }
        for (number, question) in questions.all.into_iter().enumerate() {
            match question {
                Question::Set(origins) => prover.add_set(number, origins),
                Question::Pair(first, second) => prover.add_pair(number, &first, &second),
            }
        }
        prover
    }

    pub fn has_questions(&self) -> bool {
        !self.sets.is_empty() || !self.pairs.is_empty()
    }

    fn add_set(&mut self, number: usize, origins: Vec<(usize, Option<StackId>)>) {
        let set = self.sets.len() as u32;
        let mut calls: FxHashMap<StackId, u32> = FxHashMap::default();
        for (origin, call) in origins {
            let next = calls.len() as u32;
            let call = call.map(|call| *calls.entry(call).or_insert(next));
            let sets = &mut self.counted(origin).sets;
            sets.push((set, call));
            debug_assert!(sets.len() <= MOST_SETS);
        }
        self.sets.push(Set {
            calls: calls.iter().map(|_| Levels::default()).collect(),
            ..Set::default()
        });
        self.numbers.push(number);
    }

    fn add_pair(&mut self, number: usize, first: &[usize], second: &[usize]) {
        let pair = self.pairs.len() as u32;
        let firsts: FxHashSet<u32> = first.iter().map(|origin| *origin as u32).collect();
        self.pairs.push((number, firsts, Together::default()));
        for origin in second {
            self.counted(*origin).pairs.push(pair);
        }
        for origin in first {
            self.counted(*origin).is_first = true;
        }
    }

    fn counted(&mut self, origin: usize) -> &mut Counted {
        if self.counted.len() <= origin {
            self.counted.resize_with(origin + 1, Counted::default);
        }
        &mut self.counted[origin]
    }

    fn is_first(&self, origin: u32) -> bool {
        let counted = self.counted.get(origin as usize);
        counted.is_some_and(|counted| counted.is_first)
    }

    /// Records which functions run below the watched calls.
    #[inline]
    fn run(&mut self, thread: u32, stacks: &StackTable, stack: StackId) {
        let path = self.path(stacks, stack);
        let thread = self.threads.of(thread);
        thread.events += 1;
        if thread.at == path {
            return;
        }
        let shared = shared_depth(&self.paths, thread.at, path);
        thread.go(path, shared, self.serial);
    }

    /// The number of a stack's path below the watched calls.
    #[inline]
    fn path(&mut self, stacks: &StackTable, stack: StackId) -> u32 {
        match self.path_of.get(stack.0 as usize) {
            Some(number) => *number,
            None => self.new_path(stacks, stack),
        }
    }

    /// A parent comes before its children.
    #[cold]
    fn new_path(&mut self, stacks: &StackTable, stack: StackId) -> u32 {
        for number in self.path_of.len() as u32..=stack.0 {
            let at = StackId(number);
            let parent = stacks.parent(at);
            let mut path = match parent < at {
                true => self.path_of[parent.0 as usize],
                false => NO_PATH,
            };
            for (call, function) in self.functions.remove(&at).unwrap_or_default() {
                let next = self.paths.len() as u32;
                let key = (path, call, function);
                let number = *self.path_numbers.entry(key).or_insert(next);
                if number == next {
                    self.paths.push(Below {
                        outer: path,
                        call,
                        depth: self.paths[path as usize].depth + 1,
                    });
                }
                path = number;
            }
            self.path_of.push(path);
        }
        self.path_of[stack.0 as usize]
    }

    /// Whether the function to which a watched call led had returned when a buffer is freed.
    fn returned(&mut self, at: Moment<'_>, note: &Note, watched: u32) -> bool {
        let through = &self.watched[watched as usize];
        let thread = self.threads.state(note.thread);
        let depth = |path| depth_below(&self.paths, path, watched);
        let mut since = depth(thread.at).and_then(|depth| thread.runs_since(depth));
        let jumped = through.jumps && at.stack == through.call && thread.left_at == thread.events;
        if since.is_none() && jumped {
            since = depth(thread.before).and_then(|depth| thread.ran_since(depth));
        }
        since.is_none_or(|since| note.serial <= since)
    }

    /// The first to which a new block belongs, if it is a second: the latest one that has none.
    fn pair_up(&mut self, thread: u32, note: &mut Note) {
        let is_first = self.is_first(note.root);
        let made = &mut self.threads.state(thread).made;
        let counted = self.counted.get(note.root as usize);
        for pair in counted.iter().flat_map(|counted| &counted.pairs) {
            let (_, firsts, together) = &mut self.pairs[*pair as usize];
            let fits = |recent: &Recent| recent.serial > 0 && firsts.contains(&recent.origin);
            let Some(between) = made.iter().position(fits) else {
                continue;
            };
            together.made += 1;
            together.between = together.between.max(between as u64);
            (note.partner, note.pair) = (made[between].serial, pair + 1);
            made[between].serial = 0;
            break;
        }
        made.copy_within(..NEAR - 1, 1);
        made[0] = Recent {
            origin: note.root,
            serial: if is_first { note.serial } else { 0 },
        };
    }

    /// Whether a block is freed near the other of its pair. A freed block is no longer a first.
    fn part_together(&mut self, thread: u32, note: &Note) {
        let is_first = self.is_first(note.root);
        if is_first {
            let made = &mut self.threads.state(note.thread).made;
            let gone = made.iter_mut().find(|recent| recent.serial == note.serial);
            gone.into_iter().for_each(|recent| recent.serial = 0);
        }
        let ended = &mut self.threads.state(thread).ended_blocks;
        // Of other origins no block has a partner.
        if is_first || note.pair > 0 {
            for (between, other) in ended.iter().enumerate() {
                let second_ends = note.pair > 0 && other.serial == note.partner;
                let first_ends = other.pair > 0 && other.partner == note.serial;
                let pair = match (second_ends, first_ends) {
                    (true, _) => note.pair,
                    (_, true) => other.pair,
                    _ => continue,
                };
                let together = &mut self.pairs[pair as usize - 1].2;
                together.ended += 1;
                together.first_before += u64::from(second_ends);
                together.frees_between = together.frees_between.max(between as u64);
            }
        }
        ended.copy_within(..NEAR_ENDS - 1, 1);
        ended[0] = *note;
    }
}

/// The number of functions that two paths share.
fn shared_depth(paths: &[Below], a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while a != b {
        let larger = if a > b { &mut a } else { &mut b };
        *larger = paths[*larger as usize].outer;
    }
    paths[a as usize].depth
}

/// The depth of the innermost function below a watched call on a path.
fn depth_below(paths: &[Below], path: u32, watched: u32) -> Option<u32> {
    let mut at = path;
    while at != NO_PATH {
        let below = &paths[at as usize];
        if below.call == watched {
            return Some(below.depth - 1);
        }
        at = below.outer;
    }
    None
}

impl Observer for Prover {
    type Note = Note;

    fn begin_image(&mut self, trace: &Trace) {
        self.part_events = trace.event_count().div_ceil(PARTS as u64).max(1);
        self.part_ends = self.part_events;
    }

    #[inline(always)]
    fn event(&mut self, event: &Event, events: &Events<'_>) {
        if let Some(stack) = stack_of(event).filter(|_| !self.watched.is_empty()) {
            self.run(event.thread, events.stacks(), stack);
        }
        self.events += u64::from(is_call(&event.action));
        if self.events > self.part_ends && self.part < PARTS - 1 {
            self.part += 1;
            self.part_ends += self.part_events;
        }
    }

    fn made(&mut self, at: Moment<'_>, made: &Made<'_, Note>) -> Note {
        self.serial += 1;
        let (origin, part) = (made.origin.index() as u32, self.part);
        if let Some(old) = made.old {
            let counted = self.counted.get(old.note.root as usize);
            for (set, _) in counted.iter().flat_map(|counted| &counted.sets) {
                let set = &mut self.sets[*set as usize];
                set.grow(part, made.size);
                set.shrink(part, old.size);
            }
            return old.note;
        }
        let thread = self.threads.number(at.thread);
        if let Some(counted) = self.counted.get(origin as usize) {
            for (set, call) in &counted.sets {
                self.sets[*set as usize].began(part, thread, *call, made.size);
            }
        }
        let mut note = Note {
            serial: self.serial,
            root: origin,
            thread,
            ..Note::default()
        };
        if !self.pairs.is_empty() {
            self.pair_up(thread, &mut note);
        }
        note
    }

    fn ended(&mut self, at: Moment<'_>, _address: u64, block: &Block<Note>, how: End) {
        if matches!(how, End::Reallocated(1..)) {
            return;
        }
        let (note, root) = (&block.note, block.note.root as usize);
        let watched = self.counted.get(root).and_then(|counted| counted.watched);
        let returned = watched.is_some_and(|watched| self.returned(at, note, watched));
        if let Some(counted) = self.counted.get(root) {
            for (set, call) in &counted.sets {
                let set = &mut self.sets[*set as usize];
                set.over(self.part, note.thread, *call, block.size);
                set.answer.returned += u64::from(returned && call.is_some());
            }
        }
        // The thread and time of a free that was not recorded are not known.
        if !self.pairs.is_empty() && how != End::Replaced {
            let thread = self.threads.number(at.thread);
            self.part_together(thread, note);
        }
    }

    fn end_image(&mut self, _image: &mut Finished<'_, '_>, live: &Live<'_, Note>) {
        let mut firsts: FxHashSet<u64> = FxHashSet::default();
        live(&mut |_, block| {
            if self.is_first(block.note.root) {
                firsts.insert(block.note.serial);
            }
        });
        live(&mut |_, block| {
            if block.note.pair > 0 && firsts.contains(&block.note.partner) {
                self.pairs[block.note.pair as usize - 1].2.live += 1;
            }
        });
        for (set, number) in self.sets.iter_mut().zip(&self.numbers) {
            if set.part.is_some() {
                set.enter(PARTS - 1);
            }
            set.answer.most = set.all.most;
            set.answer.most_of_a_thread = set.threads.most();
            let in_a_call = set.calls.iter().map(Levels::most);
            set.answer.most_in_a_call = in_a_call.max().unwrap_or(0);
            self.answers.sets.insert(*number, set.answer.clone());
        }
        for (number, _, together) in &self.pairs {
            self.answers.pairs.insert(*number, *together);
        }
    }
}
