//! What a budget is compared with: the figures, sites and times of a run.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use larder_analysis::reading::Analysis;
use larder_analysis::reading::attribute::functions;
use larder_analysis::reading::losses;
use larder_analysis::reading::naming::{frame_name, frame_place, nearby, without_start};
use larder_analysis::reading::resolve::{ChainFrame, Charging};
use larder_analysis::reading::sites::{Site, SortKey};
use larder_analysis::reading::subject::Subject;
use larder_analysis::reading::wrappers::Passed;
use larder_base::execute;
use larder_base::failure::{Failure, Result};

use super::figures::{Figure, Figures};
use crate::record::{RecordPlan, Run};

/// Callers shown of a site.
const CALLERS: usize = 3;

/// A source line that allocates. Its names come from the file and are not yet printable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredSite {
    pub function: String,
    /// As seen from the current directory; empty if unknown.
    pub file: String,
    /// 0 if unknown.
    pub line: u32,
    /// The peak is 0, because a site's share of it is not known.
    pub figures: Figures,
    /// The next functions outwards, printable.
    pub callers: String,
}

#[derive(Debug)]
pub struct Measured {
    pub figures: Figures,
    pub sites: Vec<MeasuredSite>,
    /// The program's own allocation functions, whose callers are the sites.
    pub wrappers: Passed,
    /// `None`: read from an existing trace.
    pub times: Option<Times>,
    /// Figures that differed between the runs: lowest and highest.
    pub varied: BTreeMap<Figure, (u64, u64)>,
    pub runs: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub wall: Duration,
    /// User and system time of all processes that were waited for.
    pub cpu: Duration,
}

impl Measured {
    /// Reads a trace.
    pub fn of_trace(subject: &Subject) -> Result<Self> {
        let analysis = Analysis::read(subject, &mut ())?;
        if let Some(missing) = losses::summary(&analysis) {
            return Err(Failure::failed(format!(
                "the figures are not whole, so they cannot be judged: {missing}"
            )));
        }
        let ranked = analysis.sites.ranked(SortKey::Calls);
        Ok(Self {
            figures: Figures::of(&analysis.counters),
            sites: ranked.into_iter().map(measured_site).collect(),
            wrappers: analysis.wrappers,
            times: None,
            varied: BTreeMap::new(),
            runs: 1,
        })
    }

    /// Runs a command `runs` times and takes the lowest of each figure and time; the sites are those of
    /// the run with the fewest allocations. Stops when the command fails.
    pub fn of_runs(
        plan: &RecordPlan,
        charging: &Charging,
        runs: u32,
    ) -> Result<std::result::Result<Self, ExitStatus>> {
        let mut best: Option<Self> = None;
        for _ in 0..runs {
            let one = match of_run(plan, charging)? {
                Ok(one) => one,
                Err(status) => return Ok(Err(status)),
            };
            best = Some(match best {
                None => one,
                Some(best) => best.joined(one),
            });
        }
        best.map(Ok)
            .ok_or_else(|| Failure::failed("no run was asked for: give --runs 1 or more"))
    }

    fn joined(mut self, other: Self) -> Self {
        for figure in Figure::ALL {
            let (a, b) = (self.figures.get(figure), other.figures.get(figure));
            let (low, high) = self.varied.get(&figure).copied().unwrap_or((a, a));
            if (low, high) != (b, b) {
                self.varied.insert(figure, (low.min(b), high.max(b)));
            }
        }
        let fewer = other.figures.get(Figure::Allocations) < self.figures.get(Figure::Allocations);
        self.times = match (self.times, other.times) {
            (Some(a), Some(b)) => Some(Times {
                wall: a.wall.min(b.wall),
                cpu: a.cpu.min(b.cpu),
            }),
            (a, b) => a.or(b),
        };
        let (sites, wrappers) = match fewer {
            true => (other.sites, other.wrappers),
            false => (self.sites, self.wrappers),
        };
        Self {
            figures: self.figures.lower(&other.figures),
            sites,
            wrappers,
            runs: self.runs + other.runs,
            ..self
        }
    }
}

fn of_run(
    plan: &RecordPlan,
    charging: &Charging,
) -> Result<std::result::Result<Measured, ExitStatus>> {
    let run = Run::prepare(plan)?;
    let scratch = tempfile::Builder::new()
        .prefix("larder-check-")
        .tempdir()
        .and_then(|scratch| Ok((fs::canonicalize(scratch.path())?, scratch)));
    let (directory, _scratch) = scratch.map_err(|error| {
        Failure::failed(format!(
            "no directory for the counters: {}: set TMPDIR to a writable place",
            larder_base::target::reason(&error)
        ))
    })?;
    let (before, start) = (children_cpu(), Instant::now());
    let status = run.start(&directory)?;
    let times = Times {
        wall: start.elapsed(),
        cpu: children_cpu().saturating_sub(before),
    };
    if !status.success() {
        return Ok(Err(status));
    }
    let subject = Subject {
        trace: directory,
        pid: None,
        wrappers: Vec::new(),
        charging: charging.clone(),
    };
    let measured = Measured::of_trace(&subject).map_err(|failure| {
        Failure::new(
            failure.status,
            format!(
                "the run cannot be judged: {}; `larder doctor PROGRAM` shows the cause",
                failure.message
            ),
        )
    })?;
    Ok(Ok(Measured {
        times: Some(times),
        ..measured
    }))
}

/// CPU time of all children that were waited for.
fn children_cpu() -> Duration {
    // SAFETY: a plain struct of numbers, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let of = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn measured_site(site: &Site) -> MeasuredSite {
    let mut figures = Figures::default();
    for (figure, value) in [
        (Figure::Allocations, site.sums.calls),
        (Figure::TotalBytes, site.sums.bytes),
        (Figure::LeakedBlocks, site.sums.live_blocks),
        (Figure::LeakedBytes, site.sums.live_bytes),
        (Figure::Tiny, site.sums.tiny),
    ] {
        figures.set(figure, value);
    }
    let module = site.module.as_ref().map(|module| module.name.clone());
    MeasuredSite {
        function: match (&site.function, module) {
            (Some(function), _) => function.to_string(),
            (None, Some(module)) => format!("{module}+{:#x}", site.address),
            (None, None) => String::new(),
        },
        file: site.file.as_deref().map_or("", nearby).to_owned(),
        line: site.line.unwrap_or(0),
        figures,
        callers: callers(site),
    }
}

fn callers(site: &Site) -> String {
    let Some(stack) = site.heaviest(SortKey::Calls) else {
        return String::new();
    };
    let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
    let outer = stack.site.map_or(0, |site| site + 1);
    let frames = without_start(&frames).get(outer..).unwrap_or(&[]);
    let shown = frames.iter().take(CALLERS);
    let mut names: Vec<String> = shown
        .map(|frame| format!("{} ({})", frame_name(frame), frame_place(frame)))
        .collect();
    if frames.len() > CALLERS {
        names.push(format!("{} more", frames.len() - CALLERS));
    }
    names.join(" ← ")
}

pub fn describe_end(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => format!("signal {}", execute::exit_code(status).wrapping_sub(128)),
    }
}
