//! A thread records into a stream, which a later thread takes over after its end (`registry`).
//!
//! Thread safety: only the thread that owns a stream writes to it; no thread does between its retirement
//! and the next owner.
//!
//! Invariant: a definition precedes the first record that refers to it.

mod merged;
mod registry;

use larder_trace::codec::{
    CallRecord, Class, Link, MAX_DEFINITION_BYTES, MAX_MARK_NAME_BYTES, Predictor, ROOT_COMPLETE,
    ROOT_TRUNCATED, SystemCallRecord, max_nodes_bytes,
};
use larder_trace::layout::{Contents, Slot};
use larder_trace::{Fingerprint, StopReason};

use crate::arch::{self, Caller};
use crate::chunk::Live;
use crate::counters::{self, Tally};
use crate::cpu::{Sample, Sampler};
use crate::familiar::Familiars;
use crate::intern::{Found, Interned};
use crate::map::{self, Snapshot};
use crate::marks::MarkNames;
use crate::registers::Registers;
use crate::walk::{Walked, Walker};
use crate::{clock, cpu, file, real, stack, state, sys};

use merged::Merged;
pub use registry::{after_fork, await_writers, forget_threads, set_aside};
use registry::{make, of_earlier_recording, take_retired, while_recording};

pub struct Stream {
    /// The next in the registry.
    next: *mut Stream,
    /// The next among the retired.
    next_retired: *mut Stream,
    is_retired: bool,
    /// The recording that it belongs to.
    recording: u32,
    tid: u32,
    generation: u32,
    live: Live,
    tally: Tally,
    predictor: Predictor,
    interned: Interned,
    marks: MarkNames,
    walker: Walker,
    familiars: Familiars,
    merged: Merged,
    /// A stack to work on when the thread's is small; null until then.
    own_stack: *mut u8,
    /// The thread's; null if its processor time is not sampled.
    sampler: *mut Sampler,
}

/// A hook's description of a call.
pub struct Call {
    pub class: Class,
    pub code: u8,
    pub time: u64,
    pub address: usize,
    pub size: usize,
    pub extra: usize,
    pub begin: u64,
    pub old: usize,
}

/// What the encoder may write.
const RECORD_ROOM: usize = 128;
/// Signal handlers may run on it, too.
const OWN_STACK_BYTES: usize = 256 << 10;
/// A system call of malloc's is made this near the end of the stack: by a function of libc's.
const INNER_FRAMES: usize = 4;
/// Frames in one record of nodes.
const NODES_AT_ONCE: usize = 64;

/// The calling thread's stream; makes one or takes one over if it has none. Without memory or room in the
/// file, stops the recording and returns null.
#[cold]
#[inline(never)]
pub fn attach(caller_sp: usize) -> *mut Stream {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    let recording = state::recording();
    if recording == 0 {
        return std::ptr::null_mut();
    }
    let mut stream = of_earlier_recording(local.stream);
    if stream.is_null() {
        stream = take_retired();
    }
    if stream.is_null() {
        stream = make(recording);
    }
    if stream.is_null() {
        return stream;
    }
    if real::is_loaded_later() {
        stack::note_thread();
    }
    // SAFETY: the thread's own, just made or taken, so no other thread uses it.
    let begun = unsafe { &mut *stream };
    begun.begin_recording(recording);
    begun.walker.forget();
    let mut done = false;
    begun.work(caller_sp, |stream| {
        done = while_recording(recording, || stream.begin_thread()).unwrap_or(false);
    });
    if !done {
        return std::ptr::null_mut();
    }
    local.stream = stream;
    local.joined = recording + 1;
    state::watch_thread_end(stream);
    begun.sampler = cpu::begin_thread(local);
    stream
}

/// The thread is ending. It keeps its stream until it has ended; then another may take it.
pub fn retire(stream: *mut Stream) {
    // SAFETY: the calling thread's own stream.
    unsafe {
        (*stream).sampler = std::ptr::null_mut();
        (*stream).end_thread();
    };
    set_aside(stream);
}

