//! The callers or callees of the functions that a pattern names, from all that a trace measures.
//!
//! Memory: by the distinct stacks of one process image, and the tree, whose depth is given.

use larder_base::order;
use larder_trace::{Action, AllocCall, Call, Event, Events, StackId};
use rustc_hash::FxHashMap;

use super::Direction;
use super::tree::{Sums, Tree};
use crate::reading::functions::{CountedFunction, FunctionId, FunctionTable, Leaf};
use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::weights;

pub struct Graph {
    wanted: String,
    pub tree: Tree,
    pub functions: FunctionTable,
    /// Whether each function is named, as far as that was asked.
    named: Vec<bool>,
    /// Of the image that is being read: samples under `None`.
    stacks: FxHashMap<(StackId, Option<Call>), Sums>,
}

impl Graph {
    pub fn new(direction: Direction, wanted: &str, depth: usize) -> Self {
        Self {
            wanted: wanted.to_owned(),
            tree: Tree::new(direction, depth),
            functions: FunctionTable::default(),
            named: Vec::new(),
            stacks: FxHashMap::default(),
        }
    }

    /// Those of the named functions that are on a stack.
    pub fn named(&self) -> impl Iterator<Item = FunctionId> {
        let named = self.functions.iter().zip(&self.named);
        named.filter(|(_, named)| **named).map(|((id, _), _)| id)
    }

    fn add(&mut self, path: &[FunctionId], sums: &Sums) {
        let new = self.functions.iter().skip(self.named.len());
        let is_named = |(id, function): (FunctionId, &CountedFunction)| {
            id != FunctionId::RECORDER && function.matches(&self.wanted)
        };
        self.named.extend(new.map(is_named));
        let is_named = |id: FunctionId| self.named.get(id.index()).copied().unwrap_or(false);
        self.tree.add(path, is_named, sums);
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
