//! Memory of a stopped process, outside of the heap, that may hold pointers into it.
//!
//! Like in alloc/leak/roots.cc: every private page that was ever written, except stacks below the stack
//! pointer and the stacks of threads that have ended.

use super::Obstacle;
use super::anchor::{DESCRIPTOR_SEARCH_BYTES, RED_ZONE, THREAD_BYTES};
use super::maps::{self, Mapping};
use super::memory::{Fields, Memory};
use super::residence::Residence;
use super::stopped::Stopped;

/// Ranges by address, without `covered`, which is sorted by address, too.
pub fn roots(
    memory: &Memory,
    stopped: &Stopped,
    covered: &[(u64, u64)],
    residence: &mut Residence,
) -> Result<Vec<(u64, u64)>, Obstacle> {
    let mut found = Vec::new();
    let mut guard = 0;
    for mapping in maps::read(memory)? {
        if !mapping.readable {
            guard = mapping.end;
            continue;
        }
        let guarded = guard == mapping.start;
        if mapping.shared || is_device(&mapping) || is_kernels(&mapping) {
            continue;
        }
        let begin = match live_stack(&mapping, stopped) {
            Part::From(begin) => begin,
            Part::LeftStack if guarded && mapping.writable => {
                left_stack(memory, &mapping, residence, &mut found)
            }
            Part::LeftStack => mapping.start,
        };
        outside(begin, mapping.end, covered, |from, to| {
            residence.parts(from, to, true, |from, to| found.push((from, to)));
        });
    }
    match residence.is_complete() {
        true => Ok(found),
        false => Err(Obstacle::Unsound("the size of its address space")),
    }
}

fn is_device(mapping: &Mapping) -> bool {
    mapping.path.starts_with(b"/dev/") && !mapping.path.starts_with(b"/dev/zero")
}

fn is_kernels(mapping: &Mapping) -> bool {
    [&b"[vdso]"[..], b"[vvar", b"[vsyscall]"]
        .iter()
        .any(|name| mapping.path.starts_with(name))
}

enum Part {
    From(u64),
    /// No thread's stack pointer is here: it may be the stack of a thread that has ended.
    LeftStack,
}

fn live_stack(mapping: &Mapping, stopped: &Stopped) -> Part {
    let holds = |address: u64| (mapping.start..mapping.end).contains(&address);
    let is_main = mapping.path == b"[stack]";
    let (mut of_thread, mut begin) = (false, None::<u64>);
    for thread in &stopped.threads {
        of_thread |= holds(thread.stack_pointer) || holds(thread.thread_pointer);
        // A thread may run on memory that the program provided, which holds more than its stack.
        if holds(thread.stack_pointer) && (is_main || holds(thread.thread_pointer)) {
            let live = thread
                .stack_pointer
                .saturating_sub(RED_ZONE)
                .max(mapping.start);
            begin = Some(begin.map_or(live, |before| before.min(live)));
        }
    }
    match (of_thread, begin) {
        (false, _) => Part::LeftStack,
        (true, begin) => Part::From(begin.unwrap_or(mapping.start)),
    }
}

/// glibc caches the stack of a thread that has ended. Only the table of thread-local storage in it is
/// still in use. Returns where the thread's descriptor ends, or the start of the mapping.
fn left_stack(
    memory: &Memory,
    mapping: &Mapping,
    residence: &mut Residence,
    roots: &mut Vec<(u64, u64)>,
) -> u64 {
    if cfg!(not(target_arch = "x86_64")) {
        return mapping.start;
    }
    let lowest = mapping
        .start
        .max(mapping.end.saturating_sub(DESCRIPTOR_SEARCH_BYTES));
    let mut parts = Vec::new();
    residence.parts(lowest, mapping.end, true, |from, to| parts.push((from, to)));
    for (from, to) in parts.into_iter().rev() {
        let Ok(bytes) = memory.bytes(from, (to - from) as usize) else {
            continue;
        };
        // The descriptor begins with its own address, and repeats it behind the table's address.
        let fields = Fields(&bytes);
        let own = |at: &u64| {
            let offset = (at - from) as usize;
            fields.u64(offset) == *at && fields.u64(offset + 16) == *at
        };
        let places = (from.next_multiple_of(64)..to).step_by(64);
        if let Some(at) = places.filter(own).last() {
            roots.push((at + 8, at + 16));
            return mapping.end.min(at + THREAD_BYTES);
        }
    }
    mapping.start
}

/// The parts of the range that are in none of `others`, which are disjoint and sorted by address.
fn outside(begin: u64, end: u64, others: &[(u64, u64)], mut visit: impl FnMut(u64, u64)) {
    let mut from = begin;
    let first = others.partition_point(|(_, stop)| *stop <= begin);
    let rest = others.get(first..).unwrap_or_default().iter();
    for (start, stop) in rest.take_while(|(start, _)| *start < end) {
        if *start > from {
            visit(from, *start);
        }
        from = from.max(*stop);
    }
    if from < end {
        visit(from, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_is_cut_out() {
        let cut = |begin, end, others: &[(u64, u64)]| {
            let mut found = Vec::new();
            outside(begin, end, others, |from, to| found.push((from, to)));
            found
        };
        assert_eq!(cut(10, 20, &[]), [(10, 20)]);
        assert_eq!(cut(10, 20, &[(0, 10), (20, 30)]), [(10, 20)]);
        assert_eq!(
            cut(10, 20, &[(5, 13), (15, 16), (20, 30)]),
            [(13, 15), (16, 20)]
        );
        assert_eq!(cut(10, 20, &[(12, 25)]), [(10, 12)]);
        assert_eq!(cut(10, 20, &[(0, 100)]), []);
    }
}
