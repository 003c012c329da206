//! The live blocks of a trace that a stopped process has lost: no pointer leads there.
//!
//! On Larder the objects are read from the heap, like for `leaks`. For another allocator only the trace
//! is known: memory where a block ever was is the heap, and all other memory may hold pointers.

use larder_trace::Trace;

use super::Obstacle;
use super::find;
use super::globals::{self, Split};
use super::leaks::reach_all;
use super::maps::{self, Mapping};
use super::memory::Memory;
use super::objects::Objects;
use super::reach::Reach;
use super::residence::Residence;
use super::roots::roots;
use super::stopped::Stopped;
use super::traced::{Ranges, Traced};

/// A process whose threads are stopped until this is dropped.
pub struct Standing {
    memory: Memory,
    stopped: Stopped,
}

impl Standing {
    pub fn stop(id: u32) -> Result<Self, Obstacle> {
        let memory = Memory::open(id)?;
        let stopped = Stopped::stop(&memory)?;
        Ok(Self { memory, stopped })
    }

    /// Addresses, ascending. `None`: the trace is incomplete, so the live blocks are unknown.
    pub fn lost(&self, trace: &Trace) -> Result<Option<Vec<u64>>, Obstacle> {
        let mappings = maps::read(&self.memory)?;
        let heap = mappings.iter().find(|mapping| mapping.path == b"[heap]");
        let heap = heap.map_or((0, 0), |mapping| (mapping.start, mapping.end));
        let Some(traced) = Traced::read(trace, heap) else {
            return Ok(None);
        };
        let mut residence = Residence::open(&self.memory)?;
        let lost = match find::anchor(&self.memory) {
            Ok(_) if find::several(&self.memory)? => return Err(Obstacle::Several),
            Ok(anchor) => {
                let mut objects = Objects::read(&self.memory, &anchor, &mut residence)?;
                self.lost_of_larder(&mut objects, &traced, &mappings, &mut residence)?
            }
            Err(_) => self.lost_of_any(&traced, &mappings, &mut residence)?,
        };
        // The process may have been killed meanwhile: what was read is then meaningless.
        match self.memory.has_ended() {
            true => Err(Obstacle::Ended),
            false => Ok(Some(lost)),
        }
    }

    fn lost_of_larder(
        &self,
        objects: &mut Objects,
        traced: &Traced,
        mappings: &[Mapping],
        residence: &mut Residence,
    ) -> Result<Vec<u64>, Obstacle> {
        let mut covered = Ranges::default();
        let recorders = self.recorders()?;
        for (begin, end) in objects.covered.iter().chain(&recorders) {
            covered.add(*begin, *end);
        }
        objects.covered = covered.into_vec();
        let data = globals::globals(&self.memory, mappings);
        let [.., reached] = reach_all(&self.memory, &self.stopped, objects, &data, residence)?;
        let is_lost = |address: &u64| {
            let object = objects.find(*address);
            object.is_some_and(|slot| !reached.has(objects.number(slot)))
        };
        Ok(traced.addresses().filter(is_lost).collect())
    }

    fn lost_of_any(
        &self,
        traced: &Traced,
        mappings: &[Mapping],
        residence: &mut Residence,
    ) -> Result<Vec<u64>, Obstacle> {
        let (mut covered, mut heaps) = (Ranges::default(), Vec::new());
        for mapping in mappings.iter().filter(|mapping| self.may_be_heap(mapping)) {
            if traced.once_within(mapping.start, mapping.end, &mut covered) {
                heaps.push((mapping.start, mapping.end));
            }
        }
        traced.each_place(|begin, end| covered.add(begin, end));
        for (begin, end) in self.recorders()? {
            covered.add(begin, end);
        }
        let ranges = roots(&self.memory, &self.stopped, &covered.into_vec(), residence)?;
        let split = Split::of(&ranges, &globals::globals(&self.memory, mappings));
        let is_in_heap = |(begin, _): &(u64, u64)| {
            let holds = |(from, to): &(u64, u64)| (*from..*to).contains(begin);
            heaps.iter().any(holds)
        };
        let (in_heaps, other): (Vec<_>, Vec<_>) = split.other.iter().partition(|r| is_in_heap(r));
        let mut reach = Reach::new(&self.memory, traced, residence);
        for thread in &self.stopped.threads {
            reach.add_words(&thread.registers);
        }
        reach.add_ranges(&other);
        reach.add_ranges(&split.globals);
        reach.add_ranges(&split.cxx_library);
        for ranges in [&in_heaps, &split.c_library] {
            reach.add_ranges_but(ranges, |word| traced.is_header(word));
        }
        let reached = reach.reached;
        if !residence.is_complete() {
            return Err(Obstacle::Unsound("the size of its address space"));
        }
        let numbered = traced.addresses().zip(0..);
        let lost = numbered.filter(|(_, number)| !reached.has(*number));
        Ok(lost.map(|(address, _)| address).collect())
    }

    /// Whether blocks that were there once show that the mapping is the allocator's: it may have been
    /// unmapped, and be a thread's stack by now.
    fn may_be_heap(&self, mapping: &Mapping) -> bool {
        let holds = |address: u64| (mapping.start..mapping.end).contains(&address);
        let threads = &self.stopped.threads;
        let is_stack = threads
            .iter()
            .any(|thread| holds(thread.stack_pointer) || holds(thread.thread_pointer));
        mapping.inode == 0 && !mapping.shared && !is_stack
    }

    /// The recorder's own memory, see `mark_memory` in record/src/sys.rs.
    fn recorders(&self) -> Result<Vec<(u64, u64)>, Obstacle> {
        let text = self.memory.text("smaps")?;
        let (mut found, mut place) = (Vec::new(), None);
        for line in text.split(|byte| *byte == b'\n') {
            match line.strip_prefix(b"VmFlags:") {
                Some(flags) => {
                    let mut flags = flags.split(|byte| *byte == b' ');
                    let marks = [&b"dd"[..], b"rr"];
                    let marked = flags.by_ref().filter(|flag| marks.contains(flag)).count();
                    found.extend(place.filter(|_| marked == marks.len()));
                }
                None => place = maps::place(line).or(place),
            }
        }
        Ok(found)
    }
}
