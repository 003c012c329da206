//! The stacks as one tree, callers above callees, and what is called from each node: the data of the page's
//! flame graph, of the callers and callees of its sites, and of the parts of a run.
//!
//! Flat, a node after its parent, so that a hostile trace's depth causes no recursion. Memory: by the distinct
//! stacks, as few nodes as these share callers.

use std::collections::BTreeMap;

use larder_base::order;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde_json::{Value, json};

use super::document::Names;
use super::gathered::{Cell, Gathered};
use crate::reading::attribute::functions;
use crate::reading::chain::{Chain, StackKey};
use crate::reading::naming::{
    frame_name, frame_place, is_first, is_interpreter, is_start, without_start,
};
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

/// What the trace measures of a node beside allocations.
struct Other {
    title: &'static str,
    is_time: bool,
    /// By node.
    rows: Vec<(usize, u64)>,
}

/// All of them. Frames are told apart by their addresses, so the stacks have to outlive it.
pub struct Tree<'g> {
    gathered: &'g Gathered,
    /// The numbers of the threads that are told apart.
    threads: FxHashMap<usize, usize>,
    frames: Frames,
    /// The parent and the frame of each; the root is its own parent, and has no frame.
    nodes: Vec<(usize, usize)>,
    children: FxHashMap<(usize, usize), usize>,
    /// The nodes of stacks which callees do not change, and their frames; the outermost ones have just frames that are
    /// not shown.
    shared: FxHashMap<StackKey, (usize, usize)>,
    /// The node and the site of each row.
    rows: Vec<(usize, SiteId)>,
    others: Vec<Other>,
}

impl<'g> Tree<'g> {
    pub fn new(gathered: &'g Gathered, sites: &mut SiteTable) -> Self {
        let threads = gathered.shown_threads().into_iter().enumerate();
        // A row has a few nodes of its own.
        let (rows, nodes) = (gathered.rows.len(), 1 + 4 * gathered.rows.len());
        let mut tree = Self {
            gathered,
            threads: threads.map(|(part, number)| (number, part)).collect(),
            frames: Frames::default(),
            nodes: Vec::with_capacity(nodes),
            children: FxHashMap::with_capacity_and_hasher(nodes, FxBuildHasher),
            shared: FxHashMap::with_capacity_and_hasher(nodes, FxBuildHasher),
            rows: Vec::with_capacity(rows),
            others: Vec::new(),
        };
        tree.nodes.push((0, usize::MAX));
        for row in &gathered.rows {
            let row = (tree.add(&row.stack), sites.intern(&row.stack));
            tree.rows.push(row);
        }
        tree
    }

    pub fn site_of(&self, row: usize) -> SiteId {
        self.rows[row].1
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
        let node = self.add_to_shared(&stack.chain);
        node.unwrap_or_else(|| self.add_whole(&stack.chain))
    }

    fn step(&mut self, node: usize, frame: &ChainFrame) -> usize {
        if frame.family {
            return node;
        }
        let step = (node, self.frames.of(frame));
        *self.children.entry(step).or_insert_with(|| {
            self.nodes.push(step);
            self.nodes.len() - 1
        })
    }

    /// Below callers whose node is known, if nothing of the rest of the stack could hide frames.
    fn add_to_shared(&mut self, chain: &Chain) -> Option<usize> {
        let (mut inner, mut shared) = (Vec::with_capacity(16), None);
        for (key, location) in chain.stacks() {
            shared = self.shared.get(&key).copied();
            if shared.is_some() {
                break;
            }
            inner.push((key, location));
        }
        let (mut node, mut depth) = shared?;
        let mut last = depth;
        for frame in inner
            .iter()
            .rev()
            .flat_map(|(_, frames)| frames.iter().rev())
        {
            if (last == 0 && !is_first(frame)) || is_start(frame) {
                return None;
            }
            last += 1;
        }
        if last == 0 || last > DEPTH {
            return None;
        }
        for (key, location) in inner.into_iter().rev() {
            for frame in location.iter().rev() {
                node = self.step(node, frame);
            }
            depth += location.len();
            self.shared.insert(key, (node, depth));
        }
        Some(node)
    }

