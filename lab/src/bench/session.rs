//! The order of the runs: a trial of each pair under the loader's log, a pilot that fits the work to a
//! time limit, the rounds, and the passes for idle memory.
//!
//! In each round the workloads, and within each workload the allocators, have a new random order: a run
//! finds the machine like the previous one left it (huge pages, caches, clock rate). A pair that fails
//! once is not run again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use fastrand::Rng;
use larder_base::failure::Result;
use larder_base::order;

use super::allocators::Allocator;
use super::check_loaded;
use super::manifest::Workload;
use super::process::{Ended, Runner, Settings};
use super::progress::{Progress, say};
use super::results::{Outcome, Pass, Run};

/// The share of the usual work that the trials do.
pub const TRIAL_SCALE: f64 = 0.01;
pub const SMOKE_SCALE: f64 = 0.002;
const PILOT_SCALE: f64 = 0.1;
/// Less work than this does not characterise an allocator.
const LEAST_SCALE: f64 = 0.02;
/// The share of the time limit that the plan leaves unused, because rounds differ.
const RESERVE: f64 = 0.12;
const IDLE_SECONDS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Done,
    Interrupted,
}

pub struct Session<'a> {
    runner: &'a Runner,
    workloads: &'a [Workload],
    allocators: &'a [Allocator],
    /// By workload.
    scales: Vec<f64>,
    random: Rng,
    failed: HashSet<(usize, usize)>,
    runs: Vec<Run>,
    /// Complete rounds.
    rounds: u32,
    started: Instant,
}

