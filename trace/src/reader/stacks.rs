//! The distinct stacks of a trace: a tree of frames, one for all threads.
//!
//! Invariants: a node's parent has a smaller number; equal stacks have equal numbers; a frame is
//! resolved to its module when it is defined, by the module map of that time.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::codec::{FIRST_NODE, ROOT_COMPLETE, ROOT_TRUNCATED};
use crate::modules::ModuleId;

/// A stack of this trace. The empty stacks are `COMPLETE_ROOT`, `TRUNCATED_ROOT` and `UNKNOWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    pub const COMPLETE_ROOT: StackId = StackId(ROOT_COMPLETE);
    pub const TRUNCATED_ROOT: StackId = StackId(ROOT_TRUNCATED);
    /// The stack's definition is in a lost part of the trace.
    pub const UNKNOWN: StackId = StackId(FIRST_NODE);
}

/// Numbers the distinct frames of a trace from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// In memory: the return address, or, with `interrupted`, the instruction that a signal interrupted.
    pub address: u64,
    pub interrupted: bool,
    /// `None`: there was no known module, for example because the code was generated at run time.
    pub module: Option<ModuleId>,
}

impl Frame {
    /// An address inside the calling instruction, by which function and line are looked up.
    pub fn lookup_address(&self) -> u64 {
        if self.interrupted {
            self.address
        } else {
            self.address.saturating_sub(1)
        }
    }
}

#[derive(Debug)]
pub struct StackTable {
    /// Parent and frame of each node; the three roots come first.
    nodes: Vec<(u32, FrameId)>,
    frames: Vec<Frame>,
    // Seeded in each process, so that a trace cannot cause collisions on purpose; takes a third of the time of
    // the standard one. Empty after `rest`, until it is needed again.
    node_ids: HashMap<(u32, FrameId), u32, RandomState>,
    frame_ids: HashMap<Frame, FrameId, RandomState>,
    /// The definitions in order, and how many of them were repeated; `NO_ORDER`: the order differs.
    defined: Vec<u32>,
    next: usize,
}

const NO_ORDER: usize = usize::MAX;
const NO_FRAME: FrameId = FrameId(u32::MAX);
const ROOTS: u32 = FIRST_NODE + 1;

impl Default for StackTable {
    fn default() -> Self {
        StackTable {
            nodes: (0..ROOTS).map(|root| (root, NO_FRAME)).collect(),
            frames: Vec::new(),
            node_ids: HashMap::default(),
            frame_ids: HashMap::default(),
            defined: Vec::new(),
            next: 0,
        }
    }
}

impl StackTable {
    /// The frames of a stack, innermost first.
    #[inline]
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = &Frame> {
        self.frame_ids(stack)
            .filter_map(|id| self.frames.get(id.0 as usize))
    }

    /// The same by number, for callers that store data for each distinct frame.
    #[inline]
    pub fn frame_ids(&self, stack: StackId) -> impl Iterator<Item = FrameId> {
        let mut node = stack.0;
        std::iter::from_fn(move || {
            if node < ROOTS {
                return None;
            }
            let (parent, frame) = *self.nodes.get(node as usize)?;
            node = parent;
            Some(frame)
        })
    }

    #[inline]
    pub fn frame(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get(id.0 as usize)
    }

    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Every stack with a frame; a caller's stack before its callees'.
    pub fn all(&self) -> impl Iterator<Item = StackId> + use<> {
        (ROOTS..self.nodes.len() as u32).map(StackId)
    }

    /// The stack of the innermost frame's caller.
    #[inline]
    pub fn parent(&self, stack: StackId) -> StackId {
        StackId(
            self.nodes
                .get(stack.0 as usize)
                .map_or(StackId::UNKNOWN.0, |node| node.0),
        )
    }

    /// Where the path from this stack ends: `COMPLETE_ROOT`, `TRUNCATED_ROOT` or `UNKNOWN`.
    pub fn root(&self, stack: StackId) -> StackId {
        let mut at = stack;
        while at.0 >= ROOTS {
            at = self.parent(at);
        }
        at
    }

    pub fn is_truncated(&self, stack: StackId) -> bool {
        self.root(stack) == StackId::TRUNCATED_ROOT
    }

    /// The complete stack of these return addresses, outermost first, without modules; for tables that are not
    /// read from a trace.
    pub fn intern(&mut self, addresses: &[u64]) -> StackId {
        let frame = |address| Frame {
            address,
            interrupted: false,
            module: None,
        };
        let add = |parent, address: &u64| {
            let id = self.add_frame(frame(*address));
            self.add(parent, id)
        };
        StackId(addresses.iter().fold(ROOT_COMPLETE, add))
    }

    pub(super) fn add_frame(&mut self, frame: Frame) -> FrameId {
        let next = FrameId(self.frames.len() as u32);
        let id = *self.frame_ids.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }

    /// The table, for a reader that makes the same definitions in the same order, without hashing.
    pub(super) fn again(self) -> Self {
        Self { next: 0, ..self }
    }

    pub(super) fn add(&mut self, parent: u32, frame: FrameId) -> u32 {
        match self.defined.get(self.next) {
            Some(node) if self.nodes[*node as usize] == (parent, frame) => {
                self.next += 1;
                return *node;
            }
            Some(_) => self.next = NO_ORDER,
            None => {}
        }
        let node = self.look_up(parent, frame);
        if self.next == self.defined.len() {
            self.defined.push(node);
            self.next += 1;
        }
        node
    }

    /// Frees what only new definitions need.
    pub(super) fn rest(&mut self) {
        self.node_ids = HashMap::default();
    }

    fn look_up(&mut self, parent: u32, frame: FrameId) -> u32 {
        let next = self.nodes.len() as u32;
        if self.node_ids.is_empty() {
            let known = self.nodes.iter().copied().zip(0..);
            self.node_ids = known.skip(ROOTS as usize).collect();
        }
        let node = *self.node_ids.entry((parent, frame)).or_insert(next);
        if node == next {
            self.nodes.push((parent, frame));
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_equal_numbers() {
        let mut table = StackTable::default();
        let mut frame = |address| {
            table.add_frame(Frame {
                address,
                interrupted: false,
                module: None,
            })
        };
        let (ten, twenty) = (frame(10), frame(20));
        assert_eq!(frame(10), ten);
        let main = table.add(ROOT_COMPLETE, ten);
        let leaf = table.add(main, twenty);
        assert_eq!(table.add(main, twenty), leaf);
        assert_ne!(table.add(ROOT_TRUNCATED, ten), main);
        let addresses: Vec<u64> = table.frames(StackId(leaf)).map(|f| f.address).collect();
        assert_eq!(addresses, [20, 10]);
        assert_eq!(table.root(StackId(leaf)), StackId::COMPLETE_ROOT);
        assert_eq!(table.frames(StackId::UNKNOWN).count(), 0);
        table.rest();
        let mut again = table.again();
        assert_eq!(again.add(ROOT_COMPLETE, ten), main);
        assert_eq!(again.add(main, twenty), leaf);
        // Another order is valid, too; new definitions are hashed then.
        assert_eq!(again.add(main, ten), leaf + 2);
        assert_eq!(again.add(main, twenty), leaf);
        assert_eq!(again.add(main, ten), leaf + 2);
    }
}
