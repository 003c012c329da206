//! The work of a run: the marks that it passed, and its system calls.

use std::collections::BTreeMap;

use larder_base::order;
use larder_trace::{Action, Event, Events, SystemCall};

use super::observe::Observer;

/// The largest number of distinct marks; further ones are ignored.
const MOST_MARKS: usize = 1024;

/// The program's own marks, and how often it passed each.
#[derive(Debug, Default)]
pub struct Marks(BTreeMap<Vec<u8>, u64>);

impl Marks {
    pub fn pass(&mut self, name: &[u8]) {
        if let Some(passes) = self.0.get_mut(name) {
            *passes += 1;
        } else if self.0.len() < MOST_MARKS {
            self.0.insert(name.to_vec(), 1);
        }
    }

    pub fn of(&self, name: &[u8]) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The marks, those passed most often first.
    pub fn ranked(&self) -> Vec<(&[u8], u64)> {
        let passes = self.0.iter().map(|(name, passes)| (&**name, *passes));
        let mut ranked: Vec<_> = passes.collect();
        order::sort_by_key(&mut ranked, |(_, passes)| std::cmp::Reverse(*passes));
        ranked
    }
}

/// System calls, as far as they were recorded; without those that the vDSO mostly answers.
#[derive(Clone, Debug, Default)]
pub struct Io {
    pub calls: BTreeMap<SystemCall, u64>,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Io {
    pub fn add(&mut self, call: SystemCall, result: i64) {
        if call.is_virtual() {
            return;
        }
        *self.calls.entry(call).or_default() += 1;
        let bytes = u64::try_from(result).unwrap_or(0);
        match call {
            _ if call.reads() => self.read_bytes = self.read_bytes.saturating_add(bytes),
            _ if call.writes() => self.written_bytes = self.written_bytes.saturating_add(bytes),
            _ => {}
        }
    }

    pub fn all_calls(&self) -> u64 {
        self.calls.values().fold(0, |a, b| a.saturating_add(*b))
    }

    pub fn merge(&mut self, other: &Io) {
        for (call, count) in &other.calls {
            *self.calls.entry(*call).or_default() += count;
        }
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
    }
}

/// The work of all process images of a trace.
#[derive(Debug, Default)]
pub struct Work {
    pub marks: Marks,
    pub io: Io,
}

impl Observer for Work {
    type Note = ();
    const WILL_DO_WITH_COUNTERS: bool = true;

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        match event.action {
            Action::Mark { name } => self.marks.pass(events.mark_name(name)),
            Action::SystemCall { call, result, .. } => self.io.add(call, result),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_beyond_the_most_are_left_out_and_the_known_ones_counted_on() {
        let mut marks = Marks::default();
        for number in 0..=MOST_MARKS {
            marks.pass(number.to_string().as_bytes());
        }
        marks.pass(b"7");
        assert_eq!((marks.of(b"7"), marks.ranked().len()), (2, MOST_MARKS));
        assert_eq!(marks.of(MOST_MARKS.to_string().as_bytes()), 0);
        assert_eq!(marks.ranked().first(), Some(&(&b"7"[..], 2)));
    }
}
