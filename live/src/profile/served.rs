//! The heap profile of a running process for clients: in Larder's text format, or in pprof's with the
//! names of functions; whole, or what happened between two snapshots.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use larder_analysis::export::{Weighed, pprof};
use larder_analysis::reading::measure::Measure;
use larder_analysis::reading::resolve::Charging;
pub use larder_analysis::reading::resolve::Resolver;
use rustc_hash::FxHashMap;

use super::heap::{Estimate, Figures, HeapProfile, Origin, ProfiledStack};
use super::{rows, running, sites, write};
use crate::process::{Obstacle, Process};

/// The sample types of other languages' heap profiles, which receivers know by their names.
const MEASURES: [Measure; 4] = [
    Measure::Calls,
    Measure::Bytes,
    Measure::LiveBlocks,
    Measure::LiveBytes,
];

/// The type that is shown first; growth has only this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    InUse,
    Allocated,
    /// Since the last mark, or the first snapshot.
    Growth,
}

/// The profile at one time, or between two.
pub struct Snapshot {
    profile: HeapProfile,
    title: String,
    /// The time of the last snapshot, in nanoseconds since 1970.
    at: u64,
    /// Nanoseconds from the first snapshot to the last; `None`: there was one.
    length: Option<u64>,
}

/// Finds functions by address. Caches the symbols of files.
pub fn resolver() -> Resolver {
    Resolver::new(Charging::default())
}

impl Snapshot {
    pub fn take(process: &Process) -> Result<Self, Obstacle> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seen = process.profile()?;
        Ok(Self {
            profile: running::with_modules(process, seen)?,
            title: running::title(process),
            at: now.unwrap_or_default().as_nanos() as u64,
            length: None,
        })
    }

    /// What came into use, was allocated and was freed since `before`. REQUIRES: the same process.
    pub fn since(self, before: &Self) -> Self {
        Self {
            profile: difference(&before.profile, self.profile),
            length: Some(self.at.saturating_sub(before.at)),
            ..self
        }
    }

    /// What is in use now, and what was allocated since `before`, or 0 without it. REQUIRES: the same
    /// process.
    pub fn allocated_since(&self, before: Option<&Self>) -> Self {
        let known = before.map(|before| by_stack(&before.profile));
        let mut profile = self.profile.clone();
        for stack in &mut profile.stacks {
            let before = known
                .as_ref()
                .map(|known| known.get(&key(&stack.frames, stack.truncated)));
            let figures = &mut stack.figures;
            figures.allocated = match before {
                None => Estimate::default(),
                Some(None) => figures.allocated,
                Some(Some(before)) => figures.allocated.less(before.allocated),
            };
        }
        Self {
            profile,
            title: self.title.clone(),
            at: self.at,
            length: before.map(|before| self.at.saturating_sub(before.at)),
        }
    }

    /// The time of the last snapshot, since 1970.
    pub fn seconds(&self) -> u64 {
        self.at / 1_000_000_000
    }

    /// Time and memory grow with the stacks.
    pub fn write_text(&self, kind: Kind, out: &mut dyn Write) -> io::Result<()> {
        match kind {
            Kind::Growth => write::write_as("growthz", &self.growth(), out),
            Kind::InUse | Kind::Allocated => write::write(&self.profile, out),
        }
    }

    /// Memory grows with the stacks, and with the symbols of the files, which `resolver` caches.
    pub fn write_pprof(
        &self,
        kind: Kind,
        resolver: &mut Resolver,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let growth = (kind == Kind::Growth).then(|| self.growth());
        let profile = growth.as_ref().unwrap_or(&self.profile);
        let rows = sites::rows(resolver, std::slice::from_ref(profile));
        let weighed = Weighed {
            rows: &rows::stack_rows(&rows),
            measures: &MEASURES,
            measure: match kind {
                Kind::Allocated => Measure::Bytes,
                Kind::InUse | Kind::Growth => Measure::LiveBytes,
            },
            name: self.title.clone(),
        };
        let length = self.length.unwrap_or(0);
        let about = pprof::About {
            program: super::program(profile),
            pids: vec![profile.process.unwrap_or(0)],
            start_ns: self.at.saturating_sub(length),
            duration_ns: length,
            period: self.profile.mean.max(1),
            comments: vec![self.title.clone()],
        };
        pprof::write(&weighed, &about, out)
    }

    /// The stacks that grew, with their growth alone.
    fn growth(&self) -> HeapProfile {
        let stacks = self.profile.stacks.iter().filter_map(|stack| {
            let figures = &stack.figures;
            let grown = match self.length {
                None => figures.in_use.less(figures.at_mark),
                Some(_) => figures.in_use,
            };
            (grown.bytes >= 1.0).then(|| ProfiledStack {
                frames: stack.frames.clone(),
                truncated: stack.truncated,
                figures: Figures {
                    in_use: grown,
                    allocated: grown,
                    ..Figures::default()
                },
            })
        });
        HeapProfile {
            origin: Origin::Unstated,
            stacks: stacks.collect(),
            mappings: self.profile.mappings.clone(),
            process: self.profile.process,
            ..HeapProfile::default()
        }
    }
}

type Key<'a> = (&'a [u64], bool);

fn key(frames: &[u64], truncated: bool) -> Key<'_> {
    (frames, truncated)
}

fn by_stack(profile: &HeapProfile) -> FxHashMap<Key<'_>, &Figures> {
    let stacks = profile.stacks.iter();
    stacks
        .map(|stack| (key(&stack.frames, stack.truncated), &stack.figures))
        .collect()
}