/// At the program's end: seals the open chunks of the calling thread and of ended ones. Those of other
/// threads are in the file uncompressed.
pub fn seal_at_exit(own: *mut Stream) {
    let mut next = own;
    loop {
        // SAFETY: the calling thread's own stream, or one whose thread has ended, or null.
        if let Some(stream) = unsafe { next.as_mut() } {
            stream.finish();
        }
        next = take_retired();
        if next.is_null() {
            return;
        }
    }
}

fn out_of_memory<T>() -> Option<T> {
    state::stop(StopReason::NoMemory, libc::ENOMEM);
    None
}

impl Stream {
    /// Forgets what belongs to an earlier recording: its file has the chunk.
    fn begin_recording(&mut self, recording: u32) {
        if self.recording == recording {
            return;
        }
        self.recording = recording;
        self.generation = 0;
        self.live.abandon();
        self.predictor = Predictor::new();
        self.interned.release();
        self.interned = Interned::new();
        self.marks.release();
        self.walker.end();
        self.familiars.forget();
        self.merged.release();
        self.merged = Merged::new();
    }

    /// Takes the stream over for the calling thread.
    fn begin_thread(&mut self) -> bool {
        let fresh = !self.live.is_open();
        if fresh && (!self.live.open() || (counters::are_on() && !self.tally.open())) {
            return false;
        }
        self.tid = sys::thread_id();
        self.walker.learn_rules();
        self.familiars.forget();
        let time = clock::now();
        if fresh {
            self.begin_chunk(time);
        }
        let tid = self.tid;
        self.define_with(|predictor, out| predictor.encode_thread(out, tid, time))
    }

    fn end_thread(&mut self) {
        self.tally.tell_live();
        let time = clock::now();
        self.define_with(|predictor, out| predictor.encode_thread_end(out, time));
    }

    fn begin_chunk(&mut self, time: u64) {
        self.live.begin(Contents {
            tid: self.tid,
            first_node: self.interned.next_node(),
            first_site: self.interned.next_site(),
            first_frame: self.interned.next_frame(),
            generation: self.generation,
            first_time: time,
            last_time: time,
            ..Contents::default()
        });
        self.predictor.begin_chunk(time, self.interned.next_node());
    }

    /// Seals the chunk, and begins a small one for the few records that may follow.
    fn finish(&mut self) {
        self.tally.tell_live();
        let time = self.predictor.time();
        while_recording(self.recording, || {
            if self.live.is_open() && self.live.seal(time) {
                self.live.shrink();
                self.begin_chunk(time);
            }
        });
    }

    /// Makes sure that `bytes` fit.
    #[inline]
    fn make_room(&mut self, bytes: usize) -> bool {
        self.live.room() >= bytes || self.make_room_slow()
    }

    #[cold]
    #[inline(never)]
    fn make_room_slow(&mut self) -> bool {
        let time = self.predictor.time();
        while_recording(self.recording, || {
            if !self.live.is_open() || !self.live.seal(time) {
                return false;
            }
            self.live.enlarge();
            self.begin_chunk(time);
            state::is_recording()
        })
        .unwrap_or(false)
    }

    /// Writes a definition.
    fn define_with(
        &mut self,
        encode: impl FnOnce(&mut Predictor, &mut [u8]) -> Option<usize>,
    ) -> bool {
        if !self.make_room(MAX_DEFINITION_BYTES) {
            return false;
        }
        match encode(&mut self.predictor, self.live.tail()) {
            Some(bytes) => self.live.commit(bytes, false),
            None => state::stop(StopReason::Internal, 0),
        }
        true
    }

