//! The current heap profile (alloc/sample/site.h): stacks, and the estimates for each.
//!
//! The sampler's lock is not taken: if a site changes while it is read, one sample may be in some of
//! its figures and not in others. Invalid figures (not a number, below 0) are read again, and the
//! site is left out if they stay invalid.

use super::Obstacle;
use super::anchor::{Anchor, ProfileLayout};
use super::memory::{Fields, Memory, Pieces};

const TRIES: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub objects: f64,
    pub bytes: f64,
}

/// A stack, and the estimates for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Return addresses, the innermost first; none: all stacks that did not fit into the table.
    pub frames: Vec<u64>,
    /// The stack is cut off.
    pub truncated: bool,
    pub in_use: Estimate,
    /// Since the start.
    pub allocated: Estimate,
    /// The variance of in_use.bytes.
    pub variance: f64,
    /// The largest standard deviation of one sample.
    pub heaviest: f64,
    pub sampled_bytes: u64,
    pub samples: u64,
    pub at_mark: Estimate,
    pub at_peak: Estimate,
    /// Objects freed, [i] those that lived 2^i to 2^(i + 1) microseconds.
    pub lifetimes: Vec<f32>,
}

#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Mean bytes between two samples; 0: sampling is off.
    pub mean: u64,
    pub sites: Vec<Site>,
    /// Sites that were left out because their figures were invalid.
    pub unsound: usize,
}

pub fn read(memory: &Memory, anchor: &Anchor) -> Result<Profile, Obstacle> {
    // A library without the profiler.
    if anchor.profile.first_site == 0 {
        return Ok(Profile::default());
    }
    let mut reader = Reader::new(memory, anchor)?;
    let mut profile = Profile {
        mean: memory.word(anchor.sampler.mean)?,
        ..Profile::default()
    };
    let mut at = anchor.profile.first_site;
    for _ in 0..anchor.profile.most_sites {
        let (next, site) = reader.site(at)?;
        match site {
            Some(site) if site.allocated.objects > 0.0 => profile.sites.push(site),
            Some(_) => {}
            None => profile.unsound += 1,
        }
        if next == 0 {
            return Ok(profile);
        }
        at = next;
    }
    // The list has a cycle.
    Err(Obstacle::Unsound("the list of sites"))
}

pub struct Reader<'a> {
    layout: &'a ProfileLayout,
    /// Sites are adjacent in memory.
    pieces: Pieces<'a>,
    peak_version: u64,
}

impl<'a> Reader<'a> {
    pub fn new(memory: &'a Memory, anchor: &'a Anchor) -> Result<Self, Obstacle> {
        Ok(Self {
            layout: &anchor.profile,
            pieces: Pieces::new(memory),
            peak_version: match anchor.profile.peak_version {
                0 => 0,
                at => memory.word(at)?,
            },
        })
    }

    /// The address of the next site, and this one, unless it is invalid.
    pub fn site(&mut self, at: u64) -> Result<(u64, Option<Site>), Obstacle> {
        let mut next = 0;
        for turn in 0..TRIES {
            if turn > 0 {
                self.pieces.forget();
            }
            let bytes = self.pieces.bytes(at, self.layout.site_bytes.into())?;
            let fields = Fields(&bytes);
            next = fields.u64(self.layout.next.into());
            let depth = fields.u32(self.layout.depth.into()) as usize;
            let Some(mut site) = self.figures(&fields) else {
                continue;
            };
            if depth > self.layout.most_frames.into() {
                continue;
            }
            let frames = self
                .pieces
                .bytes(fields.u64(self.layout.frames.into()), depth * 8)?;
            site.frames = (0..depth).map(|i| Fields(&frames).u64(i * 8)).collect();
            return Ok((next, Some(site)));
        }
        Ok((next, None))
    }

    fn figures(&self, fields: &Fields<'_>) -> Option<Site> {
        let layout = self.layout;
        let number = |at: usize| Some(fields.f64(at)).filter(|n| n.is_finite() && *n > -1.0);
        let estimate = |at: u16| {
            Some(Estimate {
                objects: number(at.into())?.max(0.0),
                bytes: number(usize::from(at) + 8)?.max(0.0),
            })
        };
        let in_use = estimate(layout.in_use)?;
        let of_peak = fields.u64(layout.own_peak_version.into()) == self.peak_version;
        let lifetime = |i: usize| fields.f32(usize::from(layout.freed) + i * 4);
        Some(Site {
            frames: Vec::new(),
            truncated: fields.u8(layout.truncated.into()) != 0,
            in_use,
            allocated: estimate(layout.allocated)?,
            variance: fields.f64(layout.variance.into()).max(0.0),
            heaviest: fields.f64(layout.heaviest.into()).max(0.0),
            sampled_bytes: fields.u64(layout.sampled_bytes.into()),
            samples: fields.u64(layout.samples.into()),
            at_mark: estimate(layout.at_mark)?,
            at_peak: if of_peak {
                estimate(layout.at_peak)?
            } else {
                in_use
            },
            lifetimes: (0..layout.lifetimes.into()).map(lifetime).collect(),
        })
        .filter(|site| site.variance.is_finite() && site.heaviest.is_finite())
        .filter(|site| site.lifetimes.iter().all(|n| n.is_finite() && *n >= 0.0))
    }
}
