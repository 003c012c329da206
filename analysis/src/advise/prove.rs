//! The second pass over a trace: counts the answers to the detectors' questions about sets of blocks.
//!
//! The first pass has facts of each origin alone, which do not show whether blocks of several origins,
//! threads and callers lived at once. So the calls are passed over again with these sets, and every answer is
//! exact.
//!
//! A *buffer* is an allocation together with everything that realloc makes of it, until it is freed; it
//! belongs to the sets of its first origin. Time: a few steps for each set that a block is in, up to
//! `MOST_SETS` an origin. Memory: 32 bytes a live block, and a few words a set and thread.

use std::collections::HashMap;

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
    at_once: HashMap<Vec<usize>, Asked>,
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

    /// Asks whether the buffers of an origin, asked about with a call, are freed before the function
    /// returns to which this call led.
    pub fn watch(&mut self, origin: usize, through: Through) {
        self.watched_of
            .insert(origin as u32, self.watched.len() as u32);
        self.watched.push(through);
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

#[derive(Default)]
struct Set {
    answer: AtOnce,
    all: Level,
    /// A buffer was freed since none was live.
    falling: bool,
    /// By the threads' own numbers.
    threads: Vec<Level>,
    calls: FxHashMap<(u32, StackId), Level>,
    live_bytes: u64,
    part: Option<usize>,
}

impl Set {
    fn enter(&mut self, part: usize) {
        let least = &mut self.answer.least;
        match self.part {
            Some(before) if before < part => least[before + 1..=part].fill(self.live_bytes),
            None => least[part] = 0,
            _ => {}
        }
        self.part = Some(part);
    }

    fn change(&mut self, part: usize, more: u64, less: u64) {
        self.enter(part);
        self.live_bytes = self.live_bytes.saturating_add(more).saturating_sub(less);
        let least = &mut self.answer.least[part];
        *least = (*least).min(self.live_bytes);
    }
}

/// A recent block of a thread, the first of a pair that has no second yet.
#[derive(Clone, Copy, Default)]
struct Recent {
    origin: u32,
    serial: u64,
}

/// A function that has run below a watched call since this serial.
#[derive(Clone, Copy)]
struct Run {
    call: u32,
    function: u32,
    since: u64,
}

#[derive(Default)]
struct Thread {
    events: u64,
    /// The number of its path below the watched calls.
    at: u32,
    /// The functions below the watched calls, the outermost first; the last one that returned with the
    /// event `ended_at`.
    runs: Vec<Run>,
    ended_runs: Vec<Run>,
    ended_at: u64,
    /// The latest first.
    made: [Recent; NEAR],
    ended: [Note; NEAR_ENDS],
}

impl Thread {
    fn run_of(runs: &[Run], call: u32) -> Option<&Run> {
        runs.iter().rev().find(|run| run.call == call)
    }
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

/// The role of an origin in pairs.
const FIRST: u8 = 1;
const SECOND: u8 = 2;

/// A frame directly below watched calls: these, with the function, and the next such frame outward, whose number is
/// smaller.
#[derive(Default)]
struct Below {
    outer: u32,
    functions: Vec<(u32, u32)>,
    /// Functions of the whole path.
    depth: usize,
}

/// The path of a stack below no watched call.
const NO_PATH: u32 = 0;
/// The stack was not looked up yet.
const UNSEEN: u32 = u32::MAX;

/// Answers the questions about one image.
pub struct Prover {
    pub answers: Answers,
    /// By origin: the sets, and the call of each.
    sets_of: Vec<Vec<(u32, Option<StackId>)>>,
    sets: Vec<Set>,
    numbers: Vec<usize>,
    /// By origin: the pairs of which it is the second, with the first's origins.
    seconds: FxHashMap<u32, Vec<u32>>,
    pairs: Vec<(usize, FxHashSet<u32>, Together)>,
    /// By origin.
    roles: Vec<u8>,
    watched: Vec<Through>,
    watched_of: FxHashMap<u32, u32>,
    /// By the frame directly below a watched call, until it is seen: the call, and the function.
    functions: FxHashMap<StackId, Vec<(u32, u32)>>,
    /// By stack: the number of its path, or `UNSEEN`.
    path_of: Vec<u32>,
    /// The paths below watched calls, one for each frame in `functions` that was seen; the first is of none.
    paths: Vec<Below>,
    /// The calls and functions of a part of a path, the innermost first: empty, but keeps its memory.
    path: Vec<(u32, u32)>,
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
            sets_of: Vec::new(),
            sets: Vec::new(),
            numbers: Vec::new(),
            seconds: FxHashMap::default(),
            pairs: Vec::new(),
            roles: Vec::new(),
            functions: FxHashMap::default(),
            path_of: Vec::new(),
            paths: vec![Below::default()],
            path: Vec::new(),
            watched_of: questions.watched_of,
            watched: questions.watched,
            threads: Threads::default(),
            serial: 0,
            events: 0,
            part_events: u64::MAX,
            part: 0,
            part_ends: u64::MAX,
        };
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
        self.sets.push(Set::default());
        self.numbers.push(number);
        for (origin, call) in origins {
            if self.sets_of.len() <= origin {
                self.sets_of.resize_with(origin + 1, Vec::new);
            }
            self.sets_of[origin].push((set, call));
            debug_assert!(self.sets_of[origin].len() <= MOST_SETS);
        }
    }

    fn add_pair(&mut self, number: usize, first: &[usize], second: &[usize]) {
        let pair = self.pairs.len() as u32;
        let firsts: FxHashSet<u32> = first.iter().map(|origin| *origin as u32).collect();
        self.pairs.push((number, firsts, Together::default()));
        for origin in second {
            self.seconds.entry(*origin as u32).or_default().push(pair);
        }
        for (role, origins) in [(FIRST, first), (SECOND, second)] {
            for origin in origins {
                if self.roles.len() <= *origin {
                    self.roles.resize(origin + 1, 0);
                }
                self.roles[*origin] |= role;
            }
        }
    }

    fn role(&self, origin: u32) -> u8 {
        self.roles.get(origin as usize).copied().unwrap_or(0)
    }

    fn began(&mut self, thread: u32, origin: u32, size: u64) {
        let part = self.part;
        for (number, call) in self.sets_of.get(origin as usize).into_iter().flatten() {
            let set = &mut self.sets[*number as usize];
            set.answer.begun += 1;
            set.answer.amid += u64::from(set.falling);
            set.all.up();
            if set.threads.len() <= thread as usize {
                set.threads.resize_with(thread as usize + 1, Level::default);
            }
            set.threads[thread as usize].up();
            if let Some(call) = call {
                set.calls.entry((thread, *call)).or_default().up();
            }
            set.change(part, size, 0);
        }
    }

    /// Records which functions run below the watched calls.
    fn run(&mut self, thread: u32, stacks: &StackTable, stack: StackId) {
        let number = self.path(stacks, stack);
        let thread = self.threads.of(thread);
        thread.events += 1;
        if thread.at == number {
            return;
        }
        // Both paths have what is outside of where they part; further functions may be the same by another frame.
        let (mut path, mut at) = (std::mem::take(&mut self.path), number);
        let mut before = std::mem::replace(&mut thread.at, number);
        while at != before {
            if before > at {
                before = self.paths[before as usize].outer;
                continue;
            }
            let below = &self.paths[at as usize];
            path.extend(below.functions.iter().rev());
            at = below.outer;
        }
        let both = self.paths[at as usize].depth;
        let goes_on = |(run, new): &(&Run, &(u32, u32))| (run.call, run.function) == **new;
        let outward = thread.runs.iter().skip(both).zip(path.iter().rev());
        let shared = both + outward.take_while(goes_on).count();
        thread.ended_runs.clear();
        thread.ended_runs.extend(thread.runs.drain(shared..));
        thread.ended_at = thread.events;
        let since = self.serial;
        let begun = path.drain(..).rev().skip(shared - both);
        let begun = begun.map(|(call, function)| Run {
            call,
            function,
            since,
        });
        thread.runs.extend(begun);
        self.path = path;
    }

    /// The number of a stack's path below the watched calls.
    #[inline]
    fn path(&mut self, stacks: &StackTable, stack: StackId) -> u32 {
        match self.path_of.get(stack.0 as usize) {
            Some(number) if *number != UNSEEN => *number,
            _ => self.new_path(stacks, stack),
        }
    }

    #[cold]
    fn new_path(&mut self, stacks: &StackTable, stack: StackId) -> u32 {
        let (mut at, mut new) = (stack, Vec::new());
        let mut found = loop {
            let place = at.0 as usize;
            if self.path_of.len() <= place {
                self.path_of.resize(place + 1, UNSEEN);
            }
            if self.path_of[place] != UNSEEN {
                break self.path_of[place];
            }
            new.push(at);
            let parent = stacks.parent(at);
            if parent == at {
                break NO_PATH;
            }
            at = parent;
        };
        for at in new.into_iter().rev() {
            if let Some(functions) = self.functions.remove(&at) {
                let outer = &self.paths[found as usize];
                self.paths.push(Below {
                    outer: found,
                    depth: outer.depth + functions.len(),
                    functions,
                });
                found = self.paths.len() as u32 - 1;
            }
            self.path_of[at.0 as usize] = found;
        }
        found
    }

    /// Whether the function to which a watched call led had returned when a buffer is freed.
    fn returned(&mut self, at: Moment<'_>, note: &Note) -> bool {
        let Some(number) = self.watched_of.get(&note.root) else {
            return false;
        };
        let through = &self.watched[*number as usize];
        let thread = self.threads.state(note.thread);
        let jumped = through.jumps && at.stack == through.call && thread.ended_at == thread.events;
        let ended = jumped.then(|| Thread::run_of(&thread.ended_runs, *number));
        let run = Thread::run_of(&thread.runs, *number).or(ended.flatten());
        run.is_none_or(|run| note.serial <= run.since)
    }

    fn resized(&mut self, root: u32, more: u64, less: u64) {
        let part = self.part;
        for (number, _) in self.sets_of.get(root as usize).into_iter().flatten() {
            self.sets[*number as usize].change(part, more, less);
        }
    }

    fn over(&mut self, note: &Note, size: u64) {
        let part = self.part;
        for (number, call) in self.sets_of.get(note.root as usize).into_iter().flatten() {
            let set = &mut self.sets[*number as usize];
            set.all.down();
            set.falling = set.all.live > 0;
            set.answer.sweeps += u64::from(!set.falling);
            if let Some(level) = set.threads.get_mut(note.thread as usize) {
                level.down();
            }
            let of_call = call.and_then(|call| set.calls.get_mut(&(note.thread, call)));
            if let Some(level) = of_call {
                level.down();
            }
            set.change(part, 0, size);
        }
    }

    /// The first to which a new block belongs, if it is a second: the latest one that has none.
    fn pair_up(&mut self, thread: u32, note: &mut Note) {
        let role = self.role(note.root);
        let made = &mut self.threads.state(thread).made;
        let pairs = match role & SECOND {
            0 => None,
            _ => self.seconds.get(&note.root),
        };
        for pair in pairs.into_iter().flatten() {
            let (_, firsts, together) = &mut self.pairs[*pair as usize];
            let is_first = |recent: &Recent| recent.serial > 0 && firsts.contains(&recent.origin);
            let Some(between) = made.iter().position(is_first) else {
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
            serial: if role & FIRST == 0 { 0 } else { note.serial },
        };
    }

    /// Whether a block is freed near the other of its pair. A freed block is no longer a first.
    fn part_together(&mut self, thread: u32, note: &Note) {
        if self.role(note.root) & FIRST != 0 {
            let made = &mut self.threads.state(note.thread).made;
            let gone = made.iter_mut().find(|recent| recent.serial == note.serial);
            gone.into_iter().for_each(|recent| recent.serial = 0);
        }
        let ended = &mut self.threads.state(thread).ended;
        if self
            .roles
            .get(note.root as usize)
            .is_some_and(|role| *role != 0)
        {
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

impl Observer for Prover {
    type Note = Note;

    fn begin_image(&mut self, trace: &Trace) {
        self.part_events = trace.event_count().div_ceil(PARTS as u64).max(1);
        self.part_ends = self.part_events;
    }

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
        let origin = made.origin.index() as u32;
        if let Some(old) = made.old {
            self.resized(old.note.root, made.size, old.size);
            return old.note;
        }
        let thread = self.threads.number(at.thread);
        self.began(thread, origin, made.size);
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
        self.over(&block.note, block.size);
        if self.returned(at, &block.note) {
            let sets = self.sets_of.get(block.note.root as usize);
            for (number, _) in sets
                .into_iter()
                .flatten()
                .filter(|(_, call)| call.is_some())
            {
                self.sets[*number as usize].answer.returned += 1;
            }
        }
        // The thread and time of a free that was not recorded are not known.
        if !self.pairs.is_empty() && how != End::Replaced {
            let thread = self.threads.number(at.thread);
            self.part_together(thread, &block.note);
        }
    }

    fn end_image(&mut self, _image: &mut Finished<'_, '_>, live: &Live<'_, Note>) {
        let mut firsts: FxHashSet<u64> = FxHashSet::default();
        live(&mut |_, block| {
            if self.role(block.note.root) & FIRST != 0 {
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
            let most = |levels: &mut dyn Iterator<Item = u64>| levels.max().unwrap_or(0);
            set.answer.most = set.all.most;
            set.answer.most_of_a_thread = most(&mut set.threads.iter().map(|level| level.most));
            set.answer.most_in_a_call = most(&mut set.calls.values().map(|level| level.most));
            self.answers.sets.insert(*number, set.answer.clone());
        }
        for (number, _, together) in &self.pairs {
            self.answers.pairs.insert(*number, *together);
        }
    }
}
