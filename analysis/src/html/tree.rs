//! The stacks as one tree, callers above callees, without nodes below the threshold: the data of the
//! page's flame graph.
//!
//! Flat, a node after its parent, so that a hostile trace's depth causes no recursion.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::document::Names;
use crate::reading::attribute::functions;
use crate::reading::naming::{frame_name, shown, without_start};
use crate::reading::resolve::ChainFrame;
use crate::reading::sites::{SiteTable, SortKey};
use crate::reading::stacks::StackRow;

/// Frames of one stack beyond this depth, counted from `main`, are left out.
const DEPTH: usize = 256;

/// The measures of what allocates.
pub const MEASURES: [&str; 4] = ["calls", "bytes", "bytes at the peak", "temporary blocks"];

struct Node {
    parent: usize,
    name: usize,
    /// One a measure: `MEASURES`, and those of others.
    weights: Vec<u64>,
}

/// A stack, and its weights from this measure on.
type Weighed<'a> = (Vec<&'a ChainFrame>, usize, Vec<u64>);

/// `[parent, name, weights…]` of every node that has `share` of any measure; the root is first. `others`: further
/// measures, with the sites that have the stacks.
pub fn nodes(
    rows: &[StackRow],
    others: &[(&str, &SiteTable, SortKey)],
    share: f64,
    names: &mut Names,
) -> Vec<Value> {
    let measures = MEASURES.len() + others.len();
    let mut nodes = vec![Node {
        parent: 0,
        name: names.of("all"),
        weights: vec![0; measures],
    }];
    let allocating = rows.iter().map(|row| -> Weighed<'_> {
        let (sums, temporary) = (&row.sums, row.life.temporary);
        let weights = vec![sums.calls, sums.bytes, sums.peak_bytes, temporary];
        (row.functions().collect(), 0, weights)
    });
    let others = others.iter().enumerate();
    let others = others.flat_map(|(number, (_, sites, key))| {
        sites.stacks().map(move |known| -> Weighed<'_> {
            let frames = functions(&known.stack.chain).collect();
            (frames, MEASURES.len() + number, vec![known.weight(*key)])
        })
    });
    let mut children: HashMap<(usize, usize), usize> = HashMap::new();
    let mut own = Names::default();
    for (frames, first, weights) in allocating.chain(others) {
        let frames = without_start(&frames).iter();
        let frames = frames.rev().take(DEPTH).filter(|frame| !frame.family);
        let mut path = vec![0];
        let mut at = 0;
        for name in frames.map(|frame| own.of(&function_name(frame))) {
            at = *children.entry((at, name)).or_insert_with(|| {
                nodes.push(Node {
                    parent: at,
                    name,
                    weights: vec![0; measures],
                });
                nodes.len() - 1
            });
            path.push(at);
        }
        for index in path {
            for (sum, weight) in nodes[index].weights[first..].iter_mut().zip(&weights) {
                *sum = sum.saturating_add(*weight);
            }
        }
    }
    keep(&nodes, share, &own, names)
}

/// The function, whatever the line of the call.
fn function_name(frame: &ChainFrame) -> String {
    match &frame.source.function {
        Some(function) => shown(&function.name),
        None => frame_name(frame),
    }
}

/// The nodes above the threshold, renumbered.
fn keep(nodes: &[Node], share: f64, own: &Names, names: &mut Names) -> Vec<Value> {
    let total = &nodes[0].weights;
    let mut numbers: Vec<Option<usize>> = vec![None; nodes.len()];
    let mut kept = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let mut parts = node.weights.iter().zip(total);
        let weighs = index == 0
            || parts.any(|(weight, total)| *weight > 0 && *weight as f64 >= *total as f64 * share);
        // No child exceeds its parent, so the parent is included, too.
        let parent = if index == 0 {
            Some(0)
        } else {
            numbers[node.parent]
        };
        let Some(parent) = parent.filter(|_| weighs) else {
            continue;
        };
        numbers[index] = Some(kept.len());
        let name = if index == 0 {
            node.name
        } else {
            names.of(own.text(node.name))
        };
        let place = [parent as u64, name as u64];
        kept.push(json!([&place, &node.weights[..]].concat()));
    }
    kept
}