    fn add_whole(&mut self, chain: &Chain) -> usize {
        let frames: Vec<&ChainFrame> = functions(chain).collect();
        let shown = without_start(&frames);
        let is_cut = |at: usize| at == shown.len() && shown.last().copied().is_some_and(is_first);
        let mut at = 0;
        for (key, location) in chain.stacks() {
            if is_cut(at) && location.first().is_some_and(|frame| !is_interpreter(frame)) {
                self.shared.insert(key, (0, 0));
                break;
            }
            at += location.len();
        }
        let outermost = shown.iter().rev().enumerate();
        let kept =
            outermost.filter(|(index, _)| *index < DEPTH / 2 || index + DEPTH / 2 >= shown.len());
        kept.fold(0, |node, (_, frame)| self.step(node, frame))
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
        for (row, (node, _)) in self.rows.iter().enumerate() {
            for (measure, weight) in self.gathered.weights(row).into_iter().enumerate() {
                add(*node, measure, weight);
            }
        }
        for (number, other) in self.others.iter().enumerate() {
            for (node, weight) in &other.rows {
                add(*node, MEASURES.len() + number, *weight);
            }
        }
        for node in (1..self.nodes.len()).rev() {
            let (above, own) = sums.split_at_mut(node * measures);
            let parent = &mut above[self.nodes[node].0 * measures..];
            for (sum, weight) in parent.iter_mut().zip(&own[..measures]) {
                *sum = sum.saturating_add(*weight);
            }
        }
        sums
    }