    /// Records a call.
    #[inline]
    pub fn call(&mut self, caller: Caller, call: &Call) {
        if counters::are_on() && call.class == Class::Free {
            self.tally.freed(call.code, call.address);
        } else if self.walker.has_room(caller.sp) {
            self.call_here(caller, call);
        } else {
            self.work_on_own_stack(|stream| stream.call_here(caller, call));
        }
    }

    /// Runs a function on a stack with enough room.
    fn work(&mut self, sp: usize, act: impl FnOnce(&mut Stream)) {
        if self.walker.has_room(sp) {
            act(self)
        } else {
            self.work_on_own_stack(act)
        }
    }

    #[cold]
    #[inline(never)]
    fn work_on_own_stack(&mut self, act: impl FnOnce(&mut Stream)) {
        // A signal that came meanwhile would take the alternate stack from its beginning, as if it were free.
        let _held = sys::is_on_alternate_stack().then(sys::SignalsHeld::new);
        self.on_own_stack(act);
    }

    fn on_own_stack<F: FnOnce(&mut Stream)>(&mut self, act: F) {
        struct Work<'a, F>(&'a mut Stream, Option<F>);
        extern "C" fn work<F: FnOnce(&mut Stream)>(argument: *mut u8) {
            // SAFETY: the struct below, which waits for this function.
            let Work(stream, act) = unsafe { &mut *argument.cast::<Work<'_, F>>() };
            if let Some(act) = act.take() {
                act(stream);
            }
        }
        if self.own_stack.is_null() {
            let Ok(memory) = sys::map_anonymous(OWN_STACK_BYTES) else {
                state::stop(StopReason::NoMemory, libc::ENOMEM);
                return;
            };
            self.own_stack = memory;
        }
        let top = self.own_stack.wrapping_add(OWN_STACK_BYTES);
        let mut waiting = Work(self, Some(act));
        // SAFETY: the stack is this stream's, and the guard excludes a second call.
        unsafe { arch::on_stack(top, work::<F>, (&raw mut waiting).cast()) };
    }

    #[inline]
    fn call_here(&mut self, caller: Caller, call: &Call) {
        if counters::are_on() {
            self.count_here(caller, call);
        } else if self.record_here(caller, call).is_none() {
            state::count_lost();
        }
    }

    /// `None` if the recording has stopped.
    #[inline]
    fn record_here(&mut self, caller: Caller, call: &Call) -> Option<()> {
        let node = self.node(caller)?;
        let (site, _) = self.site(node, call.code)?;
        self.put(site, call)
    }

    /// Writes a call; there must be room for it. `None` if the recording has stopped.
    #[inline(always)]
    fn put(&mut self, site: u32, call: &Call) -> Option<()> {
        let record = CallRecord {
            class: call.class,
            site,
            time: call.time,
            address: call.address as u64,
            size: call.size as u64,
            extra: call.extra as u64,
            begin: call.begin,
            old: call.old as u64,
        };
        let (out, _) = self.live.tail().split_first_chunk_mut::<RECORD_ROOM>()?;
        let bytes = self.predictor.encode(out, &mut self.interned, record);
        state::is_recording().then(|| self.live.commit(bytes, true))
    }

    /// The number of a stack's call, which is defined if it is new, and whether it is. Makes room for one more
    /// call or definition.
    #[inline]
    fn site(&mut self, node: u32, code: u8) -> Option<(u32, bool)> {
        // Before the site gets its number, because a chunk records its first numbers.
        if !self.make_room(MAX_DEFINITION_BYTES + RECORD_ROOM) {
            return None;
        }
        match self.interned.site_number(node, code) {
            Found::Known(site) => Some((site, false)),
            Found::New(site) => {
                let next = self.interned.next_node();
                let define = |predictor: &mut Predictor, out: &mut [u8]| {
                    predictor.encode_site(out, next, node, code)
                };
                self.define_with(define).then_some((site, true))
            }
            Found::Full => out_of_memory(),
        }
    }