/// Stack by stack; a stack that shrank has 0 in use.
fn difference(before: &HeapProfile, now: HeapProfile) -> HeapProfile {
    let known = by_stack(before);
    let stacks = now.stacks.into_iter().filter_map(|mut stack| {
        if let Some(before) = known.get(&key(&stack.frames, stack.truncated)) {
            stack.figures = since(before, &stack.figures);
        }
        let figures = &mut stack.figures;
        (figures.at_mark, figures.at_peak) = (Estimate::default(), Estimate::default());
        let any =
            figures.in_use.bytes >= 1.0 || figures.allocated.bytes >= 1.0 || figures.freed() >= 1.0;
        any.then_some(stack)
    });
    HeapProfile {
        stacks: stacks.collect(),
        ..now
    }
}

fn since(before: &Figures, now: &Figures) -> Figures {
    let lifetimes = now.lifetimes.iter().enumerate().map(|(class, freed)| {
        let before = before.lifetimes.get(class).copied().unwrap_or(0.0);
        (freed - before).max(0.0)
    });
    Figures {
        in_use: now.in_use.less(before.in_use),
        allocated: now.allocated.less(before.allocated),
        spread: super::interval::spread_since(&sites::level(before), &sites::level(now)),
        lifetimes: lifetimes.collect(),
        ..Figures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::Spread;
    use super::*;

    fn estimate(objects: f64, bytes: f64) -> Estimate {
        Estimate { objects, bytes }
    }

    fn stack(frame: u64, in_use: f64, allocated: f64) -> ProfiledStack {
        ProfiledStack {
            frames: vec![frame],
            truncated: false,
            figures: Figures {
                in_use: estimate(in_use, in_use * 100.0),
                allocated: estimate(allocated, allocated * 100.0),
                at_mark: estimate(1.0, 100.0),
                at_peak: estimate(9.0, 900.0),
                spread: Spread {
                    variance: in_use * 1e4,
                    heaviest: 100.0,
                    sampled_bytes: in_use,
                    samples: in_use,
                },
                lifetimes: vec![allocated - in_use],
                ..Figures::default()
            },
        }
    }

    fn snapshot(stacks: Vec<ProfiledStack>, at: u64) -> Snapshot {
        Snapshot {
            profile: HeapProfile {
                mean: 100,
                process: Some(7),
                stacks,
                ..HeapProfile::default()
            },
            title: "process 7: x".to_owned(),
            at,
            length: None,
        }
    }

    #[test]
    fn between_two_snapshots_is_what_was_allocated_and_freed() {
        let before = snapshot(vec![stack(1, 5.0, 8.0), stack(2, 4.0, 4.0)], 10);
        let stacks = vec![
            stack(1, 7.0, 20.0),
            stack(2, 4.0, 4.0),
            stack(3, 2.0, 3.0),
            stack(4, 0.0, 0.0),
        ];
        let between = snapshot(stacks, 30).since(&before);
        assert_eq!(between.length, Some(20));
        let stacks = &between.profile.stacks;
        let frames: Vec<u64> = stacks.iter().map(|stack| stack.frames[0]).collect();
        assert_eq!(frames, [1, 3], "what did not change is left out");
        let figures = &stacks[0].figures;
        assert_eq!(figures.in_use, estimate(2.0, 200.0));
        assert_eq!(figures.allocated, estimate(12.0, 1200.0));
        assert_eq!(figures.lifetimes, [10.0]);
        assert!(figures.spread.variance > 2e4, "what came and what went");
        assert_eq!(figures.at_peak, Estimate::default());
        assert_eq!(between.growth().total().in_use, estimate(4.0, 400.0));
    }

    #[test]
    fn a_push_has_what_is_in_use_and_what_was_allocated_since_the_last() {
        let first = snapshot(vec![stack(1, 5.0, 8.0)], 10);
        let second = snapshot(vec![stack(1, 7.0, 20.0), stack(2, 2.0, 3.0)], 30);
        let total = |snapshot: &Snapshot| snapshot.profile.total();
        let pushed = total(&first.allocated_since(None));
        assert_eq!(
            (pushed.in_use.objects, pushed.allocated.objects),
            (5.0, 0.0)
        );
        let pushed = second.allocated_since(Some(&first));
        assert_eq!(pushed.length, Some(20));
        let pushed = total(&pushed);
        assert_eq!(
            (pushed.in_use.objects, pushed.allocated.objects),
            (9.0, 15.0)
        );
    }

    #[test]
    fn growth_of_one_snapshot_is_since_the_mark() {
        let whole = snapshot(vec![stack(1, 5.0, 8.0), stack(2, 1.0, 4.0)], 10);
        let growth = whole.growth();
        assert_eq!(growth.stacks.len(), 1);
        assert_eq!(growth.total().in_use, estimate(4.0, 400.0));
        let mut text = Vec::new();
        whole.write_text(Kind::Growth, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("heap profile: 4: 400 [4: 400] @ growthz\n4: 400 [4: 400] @ 0x1\n")
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let whole = snapshot(vec![stack(1, 5.0, 8.0)], 10);
        for kind in [Kind::InUse, Kind::Growth] {
            let mut text = Vec::new();
            whole.write_text(kind, &mut text).unwrap();
            let read = super::super::parse::parse(&text).unwrap();
            assert_eq!(read.damage, None, "{kind:?}");
            assert_eq!(read.stacks.len(), 1);
        }
    }
}
