//! All distinct stacks of a trace with what each asked for: what exports and pictures are made of.
//!
//! Memory grows with the distinct stacks of all images.

use larder_trace::StackId;
use rustc_hash::FxHashMap;

use super::heap::{Block, Origin};
use super::observe::{End, Finished, Made, Moment, Observer};
use super::resolve::Chain;

/// One stack and the function of the malloc family that it called, in one image.
#[derive(Debug)]
pub struct StackRow {
    /// Innermost first, the malloc family included.
    pub chain: Chain,
    /// The frame charged, counted over all functions of the chain from the innermost.
    pub site: Option<usize>,
    /// `malloc`, `operator new` …
    pub call: &'static str,
    /// Of the image, in the order in which the images were read.
    pub image: usize,
    /// `peak_bytes` is 0 unless the image had the highest peak of all.
    pub sums: Origin,
    /// Blocks that ended before their thread allocated again, and their bytes.
    pub temporary: u64,
    pub temporary_bytes: u64,
    pub truncated: bool,
}

/// Collects the rows.
#[derive(Default)]
pub struct Stacks {
    pub rows: Vec<StackRow>,
    images: usize,
    peak_bytes: u64,
    /// Allocations of each thread so far.
    made: FxHashMap<u32, u64>,
    temporary: Vec<(u64, u64)>,
}

impl Observer for Stacks {
    /// The thread, and which of its allocations this is.
    type Note = (u32, u64);

    fn made(&mut self, moment: Moment, _made: &Made<'_, Self::Note>) -> Self::Note {
        let count = self.made.entry(moment.thread).or_default();
        *count += 1;
        (moment.thread, *count)
    }

    fn ended(&mut self, _moment: Moment, _address: u64, block: &Block<Self::Note>, _how: End) {
        let (thread, number) = block.note;
        if self.made.get(&thread) != Some(&number) {
            return;
        }
        let index = block.origin.index();
        if self.temporary.len() <= index {
            self.temporary.resize(index + 1, (0, 0));
        }
        let (blocks, bytes) = &mut self.temporary[index];
        *blocks += 1;
        *bytes = bytes.saturating_add(block.size);
    }

    fn end_image(
        &mut self,
        image: &mut Finished<'_, '_>,
        _live: &mut dyn Iterator<Item = (u64, &Block<Self::Note>)>,
    ) {
        let highest = image.peak_bytes > self.peak_bytes;
        if highest {
            self.peak_bytes = image.peak_bytes;
            for row in &mut self.rows {
                row.sums.peak_bytes = 0;
            }
        }
        for (index, source) in image.sources.iter().enumerate() {
            let mut sums = image.origins[index].clone();
            if !highest {
                sums.peak_bytes = 0;
            }
            let (temporary, temporary_bytes) = self.temporary.get(index).copied().unwrap_or((0, 0));
            let root = image.events.stacks().root(source.stack);
            self.rows.push(StackRow {
                chain: image.chain(source.stack),
                site: source.site,
                call: source.kind_name,
                image: self.images,
                sums,
                temporary,
                temporary_bytes,
                truncated: root != StackId::COMPLETE_ROOT,
            });
        }
        self.images += 1;
        self.made.clear();
        self.temporary.clear();
    }
}
