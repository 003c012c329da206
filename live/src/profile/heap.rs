//! A heap profile as it was written: stacks with what is estimated of each, and where the modules
//! lay. Depends on nothing of the tool, as the fuzzer reads profiles without it.

use super::interval::Spread;

/// Objects and bytes; whole numbers, or of a scaled profile nearly so.
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

/// Lifetimes are counted by their logarithm: the class i has those from 2^i microseconds to twice
/// that.
const LIFETIME_CLASSES: usize = 64;

/// What is known of a stack, or of many.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub in_use: Estimate,
    /// Of the bytes in use.
    pub spread: Spread,
    /// So far.
    pub allocated: Estimate,
    /// When all that was in use was highest; 0 where the format has it not, as is the next.
    pub at_peak: Estimate,
    /// At the last mark.
    pub at_mark: Estimate,
    /// Of a leak's `in_use`: what others lead to that are lost as well.
    pub indirect: Estimate,
    /// Objects freed so far, by class; those behind the last have none.
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

    /// Beyond the last class: in it.
    pub fn add_lifetimes(&mut self, class: usize, freed: f64) {
        let class = class.min(LIFETIME_CLASSES - 1);
        if self.lifetimes.len() <= class {
            self.lifetimes.resize(class + 1, 0.0);
        }
        self.lifetimes[class] += freed;
    }

    /// Objects that were freed, by their lifetimes.
    pub fn freed(&self) -> f64 {
        self.lifetimes.iter().sum()
    }

    /// The lifetime in microseconds that this part of the freed objects did not reach: the upper end
    /// of its class. `None`: none was freed.
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
    /// Return addresses, the innermost first. Empty: of stacks that were not kept or not walked.
    pub frames: Vec<u64>,
    pub figures: Figures,
    /// Deeper than what was kept.
    pub truncated: bool,
}

/// Executable memory with a file behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Of `start`, in the file.
    pub offset: u64,
    pub path: Vec<u8>,
}

/// How the figures were got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// By Larder's sampler: estimates.
    #[default]
    Larder,
    /// By another's, one sample in `mean` bytes; scaled here.
    Sampled,
    /// Every object counts.
    Exact,
    /// It does not say: gperftools' profiler counts every object, an answer of Larder's endpoint about
    /// growth or some seconds is estimated.
    Unstated,
}

impl Origin {
    /// Whether it says how far its figures can be trusted.
    pub fn has_intervals(self) -> bool {
        matches!(self, Self::Larder | Self::Sampled)
    }
}

/// What a leak check says besides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LeakCheck {
    pub reachable: Estimate,
    /// It could not stop the other threads.
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
    /// Bytes from one sample to the next, in the mean; 0: not sampled, or not known.
    pub mean: u64,
    pub process: Option<u32>,
    pub stacks: Vec<ProfiledStack>,
    /// In the order of their addresses.
    pub mappings: Vec<Mapping>,
    /// What is in use is what a leak check has found lost.
    pub leaks: Option<LeakCheck>,
    /// The first of the lines that could not be read, and how many there are.
    pub damage: Option<Damage>,
    pub damaged: usize,
    /// Without the list of modules that ends a profile.
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