    /// Records a copy.
    #[inline]
    pub fn copied(&mut self, caller: Caller, call: &Call) {
        let same_map = map::current().is_some_and(|map| map.generation == self.generation);
        // A familiar caller may serve another line of Python.
        if same_map
            && !self.merged.is_on()
            && self.live.room() >= RECORD_ROOM
            && let Some(site) = self.familiars.find(caller, call.code)
        {
            let _ = self.put(site, call);
            return;
        }
        self.work(caller.sp, |stream| {
            if stream.copied_here(caller, call).is_none() {
                state::count_lost();
            }
        });
    }

    fn copied_here(&mut self, caller: Caller, call: &Call) -> Option<()> {
        let node = self.node(caller)?;
        let (site, _) = self.site(node, call.code)?;
        if let Some((words, needs_bp)) = self.walker.inner() {
            self.familiars
                .note(caller, call.code, words, needs_bp, site);
        }
        self.put(site, call)
    }

    /// Records a system call that has returned; its site is filled in.
    pub fn system_call(&mut self, caller: Caller, code: u8, record: SystemCallRecord) {
        self.work(caller.sp, |stream| {
            let Some(node) = stream.node(caller) else {
                return;
            };
            if let Some((site, _)) = stream.site(node, code) {
                let record = SystemCallRecord { site, ..record };
                stream.note(|predictor, out| predictor.encode_system_call(out, &record));
            }
        });
    }

    /// The same for one that a handler of ours has made in the place of the code with these registers. Not what
    /// malloc does.
    pub fn interrupted_call(&mut self, at: Registers, code: u8, record: SystemCallRecord) {
        // The handler may run on a small alternate stack; it is not interrupted.
        self.on_own_stack(|stream| {
            let Some(node) = stream.interrupted_node(at) else {
                return;
            };
            if let Some((site, _)) = stream.site(node, code) {
                let record = SystemCallRecord { site, ..record };
                stream.note(|predictor, out| predictor.encode_system_call(out, &record));
            }
        });
    }

    /// The same for one that no code of this image has made: it has no stack.
    pub fn outer_call(&mut self, code: u8, record: SystemCallRecord) {
        if self.follow_map().is_some()
            && let Some((site, _)) = self.site(ROOT_COMPLETE, code)
        {
            let record = SystemCallRecord { site, ..record };
            self.note(|predictor, out| predictor.encode_system_call(out, &record));
        }
    }

    fn interrupted_node(&mut self, at: Registers) -> Option<u32> {
        for try_again in [true, true, true, false] {
            let map = self.follow_map()?;
            let walked = self.walker.walk_interrupted(map, at)?;
            let mut inner = self.walker.last().iter().rev().take(INNER_FRAMES);
            if inner.any(|frame| map.is_allocator(frame.ip())) {
                return None;
            }
            if !walked.complete {
                file::add_to_slot(Slot::TruncatedStacks, 1);
            }
            let complete = walked.complete;
            if let Some(node) = self.number_last(map, walked, try_again)? {
                return self.node_of_last(node, complete);
            }
            self.walker.drop_last();
        }
        None
    }

    /// Records a block's contents.
    pub fn contents(&mut self, sp: usize, address: usize, held: Fingerprint, time: u64) {
        self.work(sp, |stream| {
            stream.define_with(|predictor, out| {
                predictor.encode_contents(out, address as u64, held, time)
            });
        });
    }

    /// Records the program's mark.
    pub fn mark(&mut self, caller_sp: usize, name: &[u8], time: u64) {
        self.work(caller_sp, |stream| {
            if !stream.make_room(MAX_MARK_NAME_BYTES + RECORD_ROOM) {
                return;
            }
            let Some(mark) = stream.marks.number(stream.live.chunk(), name) else {
                state::stop(StopReason::NoMemory, libc::ENOMEM);
                return;
            };
            let number = mark.number;
            if mark.new {
                let out = stream.live.tail();
                let Some(bytes) = stream.predictor.encode_mark_name(out, number, name) else {
                    return;
                };
                stream.live.commit(bytes, false);
            }
            stream.note(|predictor, out| predictor.encode_mark(out, number, time));
        });
    }

