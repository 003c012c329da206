//! What a running process has leaked, as a profile, and the objects without a stack.

use std::collections::BTreeMap;
use std::io::{self, Write};

use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::suppressions::Suppressions;
use larder_base::failure::Result;

use crate::process::{Leaks, Reached};
use crate::profile::heap::{Estimate, Figures, HeapProfile, LeakCheck, Origin, ProfiledStack};
use crate::profile::running;
use crate::profile::sites::Profiled;

/// The check of a running process.
pub struct Running {
    pub title: String,
    pub threads: usize,
    pub stopped_ms: f64,
    /// Each object has a stack.
    pub everything: bool,
    pub orphaned_heaps: usize,
    pub reached: Reached,
    /// Objects without a stack, by their usable size.
    pub sizes: BTreeMap<u64, Figures>,
}

pub fn check(id: u32, suppressions: &Suppressions) -> Result<(HeapProfile, Running)> {
    let process = running::open(id)?;
    let title = running::title(&process);
    let leaks = process.leaks().map_err(|obstacle| obstacle.failure(id))?;
    let mappings = running::mappings(&process).map_err(|obstacle| obstacle.failure(id))?;
    let reached = leaks.reached.all;
    let mut profile = HeapProfile {
        origin: Origin::Exact,
        process: Some(id),
        mappings,
        stacks: leaks
            .stacks
            .iter()
            .map(|stack| ProfiledStack {
                frames: stack.frames.clone(),
                truncated: stack.truncated,
                figures: Figures::default(),
            })
            .collect(),
        leaks: Some(LeakCheck {
            reachable: estimate(reached.objects, reached.bytes),
            threads_ran: false,
        }),
        ..HeapProfile::default()
    };
    let known = suppressed_stacks(&profile, suppressions);
    let left_out = left_out(&leaks, &known, suppressions);
    let mut sizes = BTreeMap::new();
    for (object, indirect) in indirect(&leaks, &left_out) {
        let one = estimate(1, object.bytes);
        let figures = match object
            .stack
            .and_then(|i| profile.stacks.get_mut(i as usize))
        {
            Some(stack) => &mut stack.figures,
            None => sizes
                .entry(size_class(object.bytes))
                .or_insert_with(Figures::default),
        };
        figures.in_use.add(one);
        if indirect {
            figures.indirect.add(one);
        }
    }
    profile
        .stacks
        .retain(|stack| stack.figures.in_use.objects > 0.0);
    let running = Running {
        title,
        threads: leaks.threads,
        stopped_ms: leaks.stopped.as_secs_f64() * 1e3,
        everything: leaks.everything,
        orphaned_heaps: leaks.orphaned_heaps,
        reached: leaks.reached,
        sizes,
    };
    Ok((profile, running))
}

fn estimate(objects: u64, bytes: u64) -> Estimate {
    Estimate {
        objects: objects as f64,
        bytes: bytes as f64,
    }
}

/// The exact size of a small object; for a large one, the next power of two.
fn size_class(bytes: u64) -> u64 {
    match bytes <= 64 << 10 {
        true => bytes,
        false => bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
    }
}

/// For each stack, which of the suppressions match it.
fn suppressed_stacks(profile: &HeapProfile, list: &Suppressions) -> Vec<Option<usize>> {
    let profiled = Profiled::new(Charging::default(), std::slice::from_ref(profile), None);
    let rows = profiled.rows.iter();
    rows.map(|row| list.find(&row.chain)).collect()
}