impl<'a> Session<'a> {
    pub fn new(
        runner: &'a Runner,
        workloads: &'a [Workload],
        allocators: &'a [Allocator],
        scale: f64,
        seed: u64,
    ) -> Session<'a> {
        let scales = workloads.iter().map(|w| if w.scales { scale } else { 1.0 });
        Session {
            runner,
            workloads,
            allocators,
            scales: scales.collect(),
            random: Rng::with_seed(seed),
            failed: HashSet::new(),
            runs: Vec::new(),
            rounds: 0,
            started: Instant::now(),
        }
    }

    /// Runs every pair once, under the loader's log.
    pub fn check(&mut self, scale: f64) -> Result<Flow> {
        let pairs = self.pairs();
        let mut progress = Progress::new("checking", pairs.len());
        for (w, a) in pairs {
            let (workload, allocator) = (&self.workloads[w], &self.allocators[a]);
            match check_loaded::check(self.runner, workload, allocator, scale)? {
                Ended::Interrupted => return Ok(Flow::Interrupted),
                Ended::With(Outcome::Figures(_)) => {}
                Ended::With(failure) => self.keep(w, a, Pass::Trial, failure),
            }
            progress.step(&self.pair_name(w, a));
        }
        Ok(Flow::Done)
    }

    /// Measures one round at a tenth of the work, and reduces the scales so that everything ends within the
    /// limit.
    pub fn fit(&mut self, limit: Duration, rounds: u32, idle_rounds: u32) -> Result<Flow> {
        let mut cost = vec![0.0; self.workloads.len()];
        let pairs = self.pairs();
        let begin = Instant::now();
        let mut progress = Progress::new("pilot", pairs.len());
        for (w, a) in pairs {
            if self.failed.contains(&(w, a)) {
                continue;
            }
            let before = Instant::now();
            let scale = if self.workloads[w].scales {
                PILOT_SCALE
            } else {
                1.0
            };
            match self.run(w, a, scale, Vec::new())? {
                Ended::Interrupted => return Ok(Flow::Interrupted),
                Ended::With(Outcome::Figures(_)) => cost[w] += before.elapsed().as_secs_f64(),
                Ended::With(failure) => self.keep(w, a, Pass::Trial, failure),
            }
            progress.step(&self.pair_name(w, a));
        }
        drop(progress);
        let pilot = begin.elapsed().as_secs_f64();
        let idle_jobs = self.idle_pairs().len().div_ceil(idle_jobs()) as u32 * idle_rounds;
        let idle = f64::from(idle_jobs * IDLE_SECONDS);
        let left = limit.saturating_sub(self.started.elapsed()).as_secs_f64() - idle;
        let costs: Vec<Cost> = self
            .workloads
            .iter()
            .zip(&cost)
            .map(|(workload, cost)| {
                let times = rounds + if workload.idle { idle_rounds } else { 0 };
                Cost {
                    scales: workload.scales,
                    full_seconds: cost * f64::from(times)
                        / if workload.scales { PILOT_SCALE } else { 1.0 },
                }
            })
            .collect();
        for (scale, fitting) in self
            .scales
            .iter_mut()
            .zip(fit(&costs, left * (1.0 - RESERVE)))
        {
            *scale = scale.min(fitting);
        }
        let needed: f64 = costs.iter().zip(&self.scales).map(|(c, s)| c.at(*s)).sum();
        let needed = needed + idle;
        let least = self.scales.iter().copied().fold(1.0, f64::min);
        say(&format!(
            "one round at a tenth of the work took {pilot:.0} s; {rounds} rounds, each workload with {:.0} to 100 % of \
             its work, will take about {needed:.0} s more{}",
            least * 100.0,
            if needed > left + idle {
                ": longer than was asked for; name fewer workloads or allocators"
            } else {
                ""
            }
        ));
        Ok(Flow::Done)
    }

    /// The measured rounds. An interrupted round leaves no runs.
    pub fn measure(&mut self, rounds: u32) -> Result<Flow> {
        let pairs = self.workloads.len() * self.allocators.len();
        let mut progress = Progress::new("measuring", pairs * rounds as usize);
        for round in 0..rounds {
            let kept = self.runs.len();
            for (w, a) in self.shuffled() {
                progress.step(&self.pair_name(w, a));
                if self.failed.contains(&(w, a)) {
                    continue;
                }
                match self.run(w, a, self.scales[w], Vec::new())? {
                    Ended::With(outcome) => self.keep(w, a, Pass::Round(round), outcome),
                    Ended::Interrupted => {
                        self.runs.truncate(kept);
                        return Ok(Flow::Interrupted);
                    }
                }
            }
            self.rounds = round + 1;
        }
        Ok(Flow::Done)
    }

    /// The passes for idle memory. Several runs are concurrent, because their time does not count, and they
    /// mostly sleep.
    pub fn measure_idle(&mut self, passes: u32) -> Result<Flow> {
        let mut progress = Progress::new("idling", self.idle_pairs().len() * passes as usize);
        for pass in 0..passes {
            let kept = self.runs.len();
            let mut pairs = self.idle_pairs();
            self.random.shuffle(&mut pairs);
            for batch in pairs.chunks(idle_jobs()) {
                let ended: Vec<Result<Ended>> = std::thread::scope(|scope| {
                    let this = &*self;
                    let start = |&(w, a): &(usize, usize)| {
                        let seconds = IDLE_SECONDS.to_string().into();
                        let idle = vec![("BENCH_IDLE", seconds)];
                        scope.spawn(move || this.run(w, a, this.scales[w], idle))
                    };
                    let threads: Vec<_> = batch.iter().map(start).collect();
                    threads
                        .into_iter()
                        .map(|thread| thread.join().unwrap_or(Ok(Ended::Interrupted)))
                        .collect()
                });
                for (&(w, a), ended) in batch.iter().zip(ended) {
                    progress.step(&self.pair_name(w, a));
                    match ended? {
                        Ended::With(outcome) => self.keep(w, a, Pass::Idle(pass), outcome),
                        Ended::Interrupted => {
                            self.runs.truncate(kept);
                            return Ok(Flow::Interrupted);
                        }
                    }
                }
            }
        }
        Ok(Flow::Done)
    }

    pub fn scales(&self) -> &[f64] {
        &self.scales
    }

    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    pub fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    fn run(
        &self,
        w: usize,
        a: usize,
        scale: f64,
        environment: Vec<(&'static str, std::ffi::OsString)>,
    ) -> Result<Ended> {
        let settings = Settings {
            scale,
            copies: true,
            environment,
        };
        self.runner
            .run(&self.workloads[w], &self.allocators[a], &settings)
    }

    fn keep(&mut self, w: usize, a: usize, pass: Pass, outcome: Outcome) {
        if let Outcome::Failure(cause) = &outcome {
            say(&format!("{} failed: {cause}", self.pair_name(w, a)));
            self.failed.insert((w, a));
        }
        self.runs.push(Run {
            workload: self.workloads[w].name.clone(),
            allocator: self.allocators[a].name.clone(),
            pass,
            outcome,
        });
    }

    fn pair_name(&self, w: usize, a: usize) -> String {
        format!("{} on {}", self.workloads[w].name, self.allocators[a].name)
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        (0..self.workloads.len())
            .flat_map(|w| (0..self.allocators.len()).map(move |a| (w, a)))
            .collect()
    }

    fn idle_pairs(&self) -> Vec<(usize, usize)> {
        let mut pairs = self.pairs();
        pairs.retain(|&(w, a)| self.workloads[w].idle && !self.failed.contains(&(w, a)));
        pairs
    }

    /// All pairs; those of a workload are neighbours.
    fn shuffled(&mut self) -> Vec<(usize, usize)> {
        let mut workloads: Vec<usize> = (0..self.workloads.len()).collect();
        self.random.shuffle(&mut workloads);
        let mut order = Vec::new();
        for w in workloads {
            let mut allocators: Vec<usize> = (0..self.allocators.len()).collect();
            self.random.shuffle(&mut allocators);
            order.extend(allocators.into_iter().map(|a| (w, a)));
        }
        order
    }
}

