//! `--fail-each`: one run counts the allocations, then each further run makes another one fail.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use larder_base::failure::{Failure, Result};
use larder_base::order;

use super::args::FailPlan;
use super::experiment::{Ended, Range, Run, Runner, interruption};
use super::log::{FailedCall, ImageLog};
use super::site::{FailSite, Sites};

/// The shortest default limit of a run.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
/// A run may take this many times the duration without a failure.
const LIMIT_FACTOR: u32 = 10;

pub struct Outcome {
    /// Allocations of the process that makes most, in the run without a failure.
    pub calls: u64,
    /// The command's exit code in that run.
    pub code: i32,
    pub planned: u64,
    pub made: u64,
    /// Runs that ended before the call that was to fail.
    pub not_reached: u64,
    /// Ordered by the number of the first call.
    pub bad: Vec<BadRuns>,
    pub interrupted: bool,
}

/// Runs that ended alike, after a call from the same line had failed.
pub struct BadRuns {
    /// The numbers of the failed calls, from 1.
    pub numbers: Vec<u64>,
    pub ended: Ended,
    pub site: FailSite,
    /// The failed call of the first run.
    pub call: Option<FailedCall>,
}

impl Outcome {
    pub fn bad_runs(&self) -> u64 {
        self.bad.iter().map(|runs| runs.numbers.len() as u64).sum()
    }
}

pub fn each(plan: &FailPlan) -> Result<Outcome> {
    let runner = Runner::new(plan)?;
    let interrupted = interruption()?;
    let Some(first) = runner.background(Range::None, plan.limit, &interrupted)? else {
        return Err(Failure::failed(
            "interrupted while the allocations were counted: start the command again",
        ));
    };
    let Ended::Code(code) = first.ended else {
        return Err(Failure::failed(format!(
            "the command {} although nothing fails: give it arguments with which it ends well",
            describe(&first.ended)
        )));
    };
    let calls = most_calls(&first.images);
    if first.images.is_empty() {
        return Err(runner.nothing_counted());
    }
    let numbers = choose(calls, plan.sample);
    let limit = plan
        .limit
        .unwrap_or_else(|| LEAST_LIMIT.max(first.duration * LIMIT_FACTOR));
    let mut outcome = Outcome {
        calls,
        code,
        planned: numbers.len() as u64,
        made: 0,
        not_reached: 0,
        bad: Vec::new(),
        interrupted: false,
    };
    let mut groups = Groups::default();
    let bar = progress_bar(outcome.planned);
    for number in numbers {
        let run = runner.background(Range::One(number), Some(limit), &interrupted)?;
        let Some(run) = run else { break };
        outcome.made += 1;
        groups.add(number, run, &mut outcome.not_reached);
        bar.set_message(format!("{} ended badly", groups.count));
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcome.interrupted = interrupted.load(Ordering::Relaxed);
    outcome.bad = groups.finish();
    Ok(outcome)
}

pub fn most_calls(images: &[ImageLog]) -> u64 {
    images.iter().map(|image| image.calls).max().unwrap_or(0)
}

/// The failed call of the process that started first, of those with one.
pub fn first_failed(images: &[ImageLog]) -> Option<&FailedCall> {
    images.iter().find_map(|image| image.failed.as_ref())
}

/// The calls that are to fail, in order: all of them, or some chosen at random without repetition.
fn choose(calls: u64, sample: Option<(u64, u64)>) -> Vec<u64> {
    let Some((runs, seed)) = sample.filter(|(runs, _)| *runs < calls) else {
        return (1..=calls).collect();
    };
    let mut random = fastrand::Rng::with_seed(seed);
    // Floyd's algorithm draws as many numbers as are wanted, from any range.
    let mut chosen = std::collections::BTreeSet::new();
    for last in calls - runs + 1..=calls {
        let number = random.u64(1..=last);
        if !chosen.insert(number) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

#[derive(Default)]
struct Groups {
    /// By end, site and caller: a wrapper of malloc without debug information is a site, too.
    bad: BTreeMap<(Ended, String, Option<String>), BadRuns>,
    sites: Option<Sites>,
    count: u64,
}

impl Groups {
    fn add(&mut self, number: u64, run: Run, not_reached: &mut u64) {
        let failed = first_failed(&run.images);
        *not_reached += u64::from(failed.is_none());
        if !run.ended.is_bad() {
            return;
        }
        self.count += 1;
        let sites = self.sites.get_or_insert_with(Sites::new);
        let site = failed.map_or_else(
            || FailSite {
                line: "[no call failed]".to_owned(),
                through: Vec::new(),
                callers: Vec::new(),
                stack: Vec::new(),
            },
            |call| sites.of(call),
        );
        let caller = site.callers.first().cloned();
        let key = (without_addresses(&run.ended), site.line.clone(), caller);
        let runs = self.bad.entry(key).or_insert_with(|| BadRuns {
            numbers: Vec::new(),
            ended: run.ended.clone(),
            site,
            call: failed.cloned(),
        });
        runs.numbers.push(number);
    }

    fn finish(self) -> Vec<BadRuns> {
        let mut bad: Vec<_> = self.bad.into_values().collect();
        order::sort_by_key(&mut bad, |runs| runs.numbers.first().copied());
        bad
    }
}

/// Reports of one bug differ in their addresses from run to run.
fn without_addresses(ended: &Ended) -> Ended {
    match ended {
        Ended::Report(line) => {
            let words = line.split(' ').filter(|word| !word.starts_with("0x"));
            Ended::Report(words.collect::<Vec<_>>().join(" "))
        }
        other => other.clone(),
    }
}

/// `ends with …`, after a subject.
pub fn describe(ended: &Ended) -> String {
    match ended {
        Ended::Code(code) => format!("ends with exit code {code}"),
        Ended::Signal(signal) => format!("ends by {}", signal_name(*signal)),
        Ended::Hang => "hangs".to_owned(),
        Ended::Report(line) => format!(
            "makes a sanitizer report {}",
            larder_base::printable::escape(line)
        ),
    }
}

pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal)
        .map_or_else(|| format!("signal {signal}"), str::to_owned)
}

fn progress_bar(runs: u64) -> ProgressBar {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}");
    let bar = ProgressBar::new(runs);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_distinct_in_order_and_the_seeds() {
        assert_eq!(choose(3, None), [1, 2, 3]);
        assert_eq!(choose(3, Some((5, 1))), [1, 2, 3]);
        for (calls, runs) in [(2, 1), (100, 99), (1_000_000, 50)] {
            let chosen = choose(calls, Some((runs, 7)));
            assert_eq!(chosen.len() as u64, runs);
            assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(chosen.iter().all(|number| (1..=calls).contains(number)));
            assert_eq!(chosen, choose(calls, Some((runs, 7))));
        }
        assert_ne!(choose(1_000, Some((5, 1))), choose(1_000, Some((5, 2))));
    }

    #[test]
    fn reports_of_one_bug_are_one_group() {
        let report = |address: &str| Ended::Report(format!("ERROR: x on address {address} at pc"));
        assert_eq!(
            without_addresses(&report("0x1")),
            without_addresses(&report("0x2f"))
        );
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(64), "signal 64");
    }
}