    /// Writes a record that counts as a call; there must be room for it.
    fn note(&mut self, encode: impl FnOnce(&mut Predictor, &mut [u8]) -> Option<usize>) {
        if let Some(bytes) = encode(&mut self.predictor, self.live.tail())
            && state::is_recording()
        {
            self.live.commit(bytes, true);
        }
    }

    /// A realloc of this block begins. Only with counters.
    pub fn hold(&mut self, old: usize) {
        self.tally.hold(old);
    }

    /// Counts a call that may allocate.
    fn count_here(&mut self, caller: Caller, call: &Call) {
        if call.class == Class::Realloc {
            let freed = call.size == 0 && call.old != 0;
            if call.address == 0 && !freed {
                return self.tally.put_back(call.old);
            }
            self.tally.let_go(call.old, call.address == 0);
            if call.address == 0 {
                return;
            }
        } else if call.address == 0 {
            return self.tally.failed();
        }
        match self.counter(caller, call.code) {
            Some(number) => self.tally.made(number, call.address, call.size),
            None => state::count_lost(),
        }
    }

    /// The number of the counter for a call from the caller's stack.
    #[inline]
    fn counter(&mut self, caller: Caller, code: u8) -> Option<u32> {
        let node = self.node(caller)?;
        let (site, is_new) = self.site(node, code)?;
        if !is_new {
            return self.tally.number(site);
        }
        let number = self.tally.give(site)?;
        self.define_with(|predictor, out| predictor.encode_counter(out, number))
            .then_some(number)
    }

    /// The number of the caller's native stack, defined if it is new.
    #[inline]
    fn native_node(&mut self, caller: Caller) -> Option<u32> {
        let mut tries = 0;
        loop {
            let map = map::current()?;
            if map.generation != self.generation && !self.follow(map) {
                return None;
            }
            if let Some((node, complete)) = self.walker.recall(caller) {
                if !complete {
                    file::add_to_slot(Slot::TruncatedStacks, 1);
                }
                return Some(node);
            }
            let Some(walked) = self.walker.walk(map, caller) else {
                state::stop(StopReason::NoMemory, libc::ENOMEM);
                return None;
            };
            if !walked.complete {
                file::add_to_slot(Slot::TruncatedStacks, 1);
            }
            let (parent, at) = self.known_part(&walked)?;
            if at == self.walker.last().len() {
                let _ = self.walker.remember();
                return Some(parent);
            }
            if tries >= 4 || !(self.begins_python(map) || self.is_stale(map, at)) {
                return self.define(at, parent);
            }
            self.walker.drop_last();
            tries += 1;
        }
    }

    /// The innermost node of the last stack that is known, and how many of its frames lead there.
    #[inline]
    fn known_part(&mut self, walked: &Walked) -> Option<(u32, usize)> {
        let mut parent = match walked.complete {
            true => ROOT_COMPLETE,
            false => ROOT_TRUNCATED,
        };
        let frames = self.walker.last();
        if let Some(outer) = walked.kept.checked_sub(1) {
            parent = frames.get(outer)?.node;
        }
        let mut at = walked.kept;
        while let Some(frame) = frames.get_mut(at) {
            let Some(node) = self.interned.known_node(parent, frame.packed) else {
                break;
            };
            frame.node = node;
            parent = node;
            at += 1;
        }
        Some((parent, at))
    }

    /// Whether the last stack is the first one with Python code. Then the map is another afterwards.
    fn begins_python(&mut self, map: &Snapshot) -> bool {
        let begins = map.begins_python(self.walker.last().iter().map(|frame| frame.ip()));
        if begins {
            map::begin_python();
        }
        begins
    }

