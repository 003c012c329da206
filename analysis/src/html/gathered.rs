//! The data of the page beyond the analysis: stacks, timeline, threads, and sizes of blocks.
//!
//! Memory: by the distinct stacks, each with the parts of the timeline and the threads in which it allocates.

use larder_trace::{Action, Event, Events, Trace};
use rustc_hash::FxHashMap;

use super::called::{self, Called};
use super::timeline::SITES;
use super::tree::MEASURES;
use crate::reading::heap::{Block, Origin};
use crate::reading::observe::{End, Finished, Live, Made, Moment, Observer};
use crate::reading::sites::SiteStack;
use crate::reading::timeline::{Timeline, TimelineObserver};

/// The number of the thread that allocated a block, and of this allocation in the thread.
#[derive(Clone, Copy, Default)]
pub struct Note {
    thread: u32,
    number: u64,
}

/// Threads told apart by stack; the others are one.
const THREADS: usize = 64;

/// No thread's number has more than 32 bits.
const NO_THREAD: (u64, usize) = (u64::MAX, 0);

/// Calls and bytes of blocks whose size has this many binary digits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeClass {
    pub calls: u64,
    pub bytes: u64,
}

/// What allocates from one stack, in one image.
pub struct Row {
    pub stack: SiteStack,
    image: usize,
    sums: Origin,
    temporary: u64,
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
    /// Those of an image are in the order of its origins.
    pub rows: Vec<Row>,
    pub called: Called,
    timeline: TimelineObserver,
    /// The first row of its image.
    first_drawn: usize,
    images: usize,
    /// By the number of binary digits of the size: 0, 1, 2–3, 4–7 …
    pub sizes: [SizeClass; 65],
    pub threads: Vec<ThreadSums>,
    /// The numbers of the current image's threads in `threads`.
    numbers: FxHashMap<u32, usize>,
    /// The last of them that was asked for.
    latest: (u64, usize),
    /// By the current image's origins.
    own: Vec<Own>,
    /// Further calls and bytes, by the thread's number and the origin.
    made: FxHashMap<(u32, usize), (u64, u64)>,
    /// By row: of the last thread that allocated there.
    cells: Vec<Cell>,
    /// Further ones of a row.
    other_cells: FxHashMap<usize, Vec<Cell>>,
}

impl Gathered {
    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            called: called::observer(),
            timeline: TimelineObserver::new(SITES),
            first_drawn: 0,
            images: 0,
            sizes: [SizeClass::default(); 65],
            threads: Vec::new(),
            numbers: FxHashMap::default(),
            latest: NO_THREAD,
            own: Vec::new(),
            made: FxHashMap::default(),
            cells: Vec::new(),
            other_cells: FxHashMap::default(),
        }
    }

    #[inline]
    fn thread(&mut self, id: u32) -> usize {
        match self.latest {
            (latest, number) if latest == u64::from(id) => number,
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
        self.latest = (u64::from(id), number);
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
    pub fn by_thread(
        &self,
        row: usize,
        shown: &FxHashMap<usize, usize>,
    ) -> impl Iterator<Item = Cell> {
        let others = self.other_cells.get(&row).into_iter().flatten();
        let cells = others.chain([&self.cells[row]]);
        let cells = cells.filter(|_| self.threads.len() > 1);
        cells.filter_map(|cell| {
            let part = *shown.get(&cell.part)?;
            Some(Cell { part, ..*cell })
        })
    }

    /// The row of a stack of each site of the timeline.
    pub fn timed(&self) -> impl Iterator<Item = usize> {
        let sites = self.drawn().into_iter().flat_map(|drawn| &drawn.sites);
        sites.map(|(_, origin, _)| self.first_drawn + origin)
    }

    pub fn drawn(&self) -> Option<&Timeline> {
        let timeline = self.timeline.timeline.as_ref();
        timeline.filter(|found| found.peak_bytes > 0)
    }

    /// By `tree::MEASURES`.
    pub fn weights(&self, row: usize) -> [u64; MEASURES.len()] {
        let peak = self.drawn_of(row).is_some();
        let Row {
            sums, temporary, ..
        } = &self.rows[row];
        [
            sums.calls,
            sums.bytes,
            if peak { sums.peak_bytes } else { 0 },
            sums.live_bytes,
            *temporary,
            sums.tiny,
        ]
    }

    /// The timeline, if it is of the row's image, which then has the highest peak.
    fn drawn_of(&self, row: usize) -> Option<&Timeline> {
        self.drawn()
            .filter(|drawn| self.rows[row].image == drawn.image)
    }

    /// What a row's stack allocates by span of columns; nothing if another image has the timeline.
    pub fn spans(&self, row: usize) -> impl Iterator<Item = Cell> {
        let drawn = self.drawn_of(row);
        let parts = drawn.map_or(&[][..], |drawn| drawn.made(row - self.first_drawn));
        parts.iter().map(|part| Cell {
            part: part.span as usize,
            calls: part.calls,
            bytes: part.bytes,
        })
    }
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
        let first = self.rows.len();
        let mut cell = |thread: u32, calls, bytes| {
            let part = thread as usize;
            // An origin whose calls all failed has no thread.
            if let Some(thread) = self.threads.get_mut(part) {
                thread.bytes = thread.bytes.saturating_add(bytes);
            }
            Cell { part, calls, bytes }
        };
        for ((thread, origin), (calls, bytes)) in self.made.drain() {
            let cells = self.other_cells.entry(first + origin).or_default();
            cells.push(cell(thread, calls, bytes));
        }
        self.own.resize(image.sources.len(), Own::default());
        let last = self.own.iter();
        let last = last.map(|own| cell(own.thread, own.calls, own.bytes));
        self.cells.extend(last);
        self.latest = NO_THREAD;
        for (_, number) in self.numbers.drain() {
            self.threads[number].pid = image.trace.process().pid;
        }
        if self.timeline.finish(image) {
            self.first_drawn = first;
        }
        let origins = image.sources.iter().zip(image.origins);
        for ((source, sums), own) in origins.zip(std::mem::take(&mut self.own)) {
            let stacks = image.events.stacks();
            let chain = image.resolver.chain(image.trace, stacks, source.stack);
            self.rows.push(Row {
                stack: SiteStack {
                    chain,
                    site: source.site,
                },
                image: self.images,
                sums: sums.clone(),
                temporary: own.temporary,
            });
        }
        self.images += 1;
        self.called.end_image(image, &|_| {});
    }
}
