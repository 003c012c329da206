//! The stacks as one tree, callers above callees, and what is called from each node: the data of the page's
//! flame graph, of the callers and callees of its sites, and of the parts of a run.
//!
//! Flat, a node after its parent, so that a hostile trace's depth causes no recursion. Memory: by the distinct
//! stacks, as few nodes as these share callers.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use super::document::Names;
use super::gathered::{Cell, Gathered};
use crate::reading::attribute::functions;
use crate::reading::naming::{frame_name, frame_place, without_start};
use crate::reading::resolve::ChainFrame;
use crate::reading::sites::{SiteId, SiteStack, SiteTable, SortKey};

/// Of a deeper stack, as many frames from `main` as from the allocator are kept.
const DEPTH: usize = 256;

/// The measures of what allocates.
pub const MEASURES: [&str; 6] = [
    "calls",
    "bytes",
    "bytes at the peak",
    "bytes live at the end",
    "temporary blocks",
    "blocks under 32 bytes",
];

/// Distinct frames: the name, the place and the module as numbers in `names`, and whether it is inlined.
#[derive(Default)]
struct Frames {
    known: FxHashMap<*const ChainFrame, usize>,
    numbers: FxHashMap<[usize; 4], usize>,
    rows: Vec<[usize; 4]>,
    names: Names,
}

impl Frames {
    fn of(&mut self, frame: &ChainFrame) -> usize {
        if let Some(number) = self.known.get(&std::ptr::from_ref(frame)) {
            return *number;
        }
        let row = [
            self.names.of(&frame_name(frame)),
            self.names.of(&frame_place(frame)),
            self.names.of(&frame.module.name),
            usize::from(frame.source.inlined),
        ];
        let number = *self.numbers.entry(row).or_insert_with(|| {
            self.rows.push(row);
            self.rows.len() - 1
        });
        self.known.insert(frame, number);
        number
    }
}

/// What is allocated at a node for a site.
struct Row {
    node: usize,
    site: SiteId,
    weights: [u64; MEASURES.len()],
    spans: Vec<Cell>,
    threads: Vec<Cell>,
}

/// What the trace measures of a node beside allocations.
struct Other {
    title: &'static str,
    is_time: bool,
    /// By node.
    rows: Vec<(usize, u64)>,
}

/// All of them. Frames are told apart by their addresses, so the stacks have to outlive it.
pub struct Tree {
    frames: Frames,
    /// The parent and the frame of each; the root is its own parent, and has no frame.
    nodes: Vec<(usize, usize)>,
    children: FxHashMap<(usize, usize), usize>,
    rows: Vec<Row>,
    others: Vec<Other>,
}

impl Tree {
    pub fn new(gathered: &Gathered, sites: &mut SiteTable) -> Self {
        let mut tree = Self {
            frames: Frames::default(),
            nodes: vec![(0, usize::MAX)],
            children: FxHashMap::default(),
            rows: Vec::new(),
            others: Vec::new(),
        };
        let threads = gathered.shown_threads().into_iter().enumerate();
        let threads = threads.map(|(part, number)| (number, part)).collect();
        for (index, row) in gathered.stacks.rows.iter().enumerate() {
            let (sums, temporary) = (&row.sums, row.life.temporary);
            let (calls, bytes, peak) = (sums.calls, sums.bytes, sums.peak_bytes);
            let charged = row.charged();
            let row = Row {
                node: tree.add(&charged),
                site: sites.intern(&charged),
                weights: [calls, bytes, peak, sums.live_bytes, temporary, sums.tiny],
                spans: gathered.spans(index),
                threads: gathered.by_thread(index, &threads),
            };
            tree.rows.push(row);
        }
        tree
    }

    /// Adds a measure of what does not allocate, of these sites with their stacks.
    pub fn measure(&mut self, title: &'static str, sites: &SiteTable, key: SortKey) {
        let known = sites.stacks();
        let rows = known.map(|known| (self.add(&known.stack), known.weight(key)));
        let other = Other {
            title,
            is_time: key == SortKey::Time,
            rows: rows.collect(),
        };
        self.others.push(other);
    }

    /// The node of a stack.
    pub fn add(&mut self, stack: &SiteStack) -> usize {
        let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
        let frames = without_start(&frames);
        let outermost = frames.iter().rev().enumerate();
        let kept = outermost.filter(|(index, frame)| {
            let is_near = *index < DEPTH / 2 || index + DEPTH / 2 >= frames.len();
            is_near && !frame.family
        });
        let mut at = 0;
        for (_, frame) in kept {
            let step = (at, self.frames.of(frame));
            at = *self.children.entry(step).or_insert_with(|| {
                self.nodes.push(step);
                self.nodes.len() - 1
            });
        }
        at
    }

