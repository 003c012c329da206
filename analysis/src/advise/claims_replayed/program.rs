//! Random programs: the requests of each, call by call, with thread and stack.
//!
//! A few *scenes* are drawn for a program, each a function with lines that allocate and free blocks in
//! one pattern. They run many times, on any thread and interleaved, so that patterns meet, break and
//! share lines. A seed determines a program.

use std::collections::{BTreeSet, HashMap};

use fastrand::Rng;
use larder_trace::{AllocCall, Fingerprint};

/// The functions at one return address, innermost first; more than one where calls are inlined.
pub type Place = Vec<(usize, u32)>;
pub type PlaceId = usize;

pub const FUNCTIONS: [&str; 10] = [
    "main", "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "xmalloc", "_start",
];
const MAIN: usize = 0;
const XMALLOC: usize = 8;
const START: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Address 0: the call failed.
    Make {
        call: AllocCall,
        address: u64,
        size: u64,
    },
    End {
        address: u64,
    },
    Resize {
        old: u64,
        address: u64,
        size: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Call {
    pub thread: u32,
    /// Outermost first.
    pub stack: Vec<PlaceId>,
    pub action: Action,
    /// The contents of the freed block, if the trace has them.
    pub held: Option<Fingerprint>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// This many are allocated and freed in one call.
    Turn(usize),
    /// This many are kept from call to call.
    Slot(usize),
    /// Blocks that are allocated and freed together.
    Group(usize),
    Row(usize),
    /// Blocks of this many calls are freed together.
    Sweep(usize),
    Leak,
    Resized,
    Copied,
    Foreign,
    Cache,
    Noise,
}

#[derive(Clone, Debug)]
struct Scene {
    kind: Kind,
    function: usize,
    /// From the thread's own frame to the function's.
    entry: Vec<PlaceId>,
    /// Frames below that, which allocate.
    makes: [Vec<PlaceId>; 3],
    ends: Vec<PlaceId>,
    /// Its caller frees the blocks.
    caller_ends: bool,
    calls: [AllocCall; 3],
    sizes: (u64, u64),
    backward: bool,
    held: Vec<Vec<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    size: u64,
    live: bool,
}

/// The lost blocks, at a check after this many calls.
#[derive(Clone, Debug)]
pub struct Look {
    pub calls: usize,
    /// Addresses, rising.
    pub lost: Vec<u64>,
}

struct Thread {
    /// The frames of the running function, its own call last; and its id.
    frames: Vec<PlaceId>,
    function: usize,
}

pub struct Program {
    pub places: Vec<Place>,
    pub calls: Vec<Call>,
    /// Contents of the blocks live at the end, by address.
    pub left: Vec<(u64, Fingerprint)>,
    /// Draws contents of blocks, if the trace has them.
    contents: Option<Rng>,
    pub look: Option<Look>,
    rng: Rng,
    numbers: HashMap<Place, PlaceId>,
    threads: Vec<Thread>,
    scenes: Vec<Scene>,
    blocks: Vec<Block>,
    by_address: HashMap<u64, usize>,
    free: Vec<u64>,
    next_address: u64,
    /// Calls fail, frees are lost, other threads free blocks.
    rough: bool,
    /// In percent: another scene runs within one.
    midst: u32,
    depth: usize,
    lines: u32,
}

const DEEPEST: usize = 3;

impl Program {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut program = Self {
            places: Vec::new(),
            calls: Vec::new(),
            left: Vec::new(),
            contents: seed.is_multiple_of(3).then(|| Rng::with_seed(!seed)),
            look: None,
            numbers: HashMap::new(),
            threads: Vec::new(),
            scenes: Vec::new(),
            blocks: Vec::new(),
            by_address: HashMap::new(),
            free: Vec::new(),
            next_address: 0x10_0000,
            rough: rng.u32(..4) == 0,
            midst: [0, 0, 3, 20][rng.usize(..4)],
            depth: 0,
            lines: [4, 30, 300][rng.usize(..3)],
            rng,
        };
        program.begin();
        program.run();
        program.tell_what_is_left();
        program.look();
        program
    }

    /// Contents of blocks, and what was lost.
    pub fn forget_all_but_calls(&mut self) {
        self.calls.iter_mut().for_each(|call| call.held = None);
        self.left.clear();
        self.look = None;
    }

    /// A few contents are shared by many blocks, most are unique.
    fn held(&mut self) -> Option<Fingerprint> {
        let unique = self.calls.len() as u64 + 10;
        let rng = self.contents.as_mut()?;
        let reported = rng.u32(..20) > 0;
        let chosen = [
            (Fingerprint::DENSE, rng.u32(..20) > 0),
            (Fingerprint::UNIFORM, rng.u32(..20) == 0),
            (Fingerprint::NO_ZEROS, self.lines > 4),
        ];
        let flags = chosen.into_iter().filter(|(_, set)| *set);
        let flags = flags.fold(0, |all, (flag, _)| all | flag);
        let hash = match rng.u32(..8) {
            0..6 => rng.u64(..3),
            _ => unique,
        };
        reported.then_some(Fingerprint { hash, flags })
    }

    fn tell_what_is_left(&mut self) {
        let mut live: Vec<u64> = self.by_address.keys().copied().collect();
        live.sort_unstable();
        for address in live {
            if let Some(held) = self.held() {
                self.left.push((address, held));
            }
        }
    }

    /// In every third program some live blocks are lost, mostly at the end.
    fn look(&mut self) {
        if self.rng.u32(..3) > 0 {
            return;
        }
        let all = self.calls.len();
        let calls = match self.rng.u32(..4) {
            0 => self.rng.usize(..=all),
            _ => all,
        };
        let mut live = BTreeSet::new();
        for call in &self.calls[..calls] {
            match call.action {
                Action::Make { address, .. } => _ = live.insert(address),
                Action::End { address } => _ = live.remove(&address),
                Action::Resize { old, address, size } => {
                    if address != 0 || (size == 0 && old != 0) {
                        live.remove(&old);
                    }
                    live.insert(address);
                }
            }
        }
        live.remove(&0);
        let one_in = self.rng.u32(1..4);
        live.retain(|_| self.rng.u32(..one_in) == 0);
        let lost = live.into_iter().collect();
        self.look = Some(Look { calls, lost });
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    fn place(&mut self, place: Place) -> PlaceId {
        let next = self.places.len();
        let number = *self.numbers.entry(place.clone()).or_insert(next);
        if number == next {
            self.places.push(place);
        }
        number
    }

    fn line(&mut self) -> u32 {
        self.rng.u32(1..=self.lines)
    }

    fn begin(&mut self) {
        let count = [1, 1, 2, 3][self.rng.usize(..4)];
        for number in 0..count {
            let function = if number == 0 { MAIN } else { 7 };
            let start = self.place(vec![(START, 1)]);
            self.threads.push(Thread {
                frames: vec![start],
                function,
            });
        }
        // Several functions called through one pointer.
        let dispatch = self.chance(15).then(|| self.line());
        for _ in 0..self.rng.usize(2..=6) {
            let scene = self.scene(dispatch);
            self.scenes.push(scene);
        }
    }

    fn kind(&mut self) -> Kind {
        match self.rng.u32(..17) {
            0..4 => Kind::Turn(self.rng.usize(1..=3)),
            4..6 => Kind::Slot(self.rng.usize(1..=3)),
            6..9 => Kind::Group(self.rng.usize(2..=3)),
            9 => Kind::Row(self.rng.usize(4..=30)),
            10 => Kind::Leak,
            11 => Kind::Resized,
            12 => Kind::Copied,
            13 => Kind::Foreign,
            14 => Kind::Cache,
            15 => Kind::Sweep(self.rng.usize(9..=12)),
            _ => Kind::Noise,
        }
    }

    fn scene(&mut self, dispatch: Option<u32>) -> Scene {
        let function = self.rng.usize(1..7);
        let line = dispatch.unwrap_or_else(|| self.line());
        let mut entry = vec![self.place(vec![(MAIN, line)])];
        if dispatch.is_none() && self.chance(40) {
            let caller = (self.rng.usize(1..7), self.line());
            entry.push(self.place(vec![caller]));
        }
        let makes = [(); 3].map(|()| self.make_at(function));
        let ends = self.end_at(function);
        let call = |rng: &mut Rng| match rng.u32(..10) {
            0..6 => AllocCall::Malloc,
            6..8 => AllocCall::Calloc,
            8 => AllocCall::Strdup,
            _ => AllocCall::Realloc,
        };
        let calls = [(); 3].map(|()| call(&mut self.rng));
        let smallest = [1, 8, 24, 100, 5000][self.rng.usize(..5)];
        let spread = [0, 0, 7, 3000][self.rng.usize(..4)];
        Scene {
            kind: self.kind(),
            function,
            entry,
            makes,
            ends,
            caller_ends: self.chance(12),
            calls,
            sizes: (smallest, smallest + spread),
            backward: self.rng.bool(),
            held: Vec::new(),
        }
    }

    fn make_at(&mut self, function: usize) -> Vec<PlaceId> {
        let (line, other) = (self.line(), self.line());
        let helper = self.rng.usize(1..7);
        let below = match self.rng.u32(..20) {
            0..10 => vec![vec![(function, line)]],
            10..13 => vec![vec![(function, line)], vec![(helper, other)]],
            13..16 => vec![vec![(helper, other), (function, line)]],
            16..18 => vec![vec![(function, line)], vec![(XMALLOC, 1)]],
            18 => vec![
                vec![(function, line)],
                vec![(helper, other)],
                vec![(function, line)],
            ],
            // It jumps to the allocating function.
            _ => vec![vec![(helper, other)]],
        };
        below.into_iter().map(|place| self.place(place)).collect()
    }

    fn end_at(&mut self, function: usize) -> Vec<PlaceId> {
        let (line, other) = (self.line() + 3, self.line());
        let helper = self.rng.usize(1..7);
        let below = match self.rng.u32(..20) {
            0..10 => vec![vec![(function, line)]],
            10..13 => vec![vec![(function, line)], vec![(helper, other)]],
            13..16 => vec![vec![(helper, other), (function, line)]],
            // It jumps to free.
            16..19 => vec![],
            _ => vec![vec![(helper, other)]],
        };
        below.into_iter().map(|place| self.place(place)).collect()
    }

    fn run(&mut self) {
        let long = self.rng.u32(..20) == 0;
        let most = match long {
            true => self.rng.usize(1500..3200),
            false => [60, 150, 400][self.rng.usize(..3)],
        };
        let mut favourite = self.rng.usize(..self.scenes.len());
        if long && self.rng.bool() {
            favourite = 0;
            self.scenes[0].kind = [Kind::Cache, Kind::Cache, Kind::Foreign][self.rng.usize(..3)];
            self.scenes[0].sizes = (100, 100 + self.rng.u64(..50));
            self.scenes[0].calls = [AllocCall::Malloc; 3];
            self.scenes[0].makes[1] = self.scenes[0].makes[0].clone();
        }
        while self.calls.len() < most {
            let thread = self.rng.usize(..self.threads.len());
            let often = if long { 9 } else { 5 };
            let scene = match self.rng.u32(..10) < often {
                true => favourite,
                false => self.rng.usize(..self.scenes.len()),
            };
            self.play(scene, thread);
        }
        self.midst = 0;
        if !long && self.rng.bool() {
            for scene in 0..self.scenes.len() {
                let frames = self.enter(scene, 0);
                while let Some(group) = self.scenes[scene].held.pop() {
                    self.end_all(scene, 0, &group);
                }
                self.leave(0, frames);
            }
        }
    }

    /// Puts a scene's function on a thread's stack; returns the former stack.
    fn enter(&mut self, scene: usize, thread: usize) -> (Vec<PlaceId>, usize) {
        let frames = self.threads[thread].frames.clone();
        let function = self.threads[thread].function;
        let mut entry = self.scenes[scene].entry.clone();
        if frames.len() > 1 {
            entry[0] = self.place(vec![(function, 9)]);
        }
        self.threads[thread].frames.extend(entry);
        self.threads[thread].function = self.scenes[scene].function;
        (frames, function)
    }

    fn leave(&mut self, thread: usize, (frames, function): (Vec<PlaceId>, usize)) {
        self.threads[thread].frames = frames;
        self.threads[thread].function = function;
    }

    fn play(&mut self, scene: usize, thread: usize) {
        self.depth += 1;
        let frames = self.enter(scene, thread);
        let over = self.act(scene, thread);
        if !self.scenes[scene].caller_ends {
            self.end_all(scene, thread, &over);
        }
        self.leave(thread, frames);
        if self.scenes[scene].caller_ends {
            self.end_all(scene, thread, &over);
        }
        self.depth -= 1;
    }

    fn meanwhile(&mut self) {
        if self.depth < DEEPEST && self.chance(self.midst) {
            let scene = self.rng.usize(..self.scenes.len());
            let thread = self.rng.usize(..self.threads.len());
            self.play(scene, thread);
        }
    }

    /// Runs a scene; returns the blocks that it frees last.
    fn act(&mut self, scene: usize, thread: usize) -> Vec<usize> {
        match self.scenes[scene].kind {
            Kind::Turn(count) => {
                let made = self.make_all(scene, thread, count);
                if self.chance(10) {
                    self.resize_any(scene, thread, &made);
                }
                self.meanwhile();
                made
            }
            Kind::Slot(count) => self.keep(scene, thread, 1, count),
            Kind::Group(count) => self.keep(scene, thread, count, 5),
            Kind::Row(count) => {
                let made = self.make_row(scene, thread, count);
                match self.rng.u32(..4) {
                    0 => self.scenes[scene].held.push(made),
                    _ => return made,
                }
                Vec::new()
            }
            Kind::Leak => {
                let made = self.make_all(scene, thread, 1);
                if self.chance(12) { Vec::new() } else { made }
            }
            Kind::Sweep(calls) => {
                let made = self.make_all(scene, thread, 2);
                self.scenes[scene].held.push(made);
                match self.scenes[scene].held.len() < calls {
                    true => Vec::new(),
                    false => std::mem::take(&mut self.scenes[scene].held).concat(),
                }
            }
            Kind::Resized => self.grow_in_place(scene, thread),
            Kind::Copied => self.grow_by_copies(scene, thread),
            Kind::Foreign => self.hand_over(scene, thread),
            Kind::Cache => {
                let made = self.make_all(scene, thread, 2);
                self.scenes[scene].held.push(made);
                let held = self.scenes[scene].held.len();
                if self.chance(30) {
                    let picked = self.rng.usize(..held);
                    return self.scenes[scene].held.swap_remove(picked);
                }
                Vec::new()
            }
            Kind::Noise => {
                let any = self.rng.usize(..self.blocks.len().max(1));
                if self.rng.bool() && any < self.blocks.len() {
                    if self.rough && self.chance(50) {
                        return vec![any];
                    }
                    return self.blocks[any + 1..]
                        .is_empty()
                        .then_some(any)
                        .into_iter()
                        .collect();
                }
                self.make_all(scene, thread, 1)
            }
        }
    }

    fn keep(&mut self, scene: usize, thread: usize, count: usize, most: usize) -> Vec<usize> {
        let before = self.scenes[scene].backward;
        let oldest = |program: &mut Self| {
            let held = &mut program.scenes[scene].held;
            match held.len() >= most {
                true => held.remove(0),
                false => Vec::new(),
            }
        };
        let over = oldest(self);
        if before {
            self.end_all(scene, thread, &over);
        }
        let made = self.make_all(scene, thread, count);
        self.scenes[scene].held.push(made);
        if before { Vec::new() } else { over }
    }

    fn hand_over(&mut self, scene: usize, thread: usize) -> Vec<usize> {
        let made = self.make_all(scene, thread, 4);
        if self.chance(15) {
            let other = self.rng.usize(..self.threads.len());
            self.resize_any(scene, other, &made);
        }
        self.scenes[scene].held.push(made);
        if self.scenes[scene].held.len() > 2 {
            let over = self.scenes[scene].held.remove(0);
            let other = (thread + 1) % self.threads.len();
            self.end_all(scene, other, &over);
        }
        Vec::new()
    }

    fn grow_in_place(&mut self, scene: usize, thread: usize) -> Vec<usize> {
        let made = self.make_all(scene, thread, 1);
        let Some(block) = made.first().copied() else {
            return made;
        };
        let at = self.scenes[scene].makes[1].clone();
        let slow = self.rng.bool();
        for _ in 0..self.rng.usize(0..10) {
            let size = self.blocks[block].size;
            let size = match self.rng.u32(..12) {
                0 => size / 2,
                1 if self.rough => 0,
                _ if slow => size + 1 + size / 8,
                _ => (size * 2).max(1),
            };
            self.resize(thread, &at, block, size);
            self.meanwhile();
        }
        self.kept(scene, made)
    }

    fn grow_by_copies(&mut self, scene: usize, thread: usize) -> Vec<usize> {
        let mut made = self.make_all(scene, thread, 1);
        let at = self.scenes[scene].makes[1].clone();
        let call = self.scenes[scene].calls[1];
        for _ in 0..self.rng.usize(0..7) {
            let Some(block) = made.pop() else { break };
            let size = self.blocks[block].size * 2 + 1;
            made.extend(self.make(thread, &at, call, size));
            let ends = self.scenes[scene].ends.clone();
            self.end(thread, &ends, block);
            if let Some(block) = made.first().copied().filter(|_| self.rng.u32(..20) == 0) {
                self.resize(thread, &at, block, size * 2);
            }
        }
        self.kept(scene, made)
    }

    /// Some of a function's blocks outlive it.
    fn kept(&mut self, scene: usize, made: Vec<usize>) -> Vec<usize> {
        if self.chance(20) {
            self.scenes[scene].held.push(made);
            return Vec::new();
        }
        made
    }

    fn size(&mut self, scene: usize) -> u64 {
        let (least, most) = self.scenes[scene].sizes;
        self.rng.u64(least..=most)
    }

    fn make_all(&mut self, scene: usize, thread: usize, count: usize) -> Vec<usize> {
        let mut made = Vec::new();
        for role in 0..count {
            let (role, size) = (role.min(2), self.size(scene));
            let at = self.scenes[scene].makes[role].clone();
            let call = self.scenes[scene].calls[role];
            made.extend(self.make(thread, &at, call, size + 16 * role as u64));
            self.meanwhile();
        }
        made
    }

    fn make_row(&mut self, scene: usize, thread: usize, count: usize) -> Vec<usize> {
        let (size, at) = (
            self.scenes[scene].sizes.0,
            self.scenes[scene].makes[0].clone(),
        );
        let call = self.scenes[scene].calls[0];
        let made = (0..count).filter_map(|_| {
            self.meanwhile();
            self.make(thread, &at, call, size)
        });
        made.collect()
    }

    fn resize_any(&mut self, scene: usize, thread: usize, made: &[usize]) {
        let at = self.scenes[scene].makes[2].clone();
        if let Some(block) = made.first().copied() {
            let size = self.blocks[block].size;
            let to = self.rng.u64(1..=size * 3 + 1);
            self.resize(thread, &at, block, to);
        }
    }

    fn end_all(&mut self, scene: usize, thread: usize, blocks: &[usize]) {
        let mut blocks = blocks.to_vec();
        if self.scenes[scene].backward {
            blocks.reverse();
        }
        for block in blocks {
            let ends = self.scenes[scene].ends.clone();
            self.end(thread, &ends, block);
            self.meanwhile();
        }
    }

    fn call(&mut self, thread: usize, below: &[PlaceId], action: Action) {
        let mut stack = self.threads[thread].frames.clone();
        stack.extend_from_slice(below);
        self.calls.push(Call {
            thread: thread as u32 + 1,
            stack,
            action,
            held: None,
        });
    }

    fn address(&mut self) -> u64 {
        if self.rough && self.chance(1) && !self.by_address.is_empty() {
            // The free of the former block is lost.
            let mut live: Vec<u64> = self.by_address.keys().copied().collect();
            live.sort_unstable();
            return live[self.rng.usize(..live.len())];
        }
        if self.chance(70)
            && let Some(address) = self.free.pop()
        {
            return address;
        }
        self.next_address += 0x1000;
        self.next_address
    }

    fn begun(&mut self, address: u64, size: u64) -> usize {
        let block = self.blocks.len();
        if let Some(replaced) = self.by_address.insert(address, block) {
            self.blocks[replaced].live = false;
        }
        self.blocks.push(Block {
            address,
            size,
            live: true,
        });
        block
    }

    fn make(
        &mut self,
        thread: usize,
        below: &[PlaceId],
        call: AllocCall,
        size: u64,
    ) -> Option<usize> {
        let failed = self.rough && self.chance(2);
        let address = if failed { 0 } else { self.address() };
        let action = match call {
            AllocCall::Realloc => Action::Resize {
                old: 0,
                address,
                size,
            },
            call => Action::Make {
                call,
                address,
                size,
            },
        };
        self.call(thread, below, action);
        (!failed).then(|| self.begun(address, size))
    }

    fn end(&mut self, thread: usize, below: &[PlaceId], block: usize) {
        let Block { address, live, .. } = self.blocks[block];
        let lost = self.rough && self.chance(1);
        if !live || lost {
            return;
        }
        self.call(thread, below, Action::End { address });
        let held = self.held();
        self.calls.last_mut().expect("the end").held = held;
        self.blocks[block].live = false;
        self.by_address.remove(&address);
        self.free.push(address);
        if self.rough && self.chance(2) {
            self.call(thread, below, Action::End { address: 0 });
        }
    }

    fn resize(&mut self, thread: usize, below: &[PlaceId], block: usize, size: u64) {
        let Block { address, live, .. } = self.blocks[block];
        if !live {
            return;
        }
        let new = match self.rng.u32(..10) {
            0 if self.rough => 0,
            1..5 => address,
            _ if size == 0 => 0,
            _ => self.address(),
        };
        let action = Action::Resize {
            old: address,
            address: new,
            size,
        };
        self.call(thread, below, action);
        if new == 0 && size > 0 {
            return;
        }
        self.by_address.remove(&address);
        if new == 0 {
            self.blocks[block].live = false;
            self.free.push(address);
            return;
        }
        if let Some(replaced) = self.by_address.insert(new, block) {
            self.blocks[replaced].live = false;
        }
        if new != address {
            self.free.push(address);
        }
        (self.blocks[block].address, self.blocks[block].size) = (new, size);
    }
}
