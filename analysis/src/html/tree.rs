//! The stacks as one tree, callers above callees, without nodes below the threshold: the data of the
//! page's flame graph.
//!
//! Flat, a node after its parent, so that a hostile trace's depth causes no recursion.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::document::Names;
use crate::reading::naming::{frame_name, shown, without_start};
use crate::reading::resolve::ChainFrame;
use crate::reading::stacks::StackRow;

/// Frames of one stack beyond this depth, counted from `main`, are left out.
const DEPTH: usize = 256;

/// Calls, bytes, bytes at the peak, temporary blocks: the measures of the flame graph.
type Weights = [u64; 4];

struct Node {
    parent: usize,
    name: usize,
    weights: Weights,
}

/// `[parent, name, weights…]` of every node that has `share` of any measure; the root is first.
pub fn nodes(rows: &[StackRow], share: f64, names: &mut Names) -> Vec<Value> {
    let mut nodes = vec![Node {
        parent: 0,
        name: names.of("all"),
        weights: Weights::default(),
    }];
    let mut children: HashMap<(usize, usize), usize> = HashMap::new();
    let mut own = Names::default();
    for row in rows {
        let weights = [
            row.sums.calls,
            row.sums.bytes,
            row.sums.peak_bytes,
            row.life.temporary,
        ];
        let frames: Vec<&ChainFrame> = row.functions().collect();
        let frames = without_start(&frames).iter();
        let frames = frames.rev().take(DEPTH).filter(|frame| !frame.family);
        let mut path = vec![0];
        let mut at = 0;
        for name in frames.map(|frame| own.of(&function_name(frame))) {
            at = *children.entry((at, name)).or_insert_with(|| {
                nodes.push(Node {
                    parent: at,
                    name,
                    weights: Weights::default(),
                });
                nodes.len() - 1
            });
            path.push(at);
        }
        for index in path {
            for (sum, weight) in nodes[index].weights.iter_mut().zip(weights) {
                *sum = sum.saturating_add(weight);
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
    let total = nodes[0].weights;
    let mut numbers: Vec<Option<usize>> = vec![None; nodes.len()];
    let mut kept = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let mut parts = node.weights.iter().zip(total);
        let weighs = index == 0
            || parts.any(|(weight, total)| *weight > 0 && *weight as f64 >= total as f64 * share);
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
        let [calls, bytes, peak, temporary] = node.weights;
        kept.push(json!([parent, name, calls, bytes, peak, temporary]));
    }
    kept
}
