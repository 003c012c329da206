//! The samples of `bench/sampler.c` and `debugger.py`, and the trace's stacks for the same calls.

use std::collections::HashMap;
use std::path::Path;

use larder_trace::{Action, MarkId, StackId, Trace, TraceError, trace_files};

/// A process, and the number of one of its samples.
pub type Key = (u64, u64);

/// Addresses, innermost first.
pub type Addresses = Vec<u64>;

/// A stack of the trace.
#[derive(Debug, PartialEq)]
pub struct Recorded {
    pub addresses: Addresses,
    /// The recorder reports that it reaches the thread's first function.
    pub complete: bool,
}

const HEAD_WORDS: usize = 3;

/// Complete records; a truncated one at the end is left out.
pub fn parse(bytes: &[u8]) -> HashMap<Key, Addresses> {
    let words: Vec<u64> = bytes
        .chunks_exact(size_of::<u64>())
        .filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes))
        .collect();
    let mut samples = HashMap::new();
    let mut rest = words.as_slice();
    while let Some((&[process, number, count], behind)) = rest.split_first_chunk::<HEAD_WORDS>() {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Some((addresses, next)) = behind.split_at_checked(count) else {
            break;
        };
        samples.insert((process, number), addresses.to_vec());
        rest = next;
    }
    samples
}

/// The stack of each marked call in a trace: the mark is the thread's previous call.
pub fn recorded(directory: &Path) -> Result<HashMap<Key, Recorded>, TraceError> {
    let mut found = HashMap::new();
    for file in trace_files(directory)? {
        let trace = Trace::open(&file)?;
        let process = u64::from(trace.process().pid);
        let mut events = trace.events();
        let mut marks: HashMap<u32, MarkId> = HashMap::new();
        while let Some(event) = events.next() {
            let stack = match event.action {
                Action::Mark { name } => {
                    marks.insert(event.thread, name);
                    continue;
                }
                Action::Alloc { stack, .. } | Action::ReallocStart { stack, .. } => Some(stack),
                _ => None,
            };
            let mark = marks.remove(&event.thread);
            let (Some(mark), Some(stack)) = (mark, stack) else {
                continue;
            };
            let name = std::str::from_utf8(events.mark_name(mark)).unwrap_or_default();
            let Ok(number) = u64::from_str_radix(name, 16) else {
                continue;
            };
            let stacks = events.stacks();
            let recorded = Recorded {
                addresses: stacks.frames(stack).map(|frame| frame.address).collect(),
                complete: stacks.root(stack) == StackId::COMPLETE_ROOT,
            };
            found.insert((process, number), recorded);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_records_are_read() {
        let words = [7u64, 1, 2, 0xa, 0xb, 7, 2, 0, 7, 3, 5, 0xc];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let samples = parse(&bytes[..bytes.len() - 3]);
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[&(7, 1)], [0xa, 0xb]);
        assert!(samples[&(7, 2)].is_empty());
    }
}
