//! All distinct stacks of a trace with their requests: the data of exports and pictures.
//!
//! Memory grows with the distinct stacks of all images, and with the live blocks of one.

use larder_trace::{Event, Events, StackId};
use rustc_hash::FxHashMap;

use super::chain::Chain;
use super::heap::{Block, Origin};
use super::observe::{End, Finished, Live, Made, Moment, Observer};
use super::resolve::ChainFrame;
use super::sites::SiteStack;

/// One stack and the function of the malloc family that it called, in one image.
#[derive(Debug)]
pub struct StackRow {
    /// Innermost first.
    chain: Chain,
    /// The number of innermost functions of the chain that are not shown.
    hidden: usize,
    /// The charged frame, as an index over all functions of the chain from the innermost.
    site: Option<usize>,
    /// `malloc`, `operator new` …
    pub call: &'static str,
    /// The index of the image, in the order of reading.
    pub image: usize,
    /// Bytes at the peak are 0 unless the image had the highest peak of all.
    pub sums: Origin,
    pub life: Life,
    /// What `Weights` has measured; 0 in rows of allocations.
    pub weight: u64,
    pub truncated: bool,
}

/// Figures of the blocks of one stack beyond the sums of the heap.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Blocks that ended before their thread allocated again.
    pub temporary: u64,
    pub temporary_bytes: u64,
    /// Sum of the lifetimes; a block that is never freed lives to the end of the trace.
    pub lifetime_ns: u64,
    /// The highest live bytes of this stack, and the highest live blocks.
    pub max_bytes: u64,
    pub max_blocks: u64,
    live_bytes: u64,
    live_blocks: u64,
    lifetime_ticks: u64,
}

impl Life {
    fn made(&mut self, size: u64) {
        self.live_blocks += 1;
        self.live_bytes = self.live_bytes.saturating_add(size);
        if self.live_bytes >= self.max_bytes {
            self.max_bytes = self.live_bytes;
            self.max_blocks = self.live_blocks;
        }
    }

    fn ended(&mut self, size: u64) {
        self.live_blocks = self.live_blocks.saturating_sub(1);
        self.live_bytes = self.live_bytes.saturating_sub(size);
    }

    fn lived(&mut self, ticks: u64) {
        self.lifetime_ticks = self.lifetime_ticks.saturating_add(ticks);
    }
}

impl StackRow {
    /// The code addresses of the stack, innermost first: each as the inlined functions, then the one
    /// that they are inlined into.
    pub fn locations(&self) -> impl DoubleEndedIterator<Item = &[ChainFrame]> {
        let mut hidden = self.hidden;
        let shown = self.chain.iter().filter_map(|frames| {
            let from = hidden.min(frames.len());
            hidden -= from;
            frames.get(from..).filter(|rest| !rest.is_empty())
        });
        shown.collect::<Vec<_>>().into_iter()
    }

    /// Innermost first.
    pub fn functions(&self) -> impl DoubleEndedIterator<Item = &ChainFrame> {
        self.locations().flatten()
    }

    pub fn charged(&self) -> SiteStack {
        SiteStack {
            chain: self.chain.clone(),
            site: self.site,
        }
    }

    /// The charged function.
    pub fn site(&self) -> Option<&ChainFrame> {
        super::attribute::functions(&self.chain).nth(self.site?)
    }

    /// Hides what lies between the site and the allocator.
    pub fn begin_at_site(&mut self) {
        self.hidden = self.site.unwrap_or(0);
    }

    /// The row of a stack with nothing but sums. It begins at the function that called the allocator, if there is one.
    pub fn with_sums(chain: Chain, site: Option<usize>, image: usize, sums: Origin) -> Self {
        let caller = super::attribute::functions(&chain).position(|frame| !frame.family);
        Self {
            hidden: caller.unwrap_or(0),
            chain,
            site,
            call: "",
            image,
            sums,
            life: Life::default(),
            weight: 0,
            truncated: false,
        }
    }

    /// The row of a stack without counted blocks.
    pub fn without_sums(
        finished: &mut Finished<'_, '_>,
        image: usize,
        stack: StackId,
        call: &'static str,
    ) -> Self {
        let (chain, attribution) = finished.attribute(stack);
        Self {
            chain,
            hidden: 0,
            site: attribution.site,
            call,
            image,
            sums: Origin::default(),
            life: Life::default(),
            weight: 0,
            truncated: finished.events.stacks().root(stack) != StackId::COMPLETE_ROOT,
        }
    }
}

