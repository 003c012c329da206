//! A tree of callers or callees, of which some branches are open.

use larder_analysis::calls::{Step, Sums, Tree};
use larder_analysis::reading::functions::FunctionId;
use rustc_hash::FxHashSet;

use crate::terminal::list::List;

pub struct Branches {
    pub root: FunctionId,
    pub tree: Tree,
    open: FxHashSet<usize>,
    pub list: List<usize>,
}

/// A row of the tree that is shown.
#[derive(Clone, Copy)]
pub struct Branch<'a> {
    pub node: usize,
    pub level: usize,
    pub step: Step,
    pub sums: &'a Sums,
    pub is_open: bool,
}

impl Branches {
    pub fn new(root: FunctionId, tree: Tree) -> Self {
        Self {
            root,
            tree,
            open: FxHashSet::default(),
            list: List::default(),
        }
    }

    /// Depth first, without recursion.
    pub fn rows(&self) -> Vec<Branch<'_>> {
        let mut rows = Vec::new();
        let mut waiting = vec![(0, self.tree.below(0).into_iter())];
        while let Some((level, steps)) = waiting.last_mut() {
            let level = *level;
            let Some((node, step, sums)) = steps.next() else {
                waiting.pop();
                continue;
            };
            let is_open = self.open.contains(&node);
            rows.push(Branch {
                node,
                level,
                step,
                sums,
                is_open,
            });
            if is_open {
                waiting.push((level + 1, self.tree.below(node).into_iter()));
            }
        }
        rows
    }

    pub fn nodes(&self) -> Vec<usize> {
        self.rows().iter().map(|row| row.node).collect()
    }

    /// The function of the selected row; `None` at the end of a stack.
    pub fn selected(&self) -> Option<FunctionId> {
        let rows = self.rows();
        match rows.get(self.list.position(&self.nodes()))?.step {
            Step::Function(id) => Some(id),
            Step::End => None,
        }
    }

    /// Opens the selected branch, or closes it.
    pub fn turn(&mut self) {
        if let Some(node) = self.list.selected(&self.nodes())
            && !self.open.remove(&node)
        {
            self.open.insert(node);
        }
    }

    pub fn open(&mut self) {
        self.open.extend(self.list.selected(&self.nodes()));
    }

    /// Closes the selected branch, or selects the one that it is on.
    pub fn close(&mut self) {
        let nodes = self.nodes();
        let at = self.list.position(&nodes);
        let Some(node) = nodes.get(at) else { return };
        if self.open.remove(node) {
            return;
        }
        let rows = self.rows();
        let level = rows[at].level;
        if let Some(above) = rows[..at].iter().rposition(|row| row.level < level) {
            self.list.select(above, &nodes);
        }
    }
}