fn idle_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() * 2)
}

/// The time that all runs of a workload would take.
struct Cost {
    scales: bool,
    full_seconds: f64,
}

impl Cost {
    fn at(&self, scale: f64) -> f64 {
        if self.scales {
            self.full_seconds * scale
        } else {
            self.full_seconds
        }
    }
}

/// The scale of each workload: equal shares of the time; the others get what one does not need.
/// Σ cost(scale) ≤ seconds, unless the least scale is larger.
fn fit(costs: &[Cost], seconds: f64) -> Vec<f64> {
    let mut scales = vec![1.0; costs.len()];
    let fixed: f64 = costs
        .iter()
        .filter(|c| !c.scales)
        .map(|c| c.full_seconds)
        .sum();
    let mut left = (seconds - fixed).max(0.0);
    let mut order: Vec<usize> = (0..costs.len()).filter(|i| costs[*i].scales).collect();
    order::sort_by(&mut order, |a, b| {
        costs[*a].full_seconds.total_cmp(&costs[*b].full_seconds)
    });
    let count = order.len();
    for (position, index) in order.into_iter().enumerate() {
        let share = left / (count - position) as f64;
        let full = costs[index].full_seconds;
        if full > share {
            let scale = (share / full).max(LEAST_SCALE);
            // Two digits, for readable reports.
            scales[index] = (scale * 100.0).floor().max(1.0) / 100.0;
        }
        left = (left - costs[index].at(scales[index])).max(0.0);
    }
    scales
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(full_seconds: f64) -> Cost {
        Cost {
            scales: true,
            full_seconds,
        }
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        assert_eq!(fit(&[cost(10.0), cost(20.0)], 31.0), [1.0, 1.0]);
    }

    #[test]
    fn the_time_is_shared_and_kept() {
        let costs = [cost(1000.0), cost(10.0), cost(400.0)];
        let scales = fit(&costs, 210.0);
        assert_eq!(scales, [0.1, 1.0, 0.25]);
        let total: f64 = costs.iter().zip(&scales).map(|(c, s)| c.at(*s)).sum();
        assert!(total <= 210.0, "{total}");
    }

    #[test]
    fn what_does_not_scale_takes_its_time_first() {
        let fixed = Cost {
            scales: false,
            full_seconds: 50.0,
        };
        assert_eq!(fit(&[fixed, cost(100.0)], 100.0), [1.0, 0.5]);
    }

    #[test]
    fn no_workload_is_scaled_to_nothing() {
        assert_eq!(fit(&[cost(1e6)], 1.0), [LEAST_SCALE]);
        assert_eq!(fit(&[cost(1e6)], -5.0), [LEAST_SCALE]);
    }
}
