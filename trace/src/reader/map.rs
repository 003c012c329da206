//! Finds the module at an address in a generation of the module map.
//!
//! A segment tree over the addresses at which modules begin and end: a module is stored at the few nodes
//! that make up its addresses, and a node has, by generation, the newest of its modules. With n modules, a
//! look-up takes O(log² n) time; memory is O(n log n).

use std::collections::BTreeSet;

use crate::modules::{Module, ModuleId};

#[derive(Debug, Default)]
pub struct ModuleMap {
    /// Where modules begin and end, ascending. A leaf covers the addresses from one to the next.
    bounds: Vec<u64>,
    /// Children of node n are 2n and 2n + 1; leaves begin at `bounds.len()`.
    nodes: Vec<Vec<Step>>,
}

/// From this generation until the next step, this is the newest module, by its index.
#[derive(Clone, Copy, Debug)]
struct Step {
    generation: u32,
    newest: Option<u32>,
}

impl ModuleMap {
    pub fn new(modules: &[Module]) -> Self {
        let bounds: BTreeSet<u64> = modules.iter().flat_map(|m| [m.start, m.end]).collect();
        let bounds: Vec<u64> = bounds.into_iter().collect();
        let mut noted: Vec<Vec<u32>> = vec![Vec::new(); 2 * bounds.len()];
        for (place, module) in (0..).zip(modules) {
            let leaf = |bound| bounds.partition_point(|at| *at < bound) + bounds.len();
            let (mut left, mut right) = (leaf(module.start), leaf(module.end));
            while left < right {
                if left % 2 == 1 {
                    noted[left].push(place);
                    left += 1;
                }
                if right % 2 == 1 {
                    right -= 1;
                    noted[right].push(place);
                }
                (left, right) = (left / 2, right / 2);
            }
        }
        let nodes = noted.iter().map(|places| steps(modules, places)).collect();
        ModuleMap { bounds, nodes }
    }

    /// The newest of the modules that cover the address in this generation.
    pub fn find(&self, modules: &[Module], address: u64, generation: u32) -> Option<ModuleId> {
        let leaf = self.bounds.partition_point(|at| *at <= address);
        let mut node = leaf.checked_sub(1)? + self.bounds.len();
        let mut newest = None;
        while node > 0 {
            let steps = self.nodes.get(node)?;
            let next = steps.partition_point(|step| step.generation <= generation);
            let step = next.checked_sub(1).and_then(|step| steps.get(step));
            newest = newest.max(step.and_then(|step| step.newest));
            node /= 2;
        }
        Some(modules.get(newest? as usize)?.id)
    }
}

/// The newest of these modules, by generation.
fn steps(modules: &[Module], places: &[u32]) -> Vec<Step> {
    let mut changes = Vec::with_capacity(2 * places.len());
    for place in places {
        let Some(module) = modules.get(*place as usize) else {
            continue;
        };
        if module.unloaded.is_none_or(|gone| module.loaded < gone) {
            changes.push((module.loaded, true, *place));
            changes.extend(module.unloaded.map(|gone| (gone, false, *place)));
        }
    }
    changes.sort_unstable();
    let mut present = BTreeSet::new();
    let mut steps: Vec<Step> = Vec::new();
    for (generation, appears, place) in changes {
        if appears {
            present.insert(place);
        } else {
            present.remove(&place);
        }
        let newest = present.last().copied();
        match steps.last_mut() {
            Some(last) if last.generation == generation => last.newest = newest,
            _ => steps.push(Step { generation, newest }),
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(id: u32, start: u64, end: u64, loaded: u32, unloaded: Option<u32>) -> Module {
        Module {
            id: ModuleId(id),
            path: Vec::new(),
            build_id: Vec::new(),
            bias: 0,
            start,
            end,
            loaded,
            unloaded,
            loaded_at: 0,
            unloaded_at: None,
        }
    }

    #[test]
    fn it_finds_what_a_search_of_all_modules_finds() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for count in [0, 1, 2, 5, 40] {
            let modules: Vec<Module> = (0..count)
                .map(|id| {
                    let (start, loaded) = (random(60), random(9) as u32);
                    // Some end before they begin, or are unloaded before they are loaded.
                    let end = start.saturating_sub(3) + random(20);
                    let unloaded = (random(3) > 0).then(|| random(12) as u32);
                    module(1000 - id, start, end, loaded, unloaded)
                })
                .collect();
            let map = ModuleMap::new(&modules);
            for (address, generation) in (0..90).flat_map(|a| (0..14).map(move |g| (a, g))) {
                let mut newest = modules.iter().rev();
                let expected = newest.find(|m| m.covers(address, generation)).map(|m| m.id);
                let found = map.find(&modules, address, generation);
                assert_eq!(found, expected, "{count} modules, {address}, {generation}");
            }
        }
    }

    #[test]
    fn modules_within_each_other_take_their_number_times_its_logarithm() {
        let count = 1 << 12;
        let modules: Vec<Module> = (0..count)
            .map(|i| {
                module(
                    i,
                    i.into(),
                    u64::from(2 * count - i),
                    i,
                    Some(2 * count - i),
                )
            })
            .collect();
        let map = ModuleMap::new(&modules);
        let steps: usize = map.nodes.iter().map(Vec::len).sum();
        assert!(steps < 2 * 2 * 13 * count as usize, "{steps}");
        let middle = map.find(&modules, count.into(), count - 1);
        assert_eq!(middle, Some(ModuleId(count - 1)));
    }
}