    /// New addresses are checked against the loader; if the map was wrong, the stack is to be walked again.
    fn is_stale(&mut self, map: &Snapshot, at: usize) -> bool {
        let new = self.walker.last().iter().skip(at);
        new.into_iter().any(|frame| !map::check(map, frame.ip()))
    }

    /// The module map, to which the stream is changed.
    pub fn follow_map(&mut self) -> Option<&'static Snapshot> {
        let map = map::current()?;
        (map.generation == self.generation || self.follow(map)).then_some(map)
    }

    /// The number of the stack that another walker has walked, defined if it is new; `Some(None)`: the map was
    /// wrong, if `check`.
    pub fn number(
        &mut self,
        walker: &mut Walker,
        map: &Snapshot,
        walked: Walked,
        check: bool,
    ) -> Option<Option<u32>> {
        std::mem::swap(&mut self.walker, walker);
        let number = self.number_last(map, walked, check);
        std::mem::swap(&mut self.walker, walker);
        number
    }

    /// The same for the stream's own.
    fn number_last(&mut self, map: &Snapshot, walked: Walked, check: bool) -> Option<Option<u32>> {
        let (parent, at) = self.known_part(&walked)?;
        if at == self.walker.last().len() {
            Some(Some(parent))
        } else if check && self.is_stale(map, at) {
            Some(None)
        } else {
            self.define(at, parent).map(Some)
        }
    }

    /// Records a sample of processor time. `None` if the recording has stopped.
    pub fn sample(&mut self, node: u32, sample: Sample) -> Option<()> {
        if !self.make_room(MAX_DEFINITION_BYTES) {
            return None;
        }
        let next = self.interned.next_node();
        let Sample { time, cpu_ns } = sample;
        self.note(|predictor, out| predictor.encode_sample(out, next, node, cpu_ns, time));
        state::is_recording().then_some(())
    }

    /// Numbers the frames of the last stack from `at` on, under `parent`.
    #[cold]
    fn define(&mut self, mut at: usize, mut parent: u32) -> Option<u32> {
        while at < self.walker.last().len() {
            if !self.make_room(max_nodes_bytes(NODES_AT_ONCE)) {
                self.walker.drop_last();
                return None;
            }
            let first_new = self.interned.next_frame();
            let last = self.walker.last();
            let part = last.get_mut(at..last.len().min(at + NODES_AT_ONCE))?;
            let count = part.len();
            let mut links = [Link::Frame(0); NODES_AT_ONCE];
            let mut numbers = [0; NODES_AT_ONCE];
            for ((frame, link), number) in part.iter().zip(&mut links).zip(&mut numbers) {
                (*link, *number) = match self.interned.frame(frame.packed) {
                    Found::Known(known) => (Link::Frame(known), known),
                    Found::New(new) => (Link::New(frame.packed), new),
                    Found::Full => return out_of_memory(),
                };
            }
            let out = self.live.tail();
            let tables = &mut self.interned;
            let bytes =
                self.predictor
                    .encode_nodes(out, tables, parent, &links[..count], first_new)?;
            self.live.commit(bytes, false);
            for (frame, number) in part.iter_mut().zip(numbers) {
                let Some(node) = self.interned.add_node(parent, frame.packed, number) else {
                    return out_of_memory();
                };
                frame.node = node;
                parent = node;
            }
            at += count;
        }
        Some(parent)
    }

    /// Changes to another module map.
    #[cold]
    fn follow(&mut self, map: &Snapshot) -> bool {
        let reset = map.last_unload > self.generation && self.generation != 0;
        self.generation = map.generation;
        self.walker.forget_rules();
        self.familiars.forget();
        self.merged.follow(map, reset);
        if reset {
            self.interned.forget();
        }
        let generation = map.generation;
        self.define_with(|predictor, out| predictor.encode_generation(out, generation, reset))
    }
}
