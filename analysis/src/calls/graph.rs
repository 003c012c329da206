//! The callers or callees of the functions that a pattern names, as a tree with sums.
//!
//! Invariants: on each stack a function counts once: as caller beyond its outermost frame, as callee within its
//! innermost one. The sums of a node are those of the nodes below it, as far as the tree reaches.
//!
//! Memory: by the distinct stacks of one process image, and the tree, whose depth is given.

use larder_base::order;
use larder_trace::{Action, AllocCall, Call, Event, Events, StackId};
use rustc_hash::FxHashMap;

use super::Direction;
use crate::reading::functions::{FunctionId, FunctionTable, Leaf};
use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::weights;

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
    fn add(&mut self, other: &Sums) {
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

pub struct Graph {
    direction: Direction,
    wanted: String,
    depth: usize,
    pub functions: FunctionTable,
    /// Whether each function is named, as far as that was asked.
    named: Vec<bool>,
    /// Of the image that is being read: samples under `None`.
    stacks: FxHashMap<(StackId, Option<Call>), Sums>,
    /// The root first.
    nodes: Vec<Node>,
    places: FxHashMap<(usize, Step), usize>,
}

impl Graph {
    pub fn new(direction: Direction, wanted: &str, depth: usize) -> Self {
        Self {
            direction,
            wanted: wanted.to_owned(),
            depth,
            functions: FunctionTable::default(),
            named: Vec::new(),
            stacks: FxHashMap::default(),
            nodes: vec![Node {
                step: Step::End,
                sums: Sums::default(),
                below: Vec::new(),
            }],
            places: FxHashMap::default(),
        }
    }

    /// The sums of the requested functions.
    pub fn root(&self) -> &Sums {
        &self.nodes[0].sums
    }

    /// Those of the named functions that are on a stack.
    pub fn named(&self) -> impl Iterator<Item = FunctionId> {
        let named = self.functions.iter().zip(&self.named);
        named.filter(|(_, named)| **named).map(|((id, _), _)| id)
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

    fn is_named(&mut self, id: FunctionId) -> bool {
        let known = self.named.len();
        let new = self.functions.iter().skip(known);
        let wanted = &self.wanted;
        self.named.extend(
            new.map(|(id, function)| id != FunctionId::RECORDER && function.matches(wanted)),
        );
        self.named.get(id.index()).copied().unwrap_or(false)
    }

    /// Adds a stack, innermost function first.
    fn add(&mut self, path: &[FunctionId], sums: &Sums) {
        let named: Vec<bool> = path.iter().map(|id| self.is_named(*id)).collect();
        let steps: Vec<Step> = match self.direction {
            Direction::Callers => {
                let Some(at) = named.iter().rposition(|named| *named) else {
                    return;
                };
                path[at + 1..].iter().copied().map(Step::Function).collect()
            }
            Direction::Callees => {
                let Some(at) = named.iter().position(|named| *named) else {
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

/// What an event adds to its stack; `None` if it has none.
fn measured(action: &Action) -> Option<(StackId, Option<Call>, Sums)> {
    let one = |bytes: u64| Sums {
        calls: 1.0,
        bytes: bytes as f64,
        ..Sums::default()
    };
    let alloc = |call: AllocCall, stack, size| (stack, Some(Call::Alloc(call)), one(size));
    Some(match *action {
        Action::Sample { cpu_ns, stack } => {
            let sample = Sums {
                samples: 1,
                cpu_ns,
                ..Sums::default()
            };
            (stack, None, sample)
        }
        Action::Alloc {
            call, size, stack, ..
        }
        | Action::ReallocEnd {
            call, size, stack, ..
        } => alloc(call, stack, size),
        Action::Free { call, stack, .. } => (stack, Some(Call::Free(call)), one(0)),
        Action::SystemCall {
            call,
            result,
            stack,
            ..
        } => {
            let moved = if call.counts_bytes() { result } else { 0 };
            let bytes = u64::try_from(moved).unwrap_or(0);
            (stack, Some(Call::System(call)), one(bytes))
        }
        // The allocation that it is, too, has its call and its bytes.
        Action::Copy { call, .. } if call.duplicates() => return None,
        Action::Copy {
            call,
            bytes,
            rate,
            stack,
            ..
        } => {
            let calls = weights::copies(bytes, rate);
            let copied = Sums {
                calls,
                bytes: calls * bytes as f64,
                ..Sums::default()
            };
            (stack, Some(Call::Copy(call)), copied)
        }
        _ => return None,
    })
}

impl Observer for Graph {
    type Note = ();

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Some((stack, call, sums)) = measured(&event.action) {
            self.stacks.entry((stack, call)).or_default().add(&sums);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        let mut stacks: Vec<_> = std::mem::take(&mut self.stacks).into_iter().collect();
        // Sums of floating-point numbers depend on their order.
        order::sort_by_key(&mut stacks, |((stack, call), _)| {
            (stack.0, call.map(Call::code))
        });
        for ((stack, call), sums) in stacks {
            let chain = image.chain(stack);
            let leaf = call.map_or(Leaf::Sample, Leaf::Call);
            let path = self.functions.path(image.resolver, &chain, leaf);
            if path.first() != Some(&FunctionId::RECORDER) {
                self.add(&path, &sums);
            }
        }
    }
}
