//! A heap profile like it was written: stacks with the estimates for each, and the modules' addresses.
//! Depends on nothing else of the tool, because the fuzzer reads profiles without it.

use super::interval::Spread;

/// Objects and bytes; whole numbers, except in a scaled profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub objects: f64,
    pub bytes: f64,
}

impl Estimate {
    pub fn add(&mut self, more: Estimate) {
        self.objects += more.objects;
        self.bytes += more.bytes;
    }

    pub fn less(self, other: Estimate) -> Estimate {
        Estimate {
            objects: (self.objects - other.objects).max(0.0),
            bytes: (self.bytes - other.bytes).max(0.0),
        }
    }
}

/// Lifetimes are counted by their logarithm: class i = [2^i, 2^(i + 1)) microseconds.
const LIFETIME_CLASSES: usize = 64;

/// The figures of a stack, or the sum over several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub in_use: Estimate,
    /// The spread of the bytes in use.
    pub spread: Spread,
    /// Since the start.
    pub allocated: Estimate,
    /// At the process's peak. 0 if the format lacks it; so is the next.
    pub at_peak: Estimate,
    /// At the last mark.
    pub at_mark: Estimate,
    /// The part of a leak's `in_use` that is reachable from other leaked objects.
    pub indirect: Estimate,
    /// Objects freed so far, by class of lifetime; classes behind the end have none.
    pub lifetimes: Vec<f64>,
}

impl Figures {
    pub fn add(&mut self, more: &Figures) {
        self.in_use.add(more.in_use);
        self.spread.add(&more.spread);
        self.allocated.add(more.allocated);
        self.at_peak.add(more.at_peak);
        self.at_mark.add(more.at_mark);
        self.indirect.add(more.indirect);
        for (class, freed) in more.lifetimes.iter().enumerate() {
            self.add_lifetimes(class, *freed);
        }
    }

    /// Lifetimes beyond the last class count in it.
    pub fn add_lifetimes(&mut self, class: usize, freed: f64) {
        let class = class.min(LIFETIME_CLASSES - 1);
        if self.lifetimes.len() <= class {
            self.lifetimes.resize(class + 1, 0.0);
        }
        self.lifetimes[class] += freed;
    }

    /// Objects that were freed.
    pub fn freed(&self) -> f64 {
        self.lifetimes.iter().sum()
    }

    /// The lifetime in microseconds that this share of the freed objects did not reach: the upper end of
    /// its class. `None`: none was freed.
    pub fn lifetime_below(&self, part: f64) -> Option<f64> {
        let wanted = self.freed() * part;
        let mut sum = 0.0;
        let class = self.lifetimes.iter().position(|freed| {
            sum += freed;
            sum > 0.0 && sum >= wanted
        })?;
        Some(2f64.powi(class as i32 + 1))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfiledStack {
    /// Return addresses, the innermost first. Empty: stacks that were not walked or did not fit.
    pub frames: Vec<u64>,
    pub figures: Figures,
    /// The stack is cut off.
    pub truncated: bool,
}

/// Executable memory with a file behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    pub path: Vec<u8>,
}

/// How the figures were obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Estimated by Larder's sampler.
    #[default]
    Larder,
    /// Another sampler's, one sample in `mean` bytes; scaled here.
    Sampled,
    /// Every object was counted.
    Exact,
    /// Not stated: gperftools' profiler counts every object; the profiles of growth or of a time that
    /// Larder's endpoint sends are estimates.
    Unstated,
}

impl Origin {
    /// Whether its figures have confidence intervals.
    pub fn has_intervals(self) -> bool {
        matches!(self, Self::Larder | Self::Sampled)
    }
}

/// Results of a leak check beside the stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeakCheck {
    pub reachable: Estimate,
    /// The check could not stop the other threads.
    pub threads_ran: bool,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// From 1.
    pub line: usize,
    pub what: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapProfile {
    pub origin: Origin,
    /// Mean bytes between two samples; 0: not sampled, or unknown.
    pub mean: u64,
    pub process: Option<u32>,
    pub stacks: Vec<ProfiledStack>,
    /// Sorted by address.
    pub mappings: Vec<Mapping>,
    /// Set if the profile is a leak check's: `in_use` is what leaked.
    pub leaks: Option<LeakCheck>,
    /// The first line that could not be read, and the number of such lines.
    pub damage: Option<Damage>,
    pub damaged: usize,
    /// The list of modules, which ends a profile, is missing.
    pub cut_off: bool,
}

impl HeapProfile {
    /// The sum over all stacks.
    pub fn total(&self) -> Figures {
        let mut sum = Figures::default();
        self.stacks.iter().for_each(|stack| sum.add(&stack.figures));
        sum
    }
}
