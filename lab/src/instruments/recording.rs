//! `larder lab recording`: the cost of recording, or only counting, a program, in time and bytes on disk,
//! against heaptrack on the same program in the same rounds.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use larder_base::failure::Result;
use larder_base::installed;
use larder_base::libraries::LIBRARY_VARIABLE;
use larder_base::machine::Machine;
use larder_base::number::grouped;
use larder_base::statistics::median;
use serde_json::{Value, json};

use super::output::{Output, Report, Table, figure};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::recorded::{self, Recorded, pigeons};
use super::traces::Counted;

const PROGRAM: &str = "bench_recorded";
/// Each way to run a program, and its index in `Samples::seconds`.
const WAYS: [&str; 6] = [
    "plain",
    "larder",
    "larder --aggregate",
    "larder --contents",
    "heaptrack",
    "heaptrack --raw",
];
const PLAIN: usize = 0;
const LARDER: usize = 1;
const AGGREGATE: usize = 2;
const CONTENTS: usize = 3;
const HEAPTRACK: usize = 4;
const RAW: usize = 5;
const RUN_LIMIT_SECONDS: u64 = 600;
/// Bytes of a unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
pub struct RecordingPlan {
    pub rounds: u32,
    pub scale: f64,
    pub output: Output,
}

/// A program, and the results of its runs.
#[derive(Debug)]
struct Case {
    program: Recorded,
    samples: Samples,
}

#[derive(Debug, Default)]
struct Samples {
    seconds: [Vec<f64>; WAYS.len()],
    /// Bytes on disk of the last run.
    bytes: [u64; WAYS.len()],
    /// Counts of the last recorded run.
    counted: Counted,
}

/// The cost of one way.
#[derive(Debug, PartialEq)]
struct Added {
    seconds: f64,
    ns_per_event: f64,
    bytes_per_event: f64,
}

pub fn run(plan: &RecordingPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let programs = Programs::find(&[PROGRAM], RUN_LIMIT_SECONDS)?;
    programs::require("heaptrack", "heaptrack")?;
    let mut cases = cases(&programs, plan.scale)?;
    let (others, absent) = recorded::find(&programs.scratch_folder()?, plan.scale)?;
    cases.extend(others.into_iter().map(Case::new));
    measure(plan, &programs, &mut cases)?;
    report(plan, &cases, absent).publish(&plan.output, &machine)
}

fn cases(programs: &Programs, scale: f64) -> Result<Vec<Case>> {
    let problem = programs.scratch_folder()?.join("pigeons.smt2");
    let rounds = (20.0 * scale).max(1.0) as usize;
    fs::write(&problem, pigeons(rounds))
        .map_err(|error| larder_base::measured::scratch_failure("a problem for z3", error))?;
    let z3 = programs::require("z3", "z3")?.display().to_string();
    let own = |kind: &str, count: &str| [PROGRAM, kind, count].map(str::to_owned).to_vec();
    let case = |name, words| {
        Case::new(Recorded {
            name,
            words,
            environment: Vec::new(),
        })
    };
    Ok(vec![
        case("string map", own("map", "300")),
        case("deep templates", own("parser", "10000")),
        case("z3", vec![z3, problem.display().to_string()]),
        case("four threads", own("threads", "80")),
    ])
}

fn measure(plan: &RecordingPlan, programs: &Programs, cases: &mut [Case]) -> Result<()> {
    let progress = Progress::new(plan.rounds as usize * cases.len());
    let mut order: Vec<usize> = (0..WAYS.len()).collect();
    for _ in 0..plan.rounds {
        for case in cases.iter_mut() {
            progress.begin(case.program.name);
            fastrand::shuffle(&mut order);
            for &way in &order {
                case.run(way, plan.scale, programs)?;
            }
            progress.end_step();
        }
    }
    Ok(())
}

impl Case {
    fn new(program: Recorded) -> Case {
        Case {
            program,
            samples: Samples::default(),
        }
    }

    fn run(&mut self, way: usize, scale: f64, programs: &Programs) -> Result<()> {
        let folder = programs.scratch_folder()?;
        let trace = folder.join("trace");
        let mut launch = Launch::new(&self.program.words, None).scaled(scale);
        launch.wrapper = wrapper(way, &trace)?;
        let environment = self.program.environment.iter();
        launch
            .environment
            .extend(environment.map(|(name, value)| (name.clone(), value.into())));
        // The variables that locate the libraries are for the tool, not for the program.
        if let Some(libraries) = std::env::var_os(LIBRARY_VARIABLE) {
            let pair = (LIBRARY_VARIABLE.to_owned(), libraries);
            launch.environment.push(pair);
        }
        let time = programs.time(&launch)?;
        let samples = &mut self.samples;
        samples.seconds[way].push(time.as_secs_f64());
        samples.bytes[way] = bytes_on_disk(&folder);
        if way == LARDER {
            samples.counted = Counted::of(&trace)?;
        }
        let _ = fs::remove_dir_all(&folder);
        Ok(())
    }
}