/// The objects that are suppressed, and what is reachable from them. Reports them on stderr.
fn left_out(leaks: &Leaks, known: &[Option<usize>], list: &Suppressions) -> Vec<bool> {
    let mut left_out = vec![false; leaks.objects.len()];
    let mut used: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let mut waiting = Vec::new();
    for (i, object) in leaks.objects.iter().enumerate() {
        let by = object.stack.and_then(|stack| *known.get(stack as usize)?);
        if let Some(by) = by {
            let sum = used.entry(by).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(object.bytes));
            waiting.push(i as u32);
        }
    }
    flood(leaks, waiting, &mut left_out);
    for (by, (objects, bytes)) in used {
        if let Some(suppression) = list.0.get(by) {
            // There is nowhere to report a closed stderr.
            let _ = writeln!(
                io::stderr(),
                "larder: {}",
                suppression.describe(objects, bytes)
            );
        }
    }
    left_out
}

fn flood(leaks: &Leaks, mut waiting: Vec<u32>, met: &mut [bool]) {
    while let Some(i) = waiting.pop() {
        let Some(is_new) = met.get_mut(i as usize).filter(|met| !**met) else {
            continue;
        };
        *is_new = true;
        let object = leaks.objects.get(i as usize);
        waiting.extend(object.into_iter().flat_map(|object| &object.points_to));
    }
}

/// The remaining objects, and whether each is reachable from another. In a cycle, the first object
/// found is the root, and the others are reachable from it, also if they were taken for roots before.
fn indirect<'a>(
    leaks: &'a Leaks,
    left_out: &'a [bool],
) -> impl Iterator<Item = (&'a crate::process::LeakedObject, bool)> {
    let mut met = left_out.to_vec();
    let mut indirect = vec![false; leaks.objects.len()];
    for beginning in 0..leaks.objects.len() {
        if met.get(beginning) != Some(&false) {
            continue;
        }
        let mut waiting = vec![beginning];
        met[beginning] = true;
        while let Some(i) = waiting.pop() {
            for to in leaks.objects[i].points_to.iter().map(|to| *to as usize) {
                if to == beginning || left_out[to] {
                    continue;
                }
                indirect[to] = true;
                if !met[to] {
                    met[to] = true;
                    waiting.push(to);
                }
            }
        }
    }
    let objects = leaks.objects.iter().zip(indirect).zip(left_out);
    objects
        .filter(|(_, left_out)| !**left_out)
        .map(|(object, _)| object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::LeakedObject;
    use std::time::Duration;

    fn leaks(edges: &[&[u32]]) -> Leaks {
        let object = |points_to: &&[u32]| LeakedObject {
            stack: None,
            bytes: 8,
            points_to: points_to.to_vec(),
        };
        Leaks {
            objects: edges.iter().map(object).collect(),
            stacks: Vec::new(),
            reached: Reached::default(),
            threads: 1,
            stopped: Duration::ZERO,
            everything: true,
            orphaned_heaps: 0,
        }
    }

    fn hang(edges: &[&[u32]], left_out: &[bool]) -> Vec<bool> {
        indirect(&leaks(edges), left_out)
            .map(|(_, indirect)| indirect)
            .collect()
    }

    #[test]
    fn one_of_a_ring_stands_for_it_and_a_list_hangs_from_its_head() {
        assert_eq!(hang(&[&[1], &[2], &[]], &[false; 3]), [false, true, true]);
        assert_eq!(hang(&[&[], &[0], &[1]], &[false; 3]), [true, true, false]);
        assert_eq!(hang(&[&[1], &[2], &[0]], &[false; 3]), [false, true, true]);
        assert_eq!(hang(&[&[1], &[0], &[0]], &[false; 3]), [true, true, false]);
        assert_eq!(hang(&[&[1], &[]], &[true, false]), [false]);
    }

    #[test]
    fn what_is_known_takes_along_what_it_leads_to() {
        let mut leaks = leaks(&[&[1], &[0, 2], &[], &[]]);
        leaks.objects[0].stack = Some(0);
        assert_eq!(
            left_out(&leaks, &[Some(7)], &Suppressions::default()),
            [true, true, true, false]
        );
        let none = left_out(&leaks, &[None], &Suppressions::default());
        assert_eq!(none, [false; 4]);
    }
}
