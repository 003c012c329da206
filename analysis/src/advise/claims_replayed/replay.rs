//! The true events of a program: each block and buffer with its begin and end, found in one pass over
//! its calls. Shares no code with the heap and the observers of the tool.
//!
//! A *tick* is twice a call's number plus one; even ticks are just before the call: a block whose
//! address is returned again ended then.

use std::collections::HashMap;

use larder_trace::{AllocCall, Fingerprint};

use super::program::{Action, Call, Look, Place, PlaceId, Program};

pub type Tick = usize;

#[derive(Clone, Copy, Debug)]
pub struct Over {
    pub tick: Tick,
    pub thread: u32,
    /// Freed, neither by a realloc nor unrecorded.
    pub freed: bool,
}

/// The block that one call allocated.
#[derive(Clone, Debug)]
pub struct Block {
    pub origin: usize,
    pub thread: u32,
    pub call: usize,
    pub address: u64,
    pub size: u64,
    pub buffer: usize,
    pub over: Option<Over>,
    /// Its contents at its end.
    pub held: Option<Fingerprint>,
}

impl Block {
    pub fn made(&self) -> Tick {
        2 * self.call + 1
    }

    /// The maximum if it is live at the end.
    pub fn ended(&self) -> Tick {
        self.over.map_or(Tick::MAX, |over| over.tick)
    }
}

/// An allocation and everything that realloc made of it.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub origin: usize,
    pub thread: u32,
    pub call: usize,
    pub over: Option<Over>,
    pub sizes: Vec<(Tick, u64)>,
}

impl Buffer {
    pub fn begun(&self) -> Tick {
        2 * self.call + 1
    }

    pub fn lives(&self, tick: Tick) -> bool {
        self.begun() <= tick && self.over.is_none_or(|over| over.tick > tick)
    }

    pub fn largest(&self) -> u64 {
        self.sizes.iter().map(|(_, size)| *size).max().unwrap_or(0)
    }
}

pub struct Replay {
    pub places: Vec<Place>,
    pub calls: Vec<Call>,
    pub blocks: Vec<Block>,
    pub buffers: Vec<Buffer>,
    /// By call: the previous one of its thread.
    pub before: Vec<Option<usize>>,
    /// By call: the block that it allocated, and the one that it freed.
    pub made: Vec<Option<usize>>,
    pub ended: Vec<Option<usize>>,
    look: Option<Look>,
    live: HashMap<u64, usize>,
    origins: HashMap<(Vec<PlaceId>, AllocCall), usize>,
}

impl Replay {
    pub fn of(program: Program) -> Self {
        let calls = program.calls.clone();
        let mut replay = Self {
            places: program.places,
            before: Vec::new(),
            made: vec![None; calls.len()],
            ended: vec![None; calls.len()],
            blocks: Vec::new(),
            buffers: Vec::new(),
            look: program.look,
            live: HashMap::new(),
            origins: HashMap::new(),
            calls: Vec::new(),
        };
        let mut last: HashMap<u32, usize> = HashMap::new();
        for (number, call) in calls.iter().enumerate() {
            replay.before.push(last.insert(call.thread, number));
            replay.step(number, call);
        }
        replay.calls = calls;
        for (address, held) in program.left {
            replay.blocks[replay.live[&address]].held = Some(held);
        }
        replay
    }

    fn step(&mut self, number: usize, call: &Call) {
        match call.action {
            Action::Make {
                call: name,
                address,
                size,
            } => {
                let origin = self.origin(call, name);
                if address != 0 {
                    self.begin(number, call, origin, address, size);
                }
            }
            Action::End { address } => {
                if let Some(block) = self.live.remove(&address) {
                    self.over(block, number, call.thread, true);
                    self.blocks[block].held = call.held;
                }
            }
            Action::Resize { old, address, size } => {
                let origin = self.origin(call, AllocCall::Realloc);
                if address == 0 && (size > 0 || old == 0) {
                    return;
                }
                let from = self.live.remove(&old);
                if let Some(from) = from {
                    self.over(from, number, call.thread, size == 0);
                }
                match from.filter(|_| size > 0) {
                    Some(from) => {
                        let buffer = self.blocks[from].buffer;
                        self.block(number, call, origin, (address, size), buffer);
                        self.buffers[buffer].sizes.push((2 * number + 1, size));
                    }
                    None if address != 0 => self.begin(number, call, origin, address, size),
                    None => {}
                }
            }
        }
    }

    fn origin(&mut self, call: &Call, name: AllocCall) -> usize {
        let next = self.origins.len();
        *self
            .origins
            .entry((call.stack.clone(), name))
            .or_insert(next)
    }

    fn begin(&mut self, number: usize, call: &Call, origin: usize, address: u64, size: u64) {
        let buffer = self.buffers.len();
        self.buffers.push(Buffer {
            origin,
            thread: call.thread,
            call: number,
            over: None,
            sizes: vec![(2 * number + 1, size)],
        });
        self.block(number, call, origin, (address, size), buffer);
    }

    fn block(
        &mut self,
        number: usize,
        call: &Call,
        origin: usize,
        (address, size): (u64, u64),
        buffer: usize,
    ) {
        let block = self.blocks.len();
        if let Some(lost) = self.live.insert(address, block) {
            let over = Over {
                tick: 2 * number,
                thread: 0,
                freed: false,
            };
            self.blocks[lost].over = Some(over);
            let lost = self.blocks[lost].buffer;
            self.buffers[lost].over = Some(over);
        }
        self.made[number] = Some(block);
        self.blocks.push(Block {
            origin,
            thread: call.thread,
            call: number,
            address,
            size,
            buffer,
            over: None,
            held: None,
        });
    }

    /// Whether a block that is live at the end is lost.
    pub fn is_lost(&self, block: &Block) -> bool {
        let is_there = |look: &Look| block.call < look.calls && look.lost.contains(&block.address);
        self.look.as_ref().is_some_and(is_there)
    }

    /// A call ends a block, and its buffer unless it is a realloc.
    fn over(&mut self, block: usize, number: usize, thread: u32, freed: bool) {
        self.ended[number] = Some(block);
        let over = Over {
            tick: 2 * number + 1,
            thread,
            freed,
        };
        self.blocks[block].over = Some(over);
        if freed {
            let buffer = self.blocks[block].buffer;
            self.buffers[buffer].over = Some(over);
        }
    }

    /// The function names at a place, outermost first, with their lines.
    pub fn functions(&self, place: PlaceId) -> impl Iterator<Item = &(usize, u32)> {
        self.places[place].iter().rev()
    }
}
