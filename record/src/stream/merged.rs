//! Stacks with Python's lines: where the interpreter evaluates Python code, that code's frames stand in its place.
//!
//! A stack follows from the native one and the thread's Python frames, so it is kept by both (`Merged::stacks`).
//! Thread safety: belongs to a stream.

use larder_trace::symbols::SymbolChunk;

use super::Stream;
use crate::arch::Caller;
use crate::hash;
use crate::map::{self, Snapshot};
use crate::python::{self, Evaluated, Python, PythonFrame, Thread};
use crate::table::Table;
use crate::walk::{Walked, Walker};

pub struct Merged {
    python: Option<&'static Python>,
    /// The thread's state that was found to be its own last.
    checked: u64,
    /// How far above a native stack's lower end Python's innermost evaluation is, by stack.
    anchors: Table,
    /// The numbers of stacks, by native stack and Python frames.
    stacks: Table,
    /// The addresses of lines, by frame.
    lines: Table,
    /// The addresses whose names were written.
    named: Table,
    /// The last stack that was defined.
    walker: Walker,
    last_complete: bool,
}

impl Merged {
    pub const fn new() -> Self {
        Merged {
            python: None,
            checked: 0,
            anchors: Table::new(),
            stacks: Table::new(),
            lines: Table::new(),
            named: Table::new(),
            walker: Walker::new(),
            last_complete: false,
        }
    }

    pub fn is_on(&self) -> bool {
        self.python.is_some()
    }

    /// Another module map. `reset`: the numbers of stacks begin anew.
    pub fn follow(&mut self, map: &Snapshot, reset: bool) {
        self.python = map.python;
        if reset {
            self.anchors.release();
            self.stacks.release();
            self.walker.drop_last();
        }
    }

    pub fn release(&mut self) {
        self.anchors.release();
        self.stacks.release();
        self.lines.release();
        self.named.release();
        self.walker.release();
    }

    /// The hash of the thread's frames, once it is found where they are.
    #[cold]
    fn find_anchor(
        &mut self,
        python: &Python,
        thread: Thread<'_>,
        native: u32,
        sp: u64,
    ) -> Option<u64> {
        let anchor = python.anchor(thread)?;
        let distance = anchor.checked_sub(sp)?;
        self.anchors.set(u64::from(native) + 1, distance);
        thread.key(anchor)
    }

    /// The address of a frame's line, in the trace's form.
    fn line(
        &mut self,
        python: &Python,
        frame: PythonFrame,
        names: &mut SymbolChunk,
    ) -> Option<u64> {
        let key = frame.mix(0) | 1;
        if let Some(known) = self.lines.get(key) {
            return Some(known);
        }
        let line = python.line(frame)?;
        let packed = line.packed();
        if self.named.get(packed).is_none() {
            python.name(&line, names);
            self.named.insert(packed, packed);
        }
        self.lines.insert(key, packed);
        Some(packed)
    }
}

impl Stream {
    /// The number of the caller's stack, defined if it is new.
    #[inline]
    pub(super) fn node(&mut self, caller: Caller) -> Option<u32> {
        let native = self.native_node(caller)?;
        match self.merged.python {
            None => Some(native),
            Some(python) => self.merged_node(python, native, caller.sp as u64, |stream| {
                let walked = stream.walker.walk(map::current()?, caller)?;
                let complete = walked.complete;
                // Numbers the frames that the walk has replaced.
                stream.known_part(&walked)?;
                Some(complete)
            }),
        }
    }

    /// The same for the stack that was walked last, which has this number.
    pub(super) fn node_of_last(&mut self, native: u32, complete: bool) -> Option<u32> {
        let sp = self.walker.last().last().map_or(0, |frame| frame.sp);
        match self.merged.python {
            None => Some(native),
            Some(python) => self.merged_node(python, native, sp, |_| Some(complete)),
        }
    }

