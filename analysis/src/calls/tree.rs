//! The callers or callees of functions as a tree with sums.
//!
//! Invariants: on each stack a function counts once: as caller beyond its outermost frame, as callee within its
//! innermost one. The sums of a node are those of the nodes below it, as far as the tree reaches.

use larder_base::order;
use rustc_hash::FxHashMap;

use super::Direction;
use crate::reading::functions::FunctionId;

/// What a trace measures of a stack. Calls and bytes of copies that were sampled are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub samples: u64,
    pub cpu_ns: u64,
    /// Recorded calls of the malloc family, of functions that copy, and of those that make system calls.
    pub calls: f64,
    /// What these requested, copied or moved.
    pub bytes: f64,
}

impl Sums {
    pub fn add(&mut self, other: &Sums) {
        self.samples += other.samples;
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.calls += other.calls;
        self.bytes += other.bytes;
    }

    pub fn is_empty(&self) -> bool {
        self.samples == 0 && self.calls == 0.0
    }
}

/// A step from the function, or the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Function(FunctionId),
    /// Callers: there is none. Callees: its own code.
    End,
}

#[derive(Debug)]
struct Node {
    step: Step,
    sums: Sums,
    below: Vec<usize>,
}

pub struct Tree {
    pub direction: Direction,
    depth: usize,
    /// The root first.
    nodes: Vec<Node>,
    places: FxHashMap<(usize, Step), usize>,
}

impl Tree {
    pub fn new(direction: Direction, depth: usize) -> Self {
        Self {
            direction,
            depth,
            nodes: vec![Node {
                step: Step::End,
                sums: Sums::default(),
                below: Vec::new(),
            }],
            places: FxHashMap::default(),
        }
    }

    /// The sums of the functions that the tree is of.
    pub fn root(&self) -> &Sums {
        &self.nodes[0].sums
    }

    /// The steps from a node, 0 for the root, those with the most time first, or without samples those with the
    /// most calls.
    pub fn below(&self, node: usize) -> Vec<(usize, Step, &Sums)> {
        let below = self.nodes[node].below.iter();
        let mut steps: Vec<_> = below
            .map(|at| (*at, self.nodes[*at].step, &self.nodes[*at].sums))
            .collect();
        order::sort_by(&mut steps, |(a, _, x), (b, _, y)| {
            let by_calls = y.calls.total_cmp(&x.calls);
            y.cpu_ns.cmp(&x.cpu_ns).then(by_calls).then(a.cmp(b))
        });
        steps
    }

    /// Adds a stack, innermost function first, if one of its functions is the root.
    pub fn add(&mut self, path: &[FunctionId], is_root: impl Fn(FunctionId) -> bool, sums: &Sums) {
        let steps: Vec<Step> = match self.direction {
            Direction::Callers => {
                let Some(at) = path.iter().rposition(|id| is_root(*id)) else {
                    return;
                };
                path[at + 1..].iter().copied().map(Step::Function).collect()
            }
            Direction::Callees => {
                let Some(at) = path.iter().position(|id| is_root(*id)) else {
                    return;
                };
                path[..at]
                    .iter()
                    .rev()
                    .copied()
                    .map(Step::Function)
                    .collect()
            }
        };
        let mut at = 0;
        self.nodes[at].sums.add(sums);
        for step in steps.into_iter().chain([Step::End]).take(self.depth) {
            at = self.step(at, step);
            self.nodes[at].sums.add(sums);
        }
    }

    fn step(&mut self, from: usize, step: Step) -> usize {
        let next = self.nodes.len();
        let at = *self.places.entry((from, step)).or_insert(next);
        if at == next {
            self.nodes.push(Node {
                step,
                sums: Sums::default(),
                below: Vec::new(),
            });
            self.nodes[from].below.push(at);
        }
        at
    }
}
