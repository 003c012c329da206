//! One budget's runs as series, and where each moved.

use larder_base::number::{duration, grouped};

use super::change::{self, Change};
use super::store::Entry;
use crate::check::figures::Figure;

/// A quantity with one value a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    Count(Figure),
    Wall,
    Cpu,
}

impl Series {
    pub fn all() -> impl Iterator<Item = Series> {
        let counts = Figure::ALL.iter().map(|figure| Series::Count(*figure));
        counts.chain([Series::Wall, Series::Cpu])
    }

    pub fn key(self) -> &'static str {
        match self {
            Series::Count(figure) => figure.key(),
            Series::Wall => "wall",
            Series::Cpu => "cpu",
        }
    }

    pub fn describe(self, value: f64) -> String {
        match self {
            Series::Count(_) => grouped(value as u64),
            Series::Wall | Series::Cpu => duration(value as u64),
        }
    }

    pub fn value(self, run: &Entry) -> Option<f64> {
        let time = |ns: Option<i64>| ns.map(|ns| ns as f64);
        match self {
            Series::Count(figure) => Some(run.figures.get(figure) as f64),
            Series::Wall => time(run.wall_ns),
            Series::Cpu => time(run.cpu_ns),
        }
    }
}

/// A change of a figure; `change.at` is an index into the trend's runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    pub series: Series,
    pub change: Change,
}

#[derive(Debug)]
pub struct Trend {
    pub name: String,
    pub runs: Vec<Entry>,
    /// Ordered by series, then by run.
    pub moved: Vec<Moved>,
}

impl Trend {
    pub fn new(name: String, runs: Vec<Entry>) -> Self {
        let moved = Series::all()
            .flat_map(|series| moved(series, &runs))
            .collect();
        Self { name, runs, moved }
    }
}

fn moved(series: Series, runs: &[Entry]) -> Vec<Moved> {
    let changes = match series {
        Series::Count(figure) => {
            let values: Vec<u64> = runs.iter().map(|run| run.figures.get(figure)).collect();
            change::of_counts(&values)
        }
        Series::Wall | Series::Cpu => times_moved(series, runs),
    };
    changes
        .into_iter()
        .map(|change| Moved { series, change })
        .collect()
}

/// Only times of one machine can be compared: these are of the one that ran last.
fn times_moved(series: Series, runs: &[Entry]) -> Vec<Change> {
    let machine = |run: &Entry| (run.machine.clone(), run.processor.clone(), run.cores);
    let Some(last) = runs.last().map(machine) else {
        return Vec::new();
    };
    let (places, values): (Vec<usize>, Vec<f64>) = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| machine(run) == last)
        .filter_map(|(place, run)| Some((place, series.value(run)?)))
        .unzip();
    let found = change::of_times(&values).into_iter();
    found
        .filter_map(|change| {
            Some(Change {
                at: *places.get(change.at)?,
                ..change
            })
        })
        .collect()
}

/// The short form of a commit, with a star if files differed from it.
pub fn commit(run: &Entry) -> String {
    const SHOWN: usize = 10;
    let id: String = run.commit.chars().take(SHOWN).collect();
    let id = if id.is_empty() { "-".to_owned() } else { id };
    format!("{id}{}", if run.dirty { "*" } else { "" })
}

/// A change as text.
pub fn describe(trend: &Trend, moved: &Moved) -> Option<String> {
    let run = trend.runs.get(moved.change.at)?;
    let Change { before, after, .. } = moved.change;
    let percent = match before {
        0.0 => String::new(),
        before => format!(" ({:+.1} %)", (after - before) / before * 100.0),
    };
    Some(format!(
        "{}: {} {} → {}{percent}",
        commit(run),
        moved.series.key(),
        moved.series.describe(before),
        moved.series.describe(after)
    ))
}