/// Collects the rows; with `COUNTERS_WILL_DO` also of counters, which have no `Life` and no share of the peak.
#[derive(Default)]
pub struct Stacks<const COUNTERS_WILL_DO: bool = false> {
    pub rows: Vec<StackRow>,
    /// The time of the highest peak in its image, and the length of that image's recording.
    pub peak_at_ns: u64,
    pub duration_ns: u64,
    images: usize,
    peak_bytes: u64,
    /// The index of the current image.
    image: ImageLives,
}

#[derive(Default)]
struct ImageLives {
    /// Allocations of each thread so far.
    made: FxHashMap<u32, u64>,
    /// By origin.
    lives: Vec<Life>,
    live_bytes: u64,
    peak_bytes: u64,
    /// In ticks.
    peak_at: u64,
    last: u64,
}

/// The thread that allocated a block, the number of this allocation in the thread, and the time.
#[derive(Clone, Copy, Default)]
pub struct Birth {
    pub thread: u32,
    number: u64,
    /// In ticks.
    time: u64,
}

impl ImageLives {
    fn life(&mut self, block: usize) -> &mut Life {
        if self.lives.len() <= block {
            self.lives.resize(block + 1, Life::default());
        }
        &mut self.lives[block]
    }
}

impl<const COUNTERS_WILL_DO: bool> Observer for Stacks<COUNTERS_WILL_DO> {
    type Note = Birth;
    const WILL_DO_WITH_COUNTERS: bool = COUNTERS_WILL_DO;

    fn event(&mut self, event: &Event, _events: &Events<'_>) {
        self.image.last = event.time;
    }

    fn made(&mut self, moment: Moment, made: &Made<'_, Birth>) -> Birth {
        let image = &mut self.image;
        let number = image.made.entry(moment.thread).or_default();
        *number += 1;
        let birth = Birth {
            thread: moment.thread,
            number: *number,
            time: moment.time,
        };
        image.life(made.origin.index()).made(made.size);
        image.live_bytes = image.live_bytes.saturating_add(made.size);
        if image.live_bytes > image.peak_bytes {
            image.peak_bytes = image.live_bytes;
            image.peak_at = moment.time;
        }
        birth
    }

    fn ended(&mut self, moment: Moment, _address: u64, block: &Block<Birth>, _how: End) {
        let image = &mut self.image;
        image.live_bytes = image.live_bytes.saturating_sub(block.size);
        let temporary = image.made.get(&block.note.thread) == Some(&block.note.number);
        let life = image.life(block.origin.index());
        life.ended(block.size);
        life.lived(moment.time.saturating_sub(block.note.time));
        if temporary {
            life.temporary += 1;
            life.temporary_bytes = life.temporary_bytes.saturating_add(block.size);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Birth>) {
        let mut own = std::mem::take(&mut self.image);
        live(&mut |_, block| {
            let age = own.last.saturating_sub(block.note.time);
            own.life(block.origin.index()).lived(age);
        });
        let clock = image.trace.clock();
        let ns = |ticks: u64| (ticks as f64 * clock.ns_per_tick) as u64;
        let highest = image.peak_bytes > self.peak_bytes;
        if highest || self.images == 0 {
            self.peak_bytes = image.peak_bytes;
            self.peak_at_ns = clock.since_start_ns(own.peak_at);
            self.duration_ns = image.duration_ns;
            for row in &mut self.rows {
                (row.sums.peak_bytes, row.sums.peak_blocks) = (0, 0);
            }
        }
        for (index, source) in image.sources.iter().enumerate() {
            let mut sums = image.origins[index].clone();
            if !highest {
                (sums.peak_bytes, sums.peak_blocks) = (0, 0);
            }
            let mut life = std::mem::take(own.life(index));
            life.lifetime_ns = ns(life.lifetime_ticks);
            let root = image.events.stacks().root(source.stack);
            self.rows.push(StackRow {
                chain: image.chain(source.stack),
                hidden: 0,
                site: source.site,
                call: source.kind_name,
                image: self.images,
                sums,
                life,
                weight: 0,
                truncated: root != StackId::COMPLETE_ROOT,
            });
        }
        self.images += 1;
    }
}
