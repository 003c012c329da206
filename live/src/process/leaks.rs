//! Objects of a running process that no pointer in it leads to.
//!
//! The threads are stopped during the check. Some may be in the middle of an allocation, so a second
//! check follows after they have continued: an object is leaked if it is unreachable in both. Which
//! leaked objects point to others is read while the threads run, because no thread can change them.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::globals::{self, Data, Split};
use super::memory::Memory;
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
    /// The bytes that were requested; without a stack, the usable bytes.
    pub bytes: u64,
    /// Other leaked objects that it points to, by their index in the list.
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
    /// Only from data of the program and its libraries.
    pub by_globals_alone: Sum,
    /// Only from data of the C++ library: its emergency reserve.
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
    /// Heaps of threads that did not survive fork.
    pub orphaned_heaps: usize,
}

pub fn check(process: &Process) -> Result<Leaks, Obstacle> {
    if find::several(&process.memory)? {
        return Err(Obstacle::Several);
    }
    let data = globals::globals(&process.memory, &process.mappings()?);
    let mut snapshot = Snapshot::take(process, &data)?;
    if !snapshot.lost.is_empty() {
        snapshot.wait_for_threads(process);
        let first = std::mem::replace(&mut snapshot, Snapshot::take(process, &data)?);
        let places = first.lost.iter().map(|slot| first.objects.place(*slot).0);
        let known: FxHashSet<u64> = places.collect();
        let objects = &snapshot.objects;
        snapshot
            .lost
            .retain(|slot| known.contains(&objects.place(*slot).0));
        snapshot.stopped = snapshot.stopped.max(first.stopped);
    }
    let mut leaks = Leaks {
        objects: Vec::new(),
        stacks: Vec::new(),
        reached: snapshot.reached,
        threads: snapshot.threads,
        stopped: snapshot.stopped,
        everything: snapshot.objects.everything,
        orphaned_heaps: snapshot.objects.orphaned_heaps,
    };
    let mut residence = Residence::open(&process.memory)?;
    leaks.describe(process, &snapshot.objects, &mut residence, &snapshot.lost)?;
    Ok(leaks)
}

/// The result of one stop. An object that a thread has taken off one list and not yet put on another,
/// or not yet returned, seems lost.
struct Snapshot {
    objects: Objects,
    lost: Vec<Slot>,
    reached: Reached,
    threads: usize,
    /// Each thread, and the nanoseconds that it has run.
    run: Vec<(i32, u64)>,
    stopped: Duration,
}

impl Snapshot {
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
        // The process may have been killed meanwhile: what was read is then meaningless.
        if !anchor.is_there(memory)? {
            return Err(Obstacle::Ended);
        }
        let run = |thread: &Thread| Some((thread.id, time_of(process, thread.id)?));
        let mut snapshot = Self {
            lost: Vec::new(),
            reached: Reached::default(),
            threads: stopped.threads.len(),
            run: stopped.threads.iter().filter_map(run).collect(),
            stopped: Duration::ZERO,
            objects,
        };
        drop(stopped);
        snapshot.stopped = begin.elapsed();
        for slot in snapshot.objects.each() {
            let bytes = bytes_of(&snapshot.objects, slot);
            let number = snapshot.objects.number(slot);
            let reached = &mut snapshot.reached;
            match stages.iter().position(|stage| stage.has(number)) {
                Some(0) => {}
                Some(1) => reached.by_globals_alone.add(bytes),
                Some(_) => reached.by_cxx_library_alone.add(bytes),
                None => {
                    snapshot.lost.push(slot);
                    continue;
                }
            }
            reached.all.add(bytes);
        }
        Ok(snapshot)
    }

    /// Waits until each thread has run for longer than an allocation takes or sleeps outside of the
    /// allocator, up to `PATIENCE`.
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

/// The time that the thread has run, in nanoseconds.
fn time_of(process: &Process, thread: i32) -> Option<u64> {
    let text = process
        .memory
        .text(&format!("task/{thread}/schedstat"))
        .ok()?;
    let first = text.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(first).ok()?.parse().ok()
}

/// Whether it waits in a system call that the allocator does not make while objects are in transit.
fn sleeps_elsewhere(process: &Process, thread: i32) -> bool {
    let call = process.memory.text(&format!("task/{thread}/syscall")).ok();
    let Some(call) = call.as_deref().and_then(Call::parse) else {
        return false;
    };
    match call.number {
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mremap | libc::SYS_madvise => false,
        // Not the word itself: once the lock is free, the thread is only about to continue.
        libc::SYS_futex => !is_contended_lock(call.third as u32),
        _ => true,
    }
}

/// Like in alloc/os/lock.h: the holder's number, and the bit for a thread that waits.
fn is_contended_lock(word: u32) -> bool {
    const CONTENDED: u32 = 1 << 31;
    word > CONTENDED
}

/// A system call that a thread waits in.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    number: libc::c_long,
    /// Its third argument: of a futex call, the value that the word had.
    third: u64,
}

impl Call {
    /// Parses `syscall` of a thread's folder; `None` if the thread runs, or waits outside of a call.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let third = u64::from_str_radix(words.nth(2)?.strip_prefix("0x")?, 16).ok()?;
        Some(Self { number, third })
    }
}

fn bytes_of(objects: &Objects, slot: Slot) -> u64 {
    match objects.sampled.get(&objects.number(slot)) {
        Some(marked) => marked.bytes,
        None => objects.place(slot).1,
    }
}

/// Objects that are reachable from threads and anonymous memory; also from globals; also from the C++
/// library's data: all.
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
    // Otherwise large objects were not scanned completely.
    match residence.is_complete() {
        true => Ok([by_threads, by_globals, all]),
        false => Err(Obstacle::Unsound("the size of its address space")),
    }
}

impl Leaks {
    /// Adds the objects, with their stacks and what they point to.
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
            let marked = objects.sampled.get(&objects.number(*slot));
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
    fn the_call_that_a_thread_sleeps_in_is_parsed() {
        let call = |text: &str| Call::parse(text.as_bytes());
        let of = |number, third| Some(Call { number, third });
        assert_eq!(call("0 0x4 0x7ffd 0x1 0x0 0x0 0x0 0x7f 0x7f\n"), of(0, 1));
        assert_eq!(call("202 0x7f 0x80 0x80000002\n"), of(202, 0x8000_0002));
        for none in [
            "",
            "running\n",
            "-1 0x7ffd 0x7f\n",
            "0",
            "x 0x1 0x2 0x3",
            "0 1 2 3",
        ] {
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
