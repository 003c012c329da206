//! Compares recorded stacks with those of another unwinder, frame by frame.

use std::collections::HashMap;

use super::samples::{Addresses, Key, Recorded};
use larder_base::order;
use larder_trace::symbols::PYTHON_ADDRESSES;

/// How a recorded stack differs from the other unwinder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    /// It has a frame that the other lacks, or ends before the other and claims to be complete.
    False,
    /// It ends before the other, and is marked as truncated.
    Truncated,
    /// It continues where the other ends: correct as far as it can be compared.
    Longer,
}

/// The stack with native frames in place of Python's lines, of which the interpreter evaluates one or several in each:
/// as many of the other's as let the rest agree.
fn native(ours: &[u64], other: &[u64]) -> Addresses {
    let mut frames = Addresses::new();
    let mut rest = ours;
    while let Some(first) = rest.first() {
        let lines = rest
            .iter()
            .take_while(|line| PYTHON_ADDRESSES.contains(line))
            .count();
        if lines == 0 {
            frames.push(*first);
            rest = &rest[1..];
            continue;
        }
        rest = &rest[lines..];
        let there = &other[frames.len().min(other.len())..];
        let agrees = |count: &usize| there.get(*count) == rest.first();
        let count = (1..=lines).find(agrees).unwrap_or(1);
        frames.extend(there.iter().take(count));
    }
    frames
}

pub fn judge(recorded: &Recorded, other: &[u64]) -> Verdict {
    let ours = &native(&recorded.addresses, other);
    if ours == other {
        Verdict::Same
    } else if other.starts_with(ours) && !recorded.complete {
        Verdict::Truncated
    } else if ours.starts_with(other) {
        Verdict::Longer
    } else {
        Verdict::False
    }
}

/// An example of a recorded stack that differs from the other's.
#[derive(Debug)]
pub struct Example {
    pub verdict: Verdict,
    pub recorded: Addresses,
    pub complete: bool,
    pub other: Addresses,
}

const MOST_EXAMPLES: usize = 5;

/// The result over many samples.
#[derive(Debug, Default)]
pub struct Tally {
    pub samples: u64,
    pub frames: u64,
    pub wrong: u64,
    pub truncated: u64,
    pub longer: u64,
    /// Calls that are not in the trace, because another function of the family made them.
    pub unrecorded: u64,
    pub examples: Vec<Example>,
}

impl Tally {
    pub fn of(recorded: &HashMap<Key, Recorded>, other: &HashMap<Key, Addresses>) -> Tally {
        let mut tally = Tally::default();
        let mut keys: Vec<&Key> = other.keys().collect();
        order::sort_by(&mut keys, Ord::cmp);
        for key in keys {
            match recorded.get(key) {
                Some(ours) => tally.add(ours, &other[key]),
                None => tally.unrecorded += 1,
            }
        }
        tally
    }

    fn add(&mut self, recorded: &Recorded, other: &[u64]) {
        let verdict = judge(recorded, other);
        self.samples += 1;
        self.frames += other.len() as u64;
        match verdict {
            Verdict::Same => return,
            Verdict::False => self.wrong += 1,
            Verdict::Truncated => self.truncated += 1,
            Verdict::Longer => self.longer += 1,
        }
        let alike = self.examples.iter().filter(|one| one.verdict == verdict);
        if alike.count() < MOST_EXAMPLES {
            self.examples.push(Example {
                verdict,
                recorded: recorded.addresses.clone(),
                complete: recorded.complete,
                other: other.to_vec(),
            });
        }
    }

    pub fn plus(mut self, more: &Tally) -> Tally {
        self.samples += more.samples;
        self.frames += more.frames;
        self.wrong += more.wrong;
        self.truncated += more.truncated;
        self.longer += more.longer;
        self.unrecorded += more.unrecorded;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: u64 = PYTHON_ADDRESSES.start;

    fn stack(addresses: &[u64], complete: bool) -> Recorded {
        Recorded {
            addresses: addresses.to_vec(),
            complete,
        }
    }

    #[test]
    fn a_stack_is_judged_by_its_frames_and_its_own_flag() {
        let other = [1, 2, 3];
        for (ours, complete, verdict) in [
            (&[1, 2, 3][..], true, Verdict::Same),
            (&[1, 2, 3], false, Verdict::Same),
            (&[1, 2], false, Verdict::Truncated),
            (&[1, 2], true, Verdict::False),
            (&[1, 9, 3], true, Verdict::False),
            (&[1, 9], false, Verdict::False),
            (&[1, 2, 3, 4], true, Verdict::Longer),
            (&[], true, Verdict::False),
            (&[1, LINES + 5, 3], true, Verdict::Same),
            (
                &[1, LINES + 5, LINES + 6, LINES + 7, 3],
                true,
                Verdict::Same,
            ),
            (&[LINES + 5, LINES + 6, 3], true, Verdict::Same),
            (&[1, LINES + 5], true, Verdict::False),
            (&[1, 2, LINES + 5, 4], true, Verdict::Longer),
            (&[1, LINES + 5, 9], true, Verdict::False),
        ] {
            assert_eq!(judge(&stack(ours, complete), &other), verdict, "{ours:?}");
        }
    }

    #[test]
    fn samples_without_a_recorded_call_are_counted() {
        let recorded =
            HashMap::from([((1, 1), stack(&[5, 6], true)), ((1, 2), stack(&[5], false))]);
        let other = HashMap::from([
            ((1, 1), vec![5, 6]),
            ((1, 2), vec![5, 6]),
            ((1, 3), vec![5]),
        ]);
        let tally = Tally::of(&recorded, &other);
        let counts = (
            tally.samples,
            tally.frames,
            tally.truncated,
            tally.unrecorded,
        );
        assert_eq!(counts, (2, 4, 1, 1));
        assert_eq!(tally.examples.len(), 1);
    }
}
