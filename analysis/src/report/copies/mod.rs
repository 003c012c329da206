//! The copies of a trace: by function how often and how much is copied, filled or formatted, and the lines
//! that do it.
//!
//! Where the recorder sampled, each copy stands for 1 / (its chance to be recorded) of its kind, so calls and
//! bytes are estimates without bias.

pub mod json;
pub mod text;
mod unseen;

use std::rc::Rc;

use larder_base::order;
use larder_trace::{Action, CopyCall, Event, Events};

use super::callers::{self, Callers};
use super::histogram::Histogram;
use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::sites::{SortKey, Sums};
use crate::reading::weights;
use unseen::Unseen;

/// Copies, and how much they moved.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    pub calls: f64,
    pub bytes: f64,
    /// Those of the two estimates; 0 if all were recorded.
    variances: [f64; 2],
    pub sizes: Histogram,
}

impl Copied {
    fn add(&mut self, bytes: u64, rate: u64) {
        let weight = weights::copies(bytes, rate);
        self.calls += weight;
        self.bytes += weight * bytes as f64;
        // Of a copy that is recorded with the chance 1 / weight.
        let variance = weight * (weight - 1.0);
        self.variances[0] += variance;
        self.variances[1] += variance * (bytes as f64).powi(2);
        self.sizes.add(bytes, weight);
    }
}

impl callers::Sum for Copied {
    fn merge(&mut self, other: &Copied) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        for (own, more) in self.variances.iter_mut().zip(other.variances) {
            *own += more;
        }
        self.sizes.merge(&other.sizes);
    }

    fn calls(&self) -> f64 {
        self.calls
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums {
            calls: self.calls.round() as u64,
            bytes: self.bytes.round() as u64,
            ..Sums::default()
        };
        let [calls, bytes] = self.variances;
        sums.variances[SortKey::Calls as usize] = calls;
        sums.variances[SortKey::Bytes as usize] = bytes;
        sums
    }
}

impl callers::Kind for CopyCall {
    fn text(self) -> Rc<str> {
        self.name().into()
    }
}

pub type Caller = callers::Caller<CopyCall, Copied>;

/// What the callers are ranked by.
#[derive(Clone, Copy)]
pub enum Key {
    Bytes,
    Calls,
}

impl Key {
    pub const ALL: [Key; 2] = [Key::Bytes, Key::Calls];

    pub fn of(self, copied: &Copied) -> f64 {
        match self {
            Key::Bytes => copied.bytes,
            Key::Calls => copied.calls,
        }
    }
}

/// Observes the copies of all process images.
#[derive(Default)]
pub struct Copies {
    pub callers: Callers<CopyCall, Copied>,
    /// The largest rate at which any was sampled; 0 if all were recorded.
    pub rate: u64,
    unseen: Unseen,
}

impl Observer for Copies {
    type Note = ();

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        self.unseen.event(event);
        if let Action::Copy {
            call,
            bytes,
            rate,
            stack,
            ..
        } = event.action
        {
            self.rate = self.rate.max(rate);
            self.callers.of(stack, call).add(bytes, rate);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        self.callers.end_image(image);
        self.unseen.end_image(image);
    }
}

impl Copies {
    /// Keeps all stacks of each site.
    pub fn with_stacks() -> Self {
        Copies {
            callers: Callers::with_stacks(),
            ..Copies::default()
        }
    }

    /// The functions that copied, those with the most bytes first.
    pub fn functions(&self) -> Vec<(CopyCall, Copied)> {
        let mut functions = self.callers.kinds();
        order::sort_by(&mut functions, |(_, a), (_, b)| b.bytes.total_cmp(&a.bytes));
        functions
    }

    pub fn ranked(&self, key: Key) -> Vec<&Caller> {
        self.callers.ranked(|copied| key.of(copied))
    }
}