    /// `sp`: at the same place of the native stack each time. `walk` makes that stack the last one, and returns whether
    /// it is complete.
    #[inline]
    fn merged_node(
        &mut self,
        python: &Python,
        native: u32,
        sp: u64,
        walk: impl FnOnce(&mut Stream) -> Option<bool>,
    ) -> Option<u32> {
        let Some(thread) = python.thread(&mut self.merged.checked) else {
            return Some(native);
        };
        let distance = self.merged.anchors.get(u64::from(native) + 1);
        let anchor = distance.map_or(0, |distance| sp.wrapping_add(distance));
        let frames = match thread.key(anchor) {
            None => self.merged.find_anchor(python, thread, native, sp),
            known => known,
        };
        let Some(frames) = frames.filter(|frames| *frames != 0) else {
            return Some(native);
        };
        let key = hash::fold(frames, hash::FACTOR ^ u64::from(native)) | 1;
        if let Some(node) = self.merged.stacks.get(key) {
            return Some(node as u32);
        }
        let native_complete = walk(self)?;
        let (evaluated, complete) = thread.frames(None);
        let merged = self.merge(python, evaluated, complete && native_complete)?;
        let node = merged.unwrap_or(native);
        self.merged.stacks.insert(key, u64::from(node));
        Some(node)
    }

    /// The number of an interrupted stack, which `walker` has walked, and which has this number without Python's frames.
    /// Reads those with care; where they are in the making, the stack stays as it is.
    #[cold]
    pub fn node_of_sample(
        &mut self,
        walker: &mut Walker,
        native: u32,
        complete: bool,
    ) -> Option<u32> {
        let Some(python) = self.merged.python else {
            return Some(native);
        };
        let thread = python.thread(&mut self.merged.checked);
        let (evaluated, all) =
            thread.map_or((Vec::new(), true), |thread| python.interrupted(thread));
        if evaluated.is_empty() {
            return Some(native);
        }
        std::mem::swap(&mut self.walker, walker);
        let merged = self.merge(python, evaluated, complete && all);
        std::mem::swap(&mut self.walker, walker);
        Some(merged?.unwrap_or(native))
    }

    /// Defines the stack of these frames and the last stack's; `Some(None)` if they are not of the same moment.
    #[cold]
    #[inline(never)]
    fn merge(
        &mut self,
        python: &Python,
        mut evaluated: Vec<Evaluated>,
        complete: bool,
    ) -> Option<Option<u32>> {
        let map = map::current()?;
        let frames = self.walker.last().iter().rev();
        let native: Vec<(u64, u64)> = frames.map(|frame| (frame.packed, frame.sp)).collect();
        if !python.place(&native, &mut evaluated, complete) {
            return Some(None);
        }
        let mut names = SymbolChunk::default();
        let mut packed = self.in_place(python, &native, &evaluated, &mut names);
        python::write(names);
        packed.reverse();
        if std::mem::replace(&mut self.merged.last_complete, complete) != complete {
            self.merged.walker.drop_last();
        }
        let mut walker = std::mem::replace(&mut self.merged.walker, Walker::new());
        let kept = walker.replay_onto_last(&packed);
        let node = kept.and_then(|kept| {
            let walked = Walked { kept, complete };
            self.number(&mut walker, map, walked, false)?
        });
        if node.is_none() {
            walker.drop_last();
        }
        self.merged.walker = walker;
        node.map(Some)
    }

    /// The frames, innermost first: each native one that evaluates Python code is replaced by that code's.
    /// `native`: addresses and stack pointers, innermost first.
    fn in_place(
        &mut self,
        python: &Python,
        native: &[(u64, u64)],
        evaluated: &[Evaluated],
        names: &mut SymbolChunk,
    ) -> Vec<u64> {
        let mut packed = Vec::with_capacity(native.len() + evaluated.len());
        let mut evaluated = evaluated.iter().peekable();
        for (index, (address, sp)) in native.iter().enumerate() {
            let end = native.get(index + 1).map_or(*sp, |(_, outer)| *outer);
            // What is below belongs to no frame of this stack.
            while evaluated
                .next_if(|here| here.at < *sp && *sp < end)
                .is_some()
            {}
            let before = packed.len();
            while let Some(here) = evaluated.next_if(|here| (*sp..end).contains(&here.at)) {
                for frame in &here.frames {
                    packed.extend(self.merged.line(python, *frame, names));
                }
            }
            if packed.len() == before {
                packed.push(*address);
            }
        }
        packed
    }
}