/// The words before the program. It keeps its own malloc, so that only recording differs.
fn wrapper(way: usize, trace: &Path) -> Result<Vec<OsString>> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let tool = || -> Result<Vec<OsString>> {
        let tool = installed::tool()?;
        Ok([vec![tool.into()], words(&["record", "--no-larder"])].concat())
    };
    let trace = trace.as_os_str();
    Ok(match way {
        PLAIN => Vec::new(),
        HEAPTRACK => [words(&["heaptrack", "-o"]), vec![trace.into()]].concat(),
        RAW => [words(&["heaptrack", "--raw", "-o"]), vec![trace.into()]].concat(),
        _ => {
            let mode: &[&str] = match way {
                AGGREGATE => &["--aggregate", "-o"],
                CONTENTS => &["--contents", "-o"],
                _ => &["-o"],
            };
            [tool()?, words(mode), vec![trace.into()], words(&["--"])].concat()
        }
    })
}

/// Bytes on disk of all files in a folder and its subfolders; holes do not count.
fn bytes_on_disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => bytes_on_disk(path),
        Ok(meta) => meta.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    };
    entries.map(|entry| bytes(&entry.path())).sum()
}

impl Samples {
    fn added(&self, way: usize) -> Option<Added> {
        let seconds = median(&self.seconds[way])? - median(&self.seconds[PLAIN])?;
        let events = self.counted.events as f64;
        (events > 0.0).then(|| Added {
            seconds,
            ns_per_event: seconds * 1e9 / events,
            bytes_per_event: self.bytes[way] as f64 / events,
        })
    }
}

/// A row for each program in each table, and its figures as JSON.
struct Rows {
    time: Table,
    size: Table,
    modes: Table,
    data: Vec<Value>,
}

impl Rows {
    fn new() -> Self {
        Self {
            time: Table::new(
                "Time added",
                [
                    "program",
                    "events",
                    "plain, s",
                    "larder, ns an event",
                    "heaptrack",
                    "larder / heaptrack",
                    "heaptrack --raw",
                    "larder / raw",
                ]
                .map(str::to_owned),
            ),
            size: Table::new(
                "Bytes on disk",
                [
                    "program",
                    "larder, an event",
                    "heaptrack",
                    "larder / heaptrack",
                    "truncated stacks",
                ]
                .map(str::to_owned),
            ),
            modes: Table::new(
                "Other ways to record",
                [
                    "program",
                    "--aggregate, ns an event",
                    "of recording",
                    "--contents",
                    "of recording",
                ]
                .map(str::to_owned),
            ),
            data: Vec::new(),
        }
    }

    /// Leaves out a program that some way failed to record.
    fn push(&mut self, case: &Case) {
        let samples = &case.samples;
        let ways = [LARDER, AGGREGATE, CONTENTS, HEAPTRACK, RAW].map(|way| samples.added(way));
        let (
            [
                Some(larder),
                Some(aggregate),
                Some(contents),
                Some(heaptrack),
                Some(raw),
            ],
            Some(plain),
        ) = (&ways, median(&samples.seconds[PLAIN]))
        else {
            return;
        };
        self.time.push([
            case.program.name.to_owned(),
            grouped(samples.counted.events),
            format!("{plain:.3}"),
            figure(larder.ns_per_event),
            figure(heaptrack.ns_per_event),
            figure(larder.seconds / heaptrack.seconds),
            figure(raw.ns_per_event),
            figure(larder.seconds / raw.seconds),
        ]);
        self.size.push([
            case.program.name.to_owned(),
            figure(larder.bytes_per_event),
            figure(heaptrack.bytes_per_event),
            figure(larder.bytes_per_event / heaptrack.bytes_per_event),
            grouped(samples.counted.truncated_stacks),
        ]);
        self.modes.push([
            case.program.name.to_owned(),
            figure(aggregate.ns_per_event),
            figure(aggregate.seconds / larder.seconds),
            figure(contents.ns_per_event),
            figure(contents.seconds / larder.seconds),
        ]);
        self.data.push(json!({
            "program": case.program.name,
            "events": samples.counted.events,
            "truncated_stacks": samples.counted.truncated_stacks,
            "ways": WAYS,
            "seconds": samples.seconds,
            "bytes_on_disk": samples.bytes,
        }));
    }
}

fn report(plan: &RecordingPlan, cases: &[Case], absent: Vec<String>) -> Report {
    let mut rows = Rows::new();
    cases.iter().for_each(|case| rows.push(case));
    Report {
        name: "recording",
        title: "What recording costs",
        method: format!(
            "Medians of {} rounds, interleaved, from start to end of the whole command;",
            plan.rounds
        ),
        allocators: Vec::new(),
        tables: vec![rows.time, rows.modes, rows.size],
        notes: [
            "heaptrack keeps neither time, thread nor address. Without --raw it looks symbols up \
             meanwhile, in a process of its own."
                .to_owned(),
        ]
        .into_iter()
        .chain(absent)
        .collect(),
        plots: Vec::new(),
        data: json!({"rounds": plan.rounds, "figures": rows.data}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_reported_by_event() {
        let samples = Samples {
            seconds: [
                vec![1.0, 9.0, 1.0],
                vec![3.0],
                vec![],
                vec![],
                vec![],
                vec![],
            ],
            bytes: [0, 4_000, 0, 0, 0, 0],
            counted: Counted {
                events: 1_000,
                truncated_stacks: 0,
            },
        };
        let added = Added {
            seconds: 2.0,
            ns_per_event: 2e6,
            bytes_per_event: 4.0,
        };
        assert_eq!(samples.added(LARDER), Some(added));
        assert_eq!(samples.added(HEAPTRACK), None);
        assert_eq!(Samples::default().added(LARDER), None);
    }
}
