//! The data of the page beyond the analysis: stacks, timeline, and sizes of blocks.

use larder_trace::{Event, Events, Trace};

use super::timeline::SITES;
use crate::reading::heap::Block;
use crate::reading::observe::{End, Finished, Live, Made, Moment, Observer};
use crate::reading::stacks::Stacks;
use crate::reading::timeline::TimelineObserver;

type Note = <Stacks as Observer>::Note;

/// Calls and bytes of blocks whose size has this many binary digits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeClass {
    pub calls: u64,
    pub bytes: u64,
}

pub struct Gathered {
    pub stacks: Stacks,
    pub timeline: TimelineObserver,
    /// By the number of binary digits of the size: 0, 1, 2–3, 4–7 …
    pub sizes: [SizeClass; 65],
}

impl Gathered {
    pub fn new() -> Self {
        Self {
            stacks: Stacks::default(),
            timeline: TimelineObserver::new(SITES),
            sizes: [SizeClass::default(); 65],
        }
    }
}

impl Observer for Gathered {
    type Note = Note;
    const LOOKS_AGAIN: bool = true;

    fn begin_image(&mut self, trace: &Trace) {
        self.timeline.begin_image(trace);
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        self.timeline.event(event, events);
        self.stacks.event(event, events);
    }

    fn made(&mut self, moment: Moment, made: &Made<'_, Note>) -> Note {
        let class = &mut self.sizes[(u64::BITS - made.size.leading_zeros()) as usize];
        class.calls += 1;
        class.bytes = class.bytes.saturating_add(made.size);
        self.timeline.add(made.origin, made.size);
        self.stacks.made(moment, made)
    }

    fn ended(&mut self, moment: Moment, address: u64, block: &Block<Note>, how: End) {
        self.timeline.remove(block.origin, block.size);
        self.stacks.ended(moment, address, block, how);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Note>) {
        self.timeline.finish(image);
        self.stacks.end_image(image, live);
    }
}
