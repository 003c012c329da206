//! The data of the page beyond the analysis: stacks, timeline, threads, and sizes of blocks.
//!
//! Memory: by the distinct stacks, each with the parts of the timeline and the threads in which it allocates.

use larder_trace::{Action, Event, Events, Trace};
use rustc_hash::FxHashMap;

use super::called::{self, Called};
use super::timeline::SITES;
use crate::reading::heap::Block;
use crate::reading::observe::{End, Finished, Live, Made, Moment, Observer};
use crate::reading::sites::SiteStack;
use crate::reading::stacks::{Life, Stacks};
use crate::reading::timeline::{Timeline, TimelineObserver};

/// The number of the thread that allocated a block, and of this allocation in the thread.
#[derive(Clone, Copy, Default)]
pub struct Note {
    thread: u32,
    number: u64,
}

/// The timeline's columns are told apart by stack in up to this many groups.
const SPANS: usize = 32;
/// Threads told apart by stack; the others are one.
const THREADS: usize = 64;

/// Calls and bytes of blocks whose size has this many binary digits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeClass {
    pub calls: u64,
    pub bytes: u64,
}

/// What a stack allocates in a part of the run: a group of columns, or a thread.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub part: usize,
    pub calls: u64,
    pub bytes: u64,
}

/// A thread of one process image.
#[derive(Clone, Debug, Default)]
pub struct ThreadSums {
    pub pid: u32,
    pub thread: u32,
    pub calls: u64,
    pub bytes: u64,
    pub frees: u64,
    /// Of these, of blocks that another thread allocated.
    pub foreign: u64,
    /// Of its own allocations.
    pub live_bytes: u64,
}

/// An origin of the current image.
#[derive(Clone, Copy, Default)]
struct Own {
    /// What the thread that allocated there last has allocated since another one did.
    thread: u32,
    calls: u64,
    bytes: u64,
    /// Blocks that ended before their thread allocated again.
    temporary: u64,
}

pub struct Gathered {
    pub stacks: Stacks,
    pub called: Called,
    pub timeline: TimelineObserver,
    /// By the number of binary digits of the size: 0, 1, 2–3, 4–7 …
    pub sizes: [SizeClass; 65],
    pub threads: Vec<ThreadSums>,
    /// The numbers of the current image's threads in `threads`.
    numbers: FxHashMap<u32, usize>,
    /// The last of them that was asked for.
    latest: Option<(u32, usize)>,
    /// By the current image's origins.
    own: Vec<Own>,
    /// Further calls and bytes, by the thread's number and the origin.
    made: FxHashMap<(u32, usize), (u64, u64)>,
    /// By the rows of `stacks`.
    cells: Vec<Vec<Cell>>,
}

impl Gathered {
    pub fn new() -> Self {
        Self {
            stacks: Stacks::default(),
            called: called::observer(),
            timeline: TimelineObserver::new(SITES),
            sizes: [SizeClass::default(); 65],
            threads: Vec::new(),
            numbers: FxHashMap::default(),
            latest: None,
            own: Vec::new(),
            made: FxHashMap::default(),
            cells: Vec::new(),
        }
    }

    #[inline]
    fn thread(&mut self, id: u32) -> usize {
        match self.latest {
            Some((latest, number)) if latest == id => number,
            _ => self.other_thread(id),
        }
    }

    #[inline(never)]
    fn other_thread(&mut self, id: u32) -> usize {
        let number = *self.numbers.entry(id).or_insert_with(|| {
            self.threads.push(ThreadSums {
                thread: id,
                ..ThreadSums::default()
            });
            self.threads.len() - 1
        });
        self.latest = Some((id, number));
        number
    }

    #[inline(never)]
    fn set_aside(&mut self, origin: usize) {
        if self.own.len() <= origin {
            self.own.resize(origin + 1, Own::default());
        }
        let own = &mut self.own[origin];
        if own.calls == 0 {
            return;
        }
        let (calls, bytes) = self.made.entry((own.thread, origin)).or_default();
        *calls += std::mem::take(&mut own.calls);
        *bytes = bytes.saturating_add(std::mem::take(&mut own.bytes));
    }

    /// The threads with the most calls, whose parts are told apart.
    pub fn shown_threads(&self) -> Vec<usize> {
        let mut ranked: Vec<usize> = (0..self.threads.len()).collect();
        ranked.sort_by_key(|number| std::cmp::Reverse(self.threads[*number].calls));
        ranked.truncate(THREADS);
        ranked
    }

    /// What a row's stack allocates by thread, in the order of `shown_threads`; nothing if there is but one.
    pub fn by_thread(&self, row: usize, shown: &FxHashMap<usize, usize>) -> Vec<Cell> {
        if self.threads.len() < 2 {
            return Vec::new();
        }
        let cells = self.cells[row].iter().filter_map(|cell| {
            let part = *shown.get(&cell.part)?;
            Some(Cell { part, ..*cell })
        });
        cells.collect()
    }