    /// Leaves out nodes below `share` of every measure, other than `wanted` ones with their callers: what is called
    /// there is called from the node above.
    pub fn kept(&self, share: f64, wanted: impl Iterator<Item = usize>) -> Kept<'_> {
        let (sums, measures) = (self.sums(), self.measures());
        let mut all = vec![false; self.nodes.len()];
        all[0] = true;
        for mut node in wanted {
            while !std::mem::replace(&mut all[node], true) {
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
            let may_weigh = node == 0 || kept.nodes[kept.numbers[*parent]] == *parent;
            if all[node] || (may_weigh && weighs(node)) {
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
    /// Calls and bytes by span, and by thread; those without calls are none.
    parts: [Vec<(u64, u64)>; 2],
}

impl RowSums {
    fn add(&mut self, tree: &Tree<'_>, row: usize) {
        for (sum, weight) in self.weights.iter_mut().zip(tree.gathered.weights(row)) {
            *sum = sum.saturating_add(weight);
        }
        let [spans, threads] = &mut self.parts;
        tree.gathered
            .spans(row)
            .for_each(|cell| add_cell(spans, cell));
        let cells = tree.gathered.by_thread(row, &tree.threads);
        cells.for_each(|cell| add_cell(threads, cell));
    }

    fn put(&self, out: &mut String) {
        let used = self.weights.iter().rposition(|weight| *weight > 0);
        for (place, weight) in self.weights[..used.map_or(0, |last| last + 1)]
            .iter()
            .enumerate()
        {
            if place > 0 {
                out.push(',');
            }
            put_base_36(out, *weight);
        }
        for parts in &self.parts {
            out.push(' ');
            put_cells(out, parts, (self.weights[0], self.weights[1]));
        }
    }
}

fn add_cell(parts: &mut Vec<(u64, u64)>, cell: Cell) {
    if parts.len() <= cell.part {
        parts.resize(cell.part + 1, (0, 0));
    }
    let (calls, bytes) = &mut parts[cell.part];
    *calls = calls.saturating_add(cell.calls);
    *bytes = bytes.saturating_add(cell.bytes);
}

fn put_base_36(out: &mut String, mut number: u64) {
    // As many as of the largest number.
    let (mut digits, mut from) = ([0; 13], 13);
    while number > 0 || from == digits.len() {
        from -= 1;
        digits[from] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    out.extend(digits[from..].iter().map(|digit| char::from(*digit)));
}

/// `part:calls.bytes,…` without what follows from the rest: a part is the next one, the bytes are the row's for so
/// many of its calls, or the only part has all of its calls.
fn put_cells(out: &mut String, parts: &[(u64, u64)], whole: (u64, u64)) {
    let (mut next, begin) = (0, out.len());
    let parts = parts.iter().enumerate();
    for (part, (calls, bytes)) in parts.filter(|(_, (calls, _))| *calls > 0) {
        if out.len() > begin {
            out.push(',');
        }
        let has_all = (*calls, *bytes) == whole;
        if has_all || part != next {
            put_base_36(out, part as u64);
            out.push(':');
        }
        if !has_all {
            put_base_36(out, *calls);
        }
        let [own, all] =
            [(*bytes, whole.0), (*calls, whole.1)].map(|(a, b)| u128::from(a) * u128::from(b));
        if own != all {
            out.push('.');
            put_base_36(out, *bytes);
        }
        next = part + 1;
    }
}

/// The tree without what is too small to show.
pub struct Kept<'t> {
    tree: &'t Tree<'t>,
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
        let mut sums: FxHashMap<(usize, Option<usize>), RowSums> = FxHashMap::default();
        for (row, (node, id)) in self.tree.rows.iter().enumerate() {
            let key = (self.numbers[*node], site(*id));
            sums.entry(key).or_default().add(self.tree, row);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        order::sort_by_key(&mut sums, |(key, _)| *key);
        let mut out = String::new();
        for ((node, site), sums) in &sums {
            if !out.is_empty() {
                out.push(';');
            }
            put_base_36(&mut out, *node as u64);
            out.push(' ');
            match site {
                Some(site) => put_base_36(&mut out, *site as u64),
                None => out.push('-'),
            }
            out.push(' ');
            sums.put(&mut out);
        }
        out
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
    use std::cell::{Cell as Mutable, OnceCell};
    use std::rc::Rc;

    use super::*;
    use crate::reading::chain::{Location, Stacks};
    use crate::reading::plumbing::ModuleRole;
    use crate::reading::resolve::{Language, ModuleLabel};
    use crate::symbols::{FunctionName, SourceFrame};

    fn location(
        role: ModuleRole,
        language: Language,
        name: Option<&str>,
        family: bool,
    ) -> Location {
        let module = ModuleLabel {
            path: String::new(),
            name: "module".to_owned(),
            build_id: Vec::new(),
            role,
            language,
        };
        let source = SourceFrame {
            function: name.map(|name| FunctionName::new(name, None)),
            file: None,
            line: None,
            inlined: false,
        };
        Rc::new([ChainFrame {
            source,
            module: Rc::new(module),
            address: 1,
            family,
            plumbing: false,
            wrapper: Mutable::new(false),
            writes_text: false,
            container: OnceCell::new(),
        }])
    }

    #[test]
    fn callers_that_are_known_change_no_node() {
        use Language::{Interpreter, Native, Python};
        use ModuleRole::{Program, System};
        let places = [
            location(Program, Native, Some("a"), false),
            location(Program, Native, Some("a"), false),
            location(Program, Native, Some("b"), false),
            location(Program, Native, None, false),
            location(System, Native, Some("malloc"), true),
            location(System, Native, None, false),
            location(System, Native, Some("_start"), false),
            location(Program, Interpreter, Some("c"), false),
            location(Program, Python, Some("d"), false),
        ];
        let (gathered, mut sites) = (Gathered::new(), SiteTable::default());
        let mut tree = Tree::new(&gathered, &mut sites);
        let mut whole = Tree::new(&gathered, &mut sites);
        let starts: [&[usize]; 4] = [&[], &[6], &[5, 6], &[7, 6]];
        let (stacks, mut count) = (Stacks::new(), 0);
        let mut called = |place: usize, callers: u32| {
            stacks.locate(place as u32, places[place].clone());
            count += 1;
            stacks.call(count, place as u32, callers);
            count
        };
        let start = |start: &&[usize]| {
            start
                .iter()
                .rev()
                .fold(0, |callers, at| called(*at, callers))
        };
        let mut chains: Vec<u32> = starts.iter().map(start).collect();
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let callers = match random(64) {
                0 => random(chains.len()),
                1 => random(starts.len()),
                _ => chains.len() - 1,
            };
            // What hides other frames is seldom, so that some stacks are deep.
            let place = match random(100) {
                0 => random(places.len()),
                _ => random(5),
            };
            let number = called(place, chains[callers]);
            whole.shared.clear();
            let stack = SiteStack {
                chain: stacks.chain(number),
                site: None,
            };
            assert_eq!(tree.add(&stack), whole.add(&stack), "{:?}", stack.chain);
            chains.push(number);
        }
        assert!(tree.shared.len() > 1_000, "{}", tree.shared.len());
        assert!(tree.shared.values().any(|(_, depth)| *depth == DEPTH));
    }

    #[test]
    fn cells_leave_out_what_follows() {
        let put = |parts: &[(usize, (u64, u64))], whole| {
            let (mut out, mut all) = (String::new(), vec![(0, 0); 37]);
            parts.iter().for_each(|(part, cell)| all[*part] = *cell);
            put_cells(&mut out, &all, whole);
            out
        };
        let parts = [(0, (2, 20)), (1, (3, 31)), (35, (36, 359))];
        assert_eq!(put(&parts, (41, 410)), "2,3.v,z:10.9z");
        assert_eq!(put(&[(36, (5, 50))], (5, 50)), "10:");
        assert_eq!(put(&[], (5, 50)), "");
        let most = [(0, (u64::MAX, 0))];
        assert_eq!(put(&most, (1, 1)), "3w5e11264sgsf.0");
    }
}