    /// The name and the place of a site's frame.
    pub fn frame_of(&mut self, stack: &SiteStack) -> Option<usize> {
        let frame = functions(&stack.chain).nth(stack.site?)?;
        Some(self.frames.of(frame))
    }

    fn measures(&self) -> usize {
        MEASURES.len() + self.others.len()
    }

    /// The sums at each node and below, by node and measure.
    fn sums(&self) -> Vec<u64> {
        let measures = self.measures();
        let mut sums = vec![0u64; self.nodes.len() * measures];
        let mut add = |node: usize, measure: usize, weight: u64| {
            let sum = &mut sums[node * measures + measure];
            *sum = sum.saturating_add(weight);
        };
        for row in &self.rows {
            for (measure, weight) in row.weights.iter().enumerate() {
                add(row.node, measure, *weight);
            }
        }
        for (number, other) in self.others.iter().enumerate() {
            for (node, weight) in &other.rows {
                add(*node, MEASURES.len() + number, *weight);
            }
        }
        for node in (1..self.nodes.len()).rev() {
            let parent = self.nodes[node].0;
            for measure in 0..measures {
                let weight = sums[node * measures + measure];
                let sum = &mut sums[parent * measures + measure];
                *sum = sum.saturating_add(weight);
            }
        }
        sums
    }

    /// Leaves out nodes below `share` of every measure, other than `wanted` ones with their callers: what is called
    /// there is called from the node above.
    pub fn kept(&self, share: f64, wanted: impl Iterator<Item = usize>) -> Kept<'_> {
        let (sums, measures) = (self.sums(), self.measures());
        let mut all: FxHashSet<usize> = FxHashSet::from_iter([0]);
        for mut node in wanted {
            while all.insert(node) {
                node = self.nodes[node].0;
            }
        }
        let weighs = |node: usize| {
            let own = sums[node * measures..].iter().zip(&sums[..measures]);
            let mut own = own.take(measures);
            own.any(|(sum, total)| *sum > 0 && *sum as f64 >= *total as f64 * share)
        };
        let mut kept = Kept {
            tree: self,
            numbers: Vec::with_capacity(self.nodes.len()),
            nodes: Vec::new(),
        };
        for (node, (parent, _)) in self.nodes.iter().enumerate() {
            // No child exceeds its parent, so the parent is kept, too.
            if all.contains(&node) || weighs(node) {
                kept.numbers.push(kept.nodes.len());
                kept.nodes.push(node);
            } else {
                kept.numbers.push(kept.numbers[*parent]);
            }
        }
        kept
    }
}

/// What the rows of a node and a site add up to.
#[derive(Default)]
struct RowSums {
    weights: [u64; MEASURES.len()],
    /// Calls and bytes by span, and by thread.
    parts: [BTreeMap<usize, (u64, u64)>; 2],
}

impl RowSums {
    fn add(&mut self, row: &Row) {
        for (sum, weight) in self.weights.iter_mut().zip(row.weights) {
            *sum = sum.saturating_add(weight);
        }
        for (parts, cells) in self.parts.iter_mut().zip([&row.spans, &row.threads]) {
            for cell in cells {
                let (calls, bytes) = parts.entry(cell.part).or_default();
                *calls = calls.saturating_add(cell.calls);
                *bytes = bytes.saturating_add(cell.bytes);
            }
        }
    }
}

fn base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
        number /= 36;
    }
    digits.iter().rev().collect()
}

/// `part:calls.bytes,…` without what follows from the rest: a part is the next one, the bytes are the row's for so
/// many of its calls, or the only part has all of its calls.
fn cells(parts: &BTreeMap<usize, (u64, u64)>, whole: (u64, u64)) -> String {
    let mut next = 0;
    let cells = parts.iter().map(|(part, (calls, bytes))| {
        let mut cell = String::new();
        let has_all = (*calls, *bytes) == whole;
        if has_all || *part != next {
            cell += &format!("{}:", base_36(*part as u64));
        }
        if !has_all {
            cell += &base_36(*calls);
        }
        let [own, all] =
            [(*bytes, whole.0), (*calls, whole.1)].map(|(a, b)| u128::from(a) * u128::from(b));
        if own != all {
            cell += &format!(".{}", base_36(*bytes));
        }
        next = part + 1;
        cell
    });
    cells.collect::<Vec<String>>().join(",")
}