    /// A stack of each site of the timeline.
    pub fn timed(&self) -> impl Iterator<Item = SiteStack> {
        let sites = self
            .drawn()
            .map(|timeline| (self.first_row(timeline), &timeline.sites));
        sites.into_iter().flat_map(move |(first, sites)| {
            let origins = sites.iter().map(|(_, origin, _)| *origin);
            origins.map(move |origin| self.stacks.rows[first + origin].charged())
        })
    }

    /// An image's rows are in the order of its origins.
    fn first_row(&self, timeline: &Timeline) -> usize {
        let rows = &self.stacks.rows;
        rows.partition_point(|row| row.image < timeline.image)
    }

    pub fn drawn(&self) -> Option<&Timeline> {
        let timeline = self.timeline.timeline.as_ref();
        timeline.filter(|found| found.peak_bytes > 0)
    }

    /// What a row's stack allocates by group of columns; nothing if another image has the timeline.
    pub fn spans(&self, row: usize) -> Vec<Cell> {
        let Some(timeline) = self.drawn() else {
            return Vec::new();
        };
        if self.stacks.rows[row].image != timeline.image {
            return Vec::new();
        }
        let first = self.first_row(timeline);
        let mut cells: Vec<Cell> = Vec::new();
        for part in timeline.parts.get(row - first).into_iter().flatten() {
            let (group, calls, bytes) = (part.column / group(timeline), part.calls, part.bytes);
            match cells.last_mut().filter(|cell| cell.part == group) {
                Some(cell) => {
                    cell.calls += calls;
                    cell.bytes = cell.bytes.saturating_add(bytes);
                }
                None if calls == 0 => {}
                None => cells.push(Cell {
                    part: group,
                    calls,
                    bytes,
                }),
            }
        }
        cells
    }
}

/// Columns of a group.
pub fn group(timeline: &Timeline) -> usize {
    timeline.totals.len().div_ceil(SPANS).max(1)
}

impl Observer for Gathered {
    type Note = Note;
    const LOOKS_AGAIN: bool = true;

    fn begin_image(&mut self, trace: &Trace) {
        self.timeline.begin_image(trace);
        self.called.begin_image(trace);
    }

    #[inline]
    fn event(&mut self, event: &Event, events: &Events<'_>) {
        self.timeline.event(event, events);
        if !matches!(event.action, Action::Alloc { .. } | Action::Free { .. }) {
            self.called.event(event, events);
        }
    }

    #[inline]
    fn made(&mut self, moment: Moment, made: &Made<'_, Note>) -> Note {
        let class = &mut self.sizes[(u64::BITS - made.size.leading_zeros()) as usize];
        class.calls += 1;
        class.bytes = class.bytes.saturating_add(made.size);
        let (number, origin) = (self.thread(moment.thread), made.origin.index());
        let thread = number as u32;
        if self.own.get(origin).is_none_or(|own| own.thread != thread) {
            self.set_aside(origin);
            self.own[origin].thread = thread;
        }
        let own = &mut self.own[origin];
        own.calls += 1;
        own.bytes = own.bytes.saturating_add(made.size);
        self.timeline.add(made.origin, made.size);
        let sums = &mut self.threads[number];
        sums.calls += 1;
        Note {
            thread,
            number: sums.calls,
        }
    }

    #[inline]
    fn ended(&mut self, moment: Moment, _address: u64, block: &Block<Note>, how: End) {
        if matches!(how, End::Freed(_)) {
            let thread = self.thread(moment.thread);
            let sums = &mut self.threads[thread];
            sums.frees += 1;
            sums.foreign += u64::from(block.note.thread as usize != thread);
        }
        if self.threads[block.note.thread as usize].calls == block.note.number {
            self.own[block.origin.index()].temporary += 1;
        }
        self.timeline.remove(block.origin, block.size);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Note>) {
        live(&mut |_, block| {
            let sum = &mut self.threads[block.note.thread as usize].live_bytes;
            *sum = sum.saturating_add(block.size);
        });
        let first = self.cells.len();
        self.cells
            .resize_with(first + image.sources.len(), Vec::new);
        (0..self.own.len()).for_each(|origin| self.set_aside(origin));
        for ((thread, origin), (calls, bytes)) in self.made.drain() {
            let part = thread as usize;
            let sum = &mut self.threads[part].bytes;
            *sum = sum.saturating_add(bytes);
            self.cells[first + origin].push(Cell { part, calls, bytes });
        }
        self.latest = None;
        for (_, number) in self.numbers.drain() {
            self.threads[number].pid = image.trace.process().pid;
        }
        self.timeline.finish(image);
        let lives = self.own.drain(..);
        let lives = lives.map(|own| Life::of_temporary(own.temporary));
        self.stacks.add_image(image, lives.collect());
        self.called.end_image(image, &|_| {});
    }
}
