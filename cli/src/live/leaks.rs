//! Objects of a running process that nothing in it leads to any more.
//!
//! Its threads are stopped while that is found out, and nothing runs in it. Some of them may be in the
//! middle of an allocation then; so what seems lost is looked at once more when they have run on, and
//! counts if it still does. Which of the objects hang from others is looked at when the threads run
//! again: nobody can change them.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::objects::{Bits, Objects, Slot};
use super::reach::{self, Reach};
use super::residence::Residence;
use super::stopped::Stopped;
use super::{Obstacle, Process, find, roots, sites};

/// An object that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakedObject {
    /// Of `Leaks::stacks`, if it was sampled.
    pub stack: Option<u32>,
    /// That were asked for; without a stack, what it may use.
    pub bytes: u64,
    /// Others that it points to, by their places in the list.
    pub points_to: Vec<u32>,
}

#[derive(Debug)]
pub struct Stack {
    /// Return addresses, the innermost first.
    pub frames: Vec<u64>,
    pub truncated: bool,
}

#[derive(Debug)]
pub struct Leaks {
    pub objects: Vec<LeakedObject>,
    pub stacks: Vec<Stack>,
    /// Objects that are reached, and their bytes.
    pub reached: (u64, u64),
    pub threads: usize,
    pub stopped: Duration,
    /// Each object has a stack: the process was started with HEAPCHECK.
    pub everything: bool,
    /// Heaps that fork has left behind.
    pub dead_heaps: usize,
}

pub fn look(process: &Process) -> Result<Leaks, Obstacle> {
    if find::several(&process.memory)? {
        return Err(Obstacle::Several);
    }
    let mut look = Look::take(process)?;
    if !look.lost.is_empty() {
        look.wait_for_threads(process);
        let first = std::mem::replace(&mut look, Look::take(process)?);
        let places = first.lost.iter().map(|slot| first.objects.place(*slot).0);
        let known: FxHashSet<u64> = places.collect();
        let objects = &look.objects;
        look.lost
            .retain(|slot| known.contains(&objects.place(*slot).0));
        look.stopped = look.stopped.max(first.stopped);
    }
    let mut leaks = Leaks {
        objects: Vec::new(),
        stacks: Vec::new(),
        reached: look.reached,
        threads: look.threads,
        stopped: look.stopped,
        everything: look.objects.everything,
        dead_heaps: look.objects.dead_heaps,
    };
    let mut residence = Residence::open(&process.memory)?;
    leaks.describe(process, &look.objects, &mut residence, &look.lost)?;
    Ok(leaks)
}

/// What one stop of the process shows. What a thread has taken from one list and not yet put on
/// another, or not yet returned, looks lost.
struct Look {
    objects: Objects,
    lost: Vec<Slot>,
    reached: (u64, u64),
    threads: usize,
    /// Those that were not in a system call, and the nanoseconds that they have run.
    running: Vec<(i32, u64)>,
    stopped: Duration,
}

impl Look {
    fn take(process: &Process) -> Result<Self, Obstacle> {
        let (memory, anchor) = (&process.memory, &process.anchor);
        let mut residence = Residence::open(memory)?;
        let begin = Instant::now();
        let stopped = Stopped::stop(memory)?;
        // It may have become another program meanwhile.
        if !anchor.is_there(memory)? {
            return Err(Obstacle::Ended);
        }
        let objects = Objects::read(memory, anchor, &mut residence)?;
        let reached = reach_all(process, &stopped, &objects, &mut residence)?;
        // What was read of a process that was killed meanwhile says nothing.
        if !anchor.is_there(memory)? {
            return Err(Obstacle::Ended);
        }
        let running = stopped.threads.iter().filter(|thread| !thread.in_call);
        let running = running.filter_map(|thread| Some((thread.id, time_of(process, thread.id)?)));
        let mut look = Self {
            lost: Vec::new(),
            reached: (0, 0),
            threads: stopped.threads.len(),
            running: running.collect(),
            stopped: Duration::ZERO,
            objects,
        };
        drop(stopped);
        look.stopped = begin.elapsed();
        for slot in look.objects.each() {
            if reached.has(look.objects.number(slot)) {
                look.reached.0 += 1;
                look.reached.1 += bytes_of(&look.objects, slot);
            } else {
                look.lost.push(slot);
            }
        }
        Ok(look)
    }

    /// Until each thread has run on by more than an allocation takes, or does not get to.
    fn wait_for_threads(&self, process: &Process) {
        const ENOUGH_NS: u64 = 200_000;
        const PATIENCE: Duration = Duration::from_millis(500);
        let begin = Instant::now();
        let has_run = |(id, before): &(i32, u64)| {
            time_of(process, *id).is_none_or(|now| now >= before.saturating_add(ENOUGH_NS))
        };
        loop {
            std::thread::sleep(Duration::from_millis(2));
            if self.running.iter().all(has_run) || begin.elapsed() > PATIENCE {
                return;
            }
        }
    }
}

/// What the thread has run, in nanoseconds.
fn time_of(process: &Process, thread: i32) -> Option<u64> {
    let text = process
        .memory
        .text(&format!("task/{thread}/schedstat"))
        .ok()?;
    let first = text.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(first).ok()?.parse().ok()
}

fn bytes_of(objects: &Objects, slot: Slot) -> u64 {
    match objects.marks.get(&objects.number(slot)) {
        Some(marked) => marked.bytes,
        None => objects.place(slot).1,
    }
}

fn reach_all(
    process: &Process,
    stopped: &Stopped,
    objects: &Objects,
    residence: &mut Residence,
) -> Result<Bits, Obstacle> {
    let ranges = roots::roots(&process.memory, stopped, &objects.covered, residence)?;
    let mut reach = Reach::new(&process.memory, objects, residence);
    for thread in &stopped.threads {
        reach.add_words(&thread.registers);
    }
    reach.add_ranges(&ranges);
    reach.add_objects(&objects.exempt);
    let reached = reach.reached;
    // Else not all that large objects point to was seen.
    match residence.is_complete() {
        true => Ok(reached),
        false => Err(Obstacle::Unsound("the size of its address space")),
    }
}

impl Leaks {
    /// Takes the objects in, with their stacks and what they point to.
    fn describe(
        &mut self,
        process: &Process,
        objects: &Objects,
        residence: &mut Residence,
        lost: &[Slot],
    ) -> Result<(), Obstacle> {
        let edges = reach::edges(&process.memory, objects, residence, lost);
        let mut known: FxHashMap<u64, Option<u32>> = FxHashMap::default();
        let mut reader = sites::Reader::new(&process.memory, &process.anchor)?;
        let mut stack_of = |stacks: &mut Vec<Stack>, site: u64| {
            *known.entry(site).or_insert_with(|| {
                let (_, read) = reader.site(site).ok()?;
                let read = read?;
                stacks.push(Stack {
                    frames: read.frames,
                    truncated: read.truncated,
                });
                Some(stacks.len() as u32 - 1)
            })
        };
        for (slot, points_to) in lost.iter().zip(edges) {
            let marked = objects.marks.get(&objects.number(*slot));
            self.objects.push(LeakedObject {
                stack: marked.and_then(|marked| stack_of(&mut self.stacks, marked.site)),
                bytes: bytes_of(objects, *slot),
                points_to,
            });
        }
        Ok(())
    }
}
