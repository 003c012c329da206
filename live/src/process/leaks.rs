//! Objects of a running process that nothing in it leads to any more.
//!
//! Its threads are stopped while that is found out, and nothing runs in it. Some of them may be in the
//! middle of an allocation then; so what seems lost is looked at once more when they have run on, and
//! counts if it still does. Which of the objects hang from others is looked at when the threads run
//! again: nobody can change them.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::globals::{self, Data, Split};
use super::memory::{Fields, Memory};
use super::objects::{Bits, Objects, Slot};
use super::reach::{self, Reach};
use super::residence::Residence;
use super::stopped::{Stopped, Thread};
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub objects: u64,
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// Objects that can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub all: Sum,
    /// From data of the program and its libraries, and from nothing else.
    pub by_globals_alone: Sum,
    /// From data of the C++ library, and from nothing else: what it has in reserve.
    pub by_cxx_library_alone: Sum,
}

#[derive(Debug)]
pub struct Leaks {
    pub objects: Vec<LeakedObject>,
    pub stacks: Vec<Stack>,
    pub reached: Reached,
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
    let data = globals::globals(&process.memory, &process.mappings()?);
    let mut look = Look::take(process, &data)?;
    if !look.lost.is_empty() {
        look.wait_for_threads(process);
        let first = std::mem::replace(&mut look, Look::take(process, &data)?);
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
    reached: Reached,
    threads: usize,
    /// Of each thread, the nanoseconds that it has run.
    run: Vec<(i32, u64)>,
    stopped: Duration,
}

impl Look {
    fn take(process: &Process, data: &[Data]) -> Result<Self, Obstacle> {
        let (memory, anchor) = (&process.memory, &process.anchor);
        let mut residence = Residence::open(memory)?;
        let begin = Instant::now();
        let stopped = Stopped::stop(memory)?;
        // It may have become another program meanwhile.
        if !anchor.is_there(memory)? {
            return Err(Obstacle::Ended);
        }
        let objects = Objects::read(memory, anchor, &mut residence)?;
        let stages = reach_all(memory, &stopped, &objects, data, &mut residence)?;
        // What was read of a process that was killed meanwhile says nothing.
        if !anchor.is_there(memory)? {
            return Err(Obstacle::Ended);
        }
        let run = |thread: &Thread| Some((thread.id, time_of(process, thread.id)?));
        let mut look = Self {
            lost: Vec::new(),
            reached: Reached::default(),
            threads: stopped.threads.len(),
            run: stopped.threads.iter().filter_map(run).collect(),
            stopped: Duration::ZERO,
            objects,
        };
        drop(stopped);
        look.stopped = begin.elapsed();
        for slot in look.objects.each() {
            let bytes = bytes_of(&look.objects, slot);
            let number = look.objects.number(slot);
            let reached = &mut look.reached;
            match stages.iter().position(|stage| stage.has(number)) {
                Some(0) => {}
                Some(1) => reached.by_globals_alone.add(bytes),
                Some(_) => reached.by_cxx_library_alone.add(bytes),
                None => {
                    look.lost.push(slot);
                    continue;
                }
            }
            reached.all.add(bytes);
        }
        Ok(look)
    }

    /// Until each thread has run on by more than an allocation takes, or sleeps outside of the
    /// allocator, or does not get to.
    fn wait_for_threads(&self, process: &Process) {
        const ENOUGH_NS: u64 = 200_000;
        const PATIENCE: Duration = Duration::from_secs(1);
        let begin = Instant::now();
        let has_run = |(id, before): &(i32, u64)| {
            let now = time_of(process, *id);
            now.is_none_or(|now| now >= before.saturating_add(ENOUGH_NS))
                || sleeps_elsewhere(process, *id)
        };
        loop {
            std::thread::sleep(Duration::from_millis(2));
            if self.run.iter().all(has_run) || begin.elapsed() > PATIENCE {
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

/// Whether it waits in a system call that the allocator does not make while it has objects in hand.
fn sleeps_elsewhere(process: &Process, thread: i32) -> bool {
    let call = process.memory.text(&format!("task/{thread}/syscall")).ok();
    let Some(call) = call.as_deref().and_then(Call::parse) else {
        return false;
    };
    match call.number {
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mremap | libc::SYS_madvise => false,
        libc::SYS_futex => {
            let word = process.memory.bytes(call.first, 4);
            !word.is_ok_and(|word| is_contended_lock(Fields(&word).u32(0)))
        }
        _ => true,
    }
}

/// As alloc/os/lock.h has it: the holder's number, and that somebody waits.
fn is_contended_lock(word: u32) -> bool {
    const CONTENDED: u32 = 1 << 31;
    word > CONTENDED
}

/// A system call that a thread waits in.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    number: libc::c_long,
    first: u64,
}

impl Call {
    /// Of `syscall` in a thread's folder; `None` where the thread runs, or waits outside of a call.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(Self { number, first })
    }
}

fn bytes_of(objects: &Objects, slot: Slot) -> u64 {
    match objects.marks.get(&objects.number(slot)) {
        Some(marked) => marked.bytes,
        None => objects.place(slot).1,
    }
}

/// What threads and memory without a name reach; that, and what globals reach; that, and what those
/// of the C++ library reach: all.
pub fn reach_all(
    memory: &Memory,
    stopped: &Stopped,
    objects: &Objects,
    data: &[Data],
    residence: &mut Residence,
) -> Result<[Bits; 3], Obstacle> {
    let ranges = roots::roots(memory, stopped, &objects.covered, residence)?;
    let split = Split::of(&ranges, data);
    let mut reach = Reach::new(memory, objects, residence);
    for thread in &stopped.threads {
        reach.add_words(&thread.registers);
    }
    reach.add_ranges(&split.other);
    reach.add_objects(&objects.exempt);
    let by_threads = reach.reached.clone();
    reach.add_ranges(&split.globals);
    reach.add_ranges(&split.c_library);
    let by_globals = reach.reached.clone();
    reach.add_ranges(&split.cxx_library);
    let all = reach.reached;
    // Else not all that large objects point to was seen.
    match residence.is_complete() {
        true => Ok([by_threads, by_globals, all]),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_says_in_which_call() {
        let call = |text: &str| Call::parse(text.as_bytes());
        let of = |number, first| Some(Call { number, first });
        assert_eq!(call("0 0x4 0x7ffd 0x1 0x0 0x0 0x0 0x7f 0x7f\n"), of(0, 4));
        assert_eq!(call("202 0xffffffff 0x80\n"), of(202, 0xffff_ffff));
        for none in ["", "running\n", "-1 0x7ffd 0x7f\n", "0", "x 0x1", "0 1"] {
            assert_eq!(call(none), None, "{none}");
        }
    }

    #[test]
    fn a_lock_is_contended_if_it_is_held_and_waited_for() {
        assert!(is_contended_lock(1 << 31 | 7));
        for other in [0, 1, 2, 7, 1 << 31] {
            assert!(!is_contended_lock(other), "{other}");
        }
    }
}