/// The tree without what is too small to show.
pub struct Kept<'t> {
    tree: &'t Tree,
    /// Of each node, its number here, or that of the node above which is here.
    numbers: Vec<usize>,
    nodes: Vec<usize>,
}

/// The frames that are shown, and their names.
#[derive(Default)]
pub struct Shown {
    numbers: FxHashMap<usize, usize>,
    rows: Vec<[usize; 4]>,
    pub names: Names,
}

impl Kept<'_> {
    pub fn node(&self, node: usize) -> usize {
        self.numbers[node]
    }

    /// The number of a frame in the page.
    pub fn frame(&self, frame: usize, shown: &mut Shown) -> usize {
        *shown.numbers.entry(frame).or_insert_with(|| {
            let [name, place, module, inlined] = self.tree.frames.rows[frame];
            let texts = &self.tree.frames.names;
            let mut of = |number| shown.names.of(texts.text(number));
            let row = [of(name), of(place), of(module), inlined];
            shown.rows.push(row);
            shown.rows.len() - 1
        })
    }

    /// The parents and the frames of the nodes, in two lists: as numbers in a list of their own they take half
    /// of the space.
    pub fn nodes(&self, shown: &mut Shown) -> Value {
        let nodes = self.nodes.iter().map(|node| self.tree.nodes[*node]);
        let (parents, frames): (Vec<usize>, Vec<i64>) = nodes
            .map(|(parent, frame)| match frame {
                usize::MAX => (0, -1),
                _ => (self.numbers[parent], self.frame(frame, shown) as i64),
            })
            .unzip();
        json!({ "parents": parents, "frames": frames })
    }

    /// What is allocated at each node for each site, in base 36, which takes half of the space of JSON:
    /// `node site weights spans threads;`. Weights are `1,2,3`, without zeros at the end. The site is `-` if it is not
    /// shown.
    pub fn rows(&self, site: impl Fn(SiteId) -> Option<usize>) -> String {
        let mut rows: BTreeMap<(usize, Option<usize>), RowSums> = BTreeMap::new();
        for row in &self.tree.rows {
            let key = (self.numbers[row.node], site(row.site));
            rows.entry(key).or_default().add(row);
        }
        let rows = rows.iter().map(|((node, site), sums)| {
            let used = sums.weights.iter().rposition(|weight| *weight > 0);
            let weights = sums.weights[..used.map_or(0, |last| last + 1)].iter();
            let weights: Vec<String> = weights.map(|weight| base_36(*weight)).collect();
            let [spans, threads] = &sums.parts;
            let whole = (sums.weights[0], sums.weights[1]);
            let columns = [
                base_36(*node as u64),
                site.map_or("-".to_owned(), |site| base_36(site as u64)),
                weights.join(","),
                cells(spans, whole),
                cells(threads, whole),
            ];
            columns.join(" ")
        });
        rows.collect::<Vec<String>>().join(";")
    }

    /// `[title, whether it is a time, [node, weight…]]` of each measure that is not of allocations.
    pub fn others(&self) -> Vec<Value> {
        let others = self.tree.others.iter().map(|other| {
            let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
            for (node, weight) in &other.rows {
                let sum = sums.entry(self.numbers[*node]).or_default();
                *sum = sum.saturating_add(*weight);
            }
            let rows = sums.iter().filter(|(_, sum)| **sum > 0);
            let rows: Vec<u64> = rows.flat_map(|(node, sum)| [*node as u64, *sum]).collect();
            json!([other.title, other.is_time, rows])
        });
        others.collect()
    }
}

impl Shown {
    /// `[name, place, module, inlined]`
    pub fn frames(&self) -> Value {
        json!(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_leave_out_what_follows() {
        assert_eq!(base_36(u64::MAX), "3w5e11264sgsf");
        let parts = BTreeMap::from([(0, (2, 20)), (1, (3, 31)), (35, (36, 359))]);
        assert_eq!(cells(&parts, (41, 410)), "2,3.v,z:10.9z");
        let one = BTreeMap::from([(36, (5, 50))]);
        assert_eq!(cells(&one, (5, 50)), "10:");
        assert_eq!(cells(&BTreeMap::new(), (5, 50)), "");
    }
}
