//! `larder lab counts`: counts what limits an allocator on many processors: atomic read-modify-writes,
//! locks, waits, slow paths and system calls, per million pairs of malloc and free.
//!
//! A run of 2 N pairs - one of N on as many threads = N pairs without start-up. If a pattern's threads
//! start and end, the same run without allocations is subtracted, too. Instructions are counted under
//! callgrind and do not depend on the machine; system calls are counted natively, because they depend on
//! contention.
//! Invariant: a cell is a count per million pairs, never negative, or unknown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::number::rounded;
use larder_base::order;
use serde::Serialize;
use serde_json::json;

use super::callgrind::{self, Detail, Profile};
use super::disassembly::{self, Sites};
use super::output::{self, Output, Report, Table};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::strace::{self, Calls};
use super::subject::{self, Field};
use crate::bench::allocators::Allocator;
use crate::error::LabError;

const PROGRAM: &str = "bench_counts";
const MILLION: f64 = 1e6;
/// System calls are counted at full speed, over more pairs.
const NATIVE_FACTOR: u64 = 4;
/// The C library's mutexes, which most allocators use.
const MUTEX_CALLS: [&str; 2] = ["pthread_mutex_lock", "pthread_mutex_trylock"];
/// A count per million pairs and thread up to this is noise.
const NEGLIGIBLE: f64 = 10.0;
/// So is a count up to this on any number of threads: a few context switches in a run.
const NEGLIGIBLE_IN_ALL: f64 = 200.0;
/// Fewer pairs would mostly be warm-up.
const LEAST_PAIRS_A_THREAD: u64 = 2_000;

/// Which threads allocate and which free; `bench/counts.cc` has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Malloc, then free at once
    Pairs,
    /// Blocks replaced at random by the thread that allocated them
    Local,
    /// Half of the threads allocate, the other half free
    Remote,
    /// Blocks passed on to another thread, like in Larson's server
    Larson,
    /// Threads that end after a hundred pairs
    Births,
}

impl Pattern {
    pub const ALL: [Pattern; 5] = [
        Pattern::Pairs,
        Pattern::Local,
        Pattern::Remote,
        Pattern::Larson,
        Pattern::Births,
    ];

    fn name(self) -> &'static str {
        match self {
            Pattern::Pairs => "pairs",
            Pattern::Local => "local",
            Pattern::Remote => "remote",
            Pattern::Larson => "larson",
            Pattern::Births => "births",
        }
    }

    fn is_possible_on(self, threads: usize) -> bool {
        self != Pattern::Remote || threads >= 2
    }

    /// The fewest threads that the pattern needs: a single thread passes nothing on.
    fn base_threads(self) -> usize {
        match self {
            Pattern::Remote | Pattern::Larson => 2,
            Pattern::Pairs | Pattern::Local | Pattern::Births => 1,
        }
    }

    /// Pairs of a run, if this many are requested.
    fn operations(self, asked: u64, threads: usize) -> u64 {
        match self {
            Pattern::Births => asked,
            _ => asked.max(LEAST_PAIRS_A_THREAD * threads as u64),
        }
    }

    /// Starting threads takes locks and system calls in the C library.
    fn needs_baseline(self) -> bool {
        self == Pattern::Births
    }
}

#[derive(Debug)]
pub struct CountsPlan {
    pub patterns: Vec<Pattern>,
    /// Ascending.
    pub threads: Vec<usize>,
    pub operations: u64,
    pub field: Field,
    pub output: Output,
}

const COLUMNS: [&str; 6] = [
    "atomics",
    "locks",
    "waits",
    "slow paths",
    "system calls",
    "instructions a pair",
];
/// The columns that grow with contention, so not the instructions.
const JUDGED: usize = 5;

/// Counts of one run, or per million pairs, in the order of COLUMNS; None if unknown.
type Cell = [Option<f64>; COLUMNS.len()];

/// By allocator, pattern, threads.
type Cells = BTreeMap<(usize, Pattern, usize), Cell>;

pub fn run(plan: &CountsPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    if std::env::consts::ARCH != "x86_64" {
        let cause = "larder lab counts knows only the atomic instructions of x86-64";
        return Err(LabError::NoRun(cause.to_owned()).into());
    }
    programs::require(callgrind::COMMAND, callgrind::PACKAGE)?;
    programs::require(strace::COMMAND, strace::PACKAGE)?;
    programs::require(disassembly::COMMAND, disassembly::PACKAGE)?;
    let programs = Programs::find(&[PROGRAM], plan.field.run_limit_seconds)?;
    let (allocators, notes) = plan.field.find()?;
    for allocator in &allocators {
        subject::check_loaded(&programs, allocator, &[PROGRAM, "pairs", "1", "1"])?;
    }
    let mut counter = Counter {
        programs: &programs,
        sites: BTreeMap::new(),
    };
    let (cells, failures) = measure(plan, &mut counter, &allocators)?;
    let slow_paths = counter.slow_paths();
    report(plan, allocators, notes, &cells, failures, &slow_paths).publish(&plan.output, &machine)
}

fn measure(
    plan: &CountsPlan,
    counter: &mut Counter,
    allocators: &[Allocator],
) -> Result<(Cells, Vec<String>)> {
    let possible: Vec<(Pattern, usize)> = plan
        .patterns
        .iter()
        .flat_map(|pattern| plan.threads.iter().map(move |threads| (*pattern, *threads)))
        .filter(|(pattern, threads)| pattern.is_possible_on(*threads))
        .collect();
    let progress = Progress::new(possible.len() * allocators.len());
    let (mut cells, mut failures) = (Cells::new(), Vec::new());
    for (index, allocator) in allocators.iter().enumerate() {
        for &(pattern, threads) in &possible {
            progress.begin(&format!(
                "{} {} × {threads}",
                allocator.name,
                pattern.name()
            ));
            match counter.cell(allocator, pattern, threads, plan.operations) {
                Ok(cell) => {
                    cells.insert((index, pattern, threads), cell);
                }
                // An allocator that cannot run under valgrind leaves gaps in the table.
                Err(failure) => failures.push(failure.message),
            }
            progress.end_step();
        }
    }
    if cells.is_empty() {
        let cause = failures
            .pop()
            .unwrap_or_else(|| "no pattern is possible on so few threads".to_owned());
        return Err(LabError::NoRun(format!("nothing could be counted: {cause}")).into());
    }
    Ok((cells, failures))
}

/// Runs the program and counts. Caches the disassembly of files.
struct Counter<'a> {
    programs: &'a Programs,
    sites: BTreeMap<PathBuf, Sites>,
}

/// One kind of run.
#[derive(Clone, Copy)]
struct Setting<'a> {
    allocator: &'a Allocator,
    pattern: Pattern,
    threads: usize,
    allocating: bool,
}

impl Setting<'_> {
    fn launch(&self, operations: u64) -> Launch<'_> {
        let mut words = vec![PROGRAM.to_owned(), self.pattern.name().to_owned()];
        words.extend([self.threads.to_string(), operations.to_string()]);
        if !self.allocating {
            words.push("none".to_owned());
        }
        Launch::new(&words, Some(self.allocator))
    }
}

impl Counter<'_> {
    fn cell(
        &mut self,
        allocator: &Allocator,
        pattern: Pattern,
        threads: usize,
        operations: u64,
    ) -> Result<Cell> {
        let setting = Setting {
            allocator,
            pattern,
            threads,
            allocating: true,
        };
        let mut cell = self.per_million(setting, operations)?;
        if pattern.needs_baseline() {
            let idle = self.per_million(
                Setting {
                    allocating: false,
                    ..setting
                },
                operations,
            )?;
            cell = subtract(&cell, &idle);
        }
        let mut cell = cell.map(|count| count.map(|count| count.max(0.0)));
        // One more purge in the shorter run would leave fewer calls than waits, though waits are calls.
        let [_, _, waits, _, calls, _] = &mut cell;
        *calls = calls.zip(*waits).map(|(calls, waits)| calls.max(waits));
        Ok(cell)
    }

    fn per_million(&mut self, setting: Setting, asked: u64) -> Result<Cell> {
        let operations = setting.pattern.operations(asked, setting.threads);
        let (short, short_done) = self.emulated(setting, operations)?;
        let (long, long_done) = self.emulated(setting, 2 * operations)?;
        let emulated = subtract(&long, &short);
        let native = operations.max(NATIVE_FACTOR * asked);
        let (short, native_short_done) = self.native(setting, native)?;
        let (long, native_long_done) = self.native(setting, 2 * native)?;
        let natively = subtract(&long, &short);
        let pairs = long_done - short_done;
        let native_pairs = native_long_done - native_short_done;
        if pairs <= 0.0 || native_pairs <= 0.0 {
            return Err(LabError::NoRun(format!(
                "{PROGRAM} {} on {} threads: {operations} pairs are too few for so many threads: \
                 give more with --operations",
                setting.pattern.name(),
                setting.threads
            ))
            .into());
        }
        let rate = |count: Option<f64>, pairs: f64| count.map(|count| count / pairs * MILLION);
        let [atomics, locks, _, slow, _, instructions] = emulated;
        let [_, _, waits, _, calls, _] = natively;
        Ok([
            rate(atomics, pairs),
            rate(locks, pairs),
            rate(waits, native_pairs),
            rate(slow, pairs),
            rate(calls, native_pairs),
            rate(instructions, pairs).map(|rate| rate / MILLION),
        ])
    }

    fn emulated(&mut self, setting: Setting, operations: u64) -> Result<(Cell, f64)> {
        let launch = setting.launch(operations);
        let profile =
            callgrind::profile(self.programs, launch, setting.threads, Detail::Addresses)?;
        for file in profile.by_address.keys() {
            if !self.sites.contains_key(file) {
                self.sites.insert(file.clone(), Sites::of(file)?);
            }
        }
        let done = programs::number(&profile.printed, "operations", PROGRAM)?;
        let program = self.programs.path(PROGRAM);
        Ok((tally(&profile, &self.sites, &program), done))
    }

    fn native(&self, setting: Setting, operations: u64) -> Result<(Cell, f64)> {
        let calls = strace::count(self.programs, setting.launch(operations))?;
        let done = programs::number(&calls.printed, "operations", PROGRAM)?;
        let own = programs::number(&calls.printed, "own_futex_calls", PROGRAM)?;
        Ok((native_tally(&calls, own), done))
    }

    /// The functions whose entries were counted as slow paths.
    fn slow_paths(&self) -> Vec<&'static str> {
        let names = self
            .sites
            .values()
            .flat_map(|sites| sites.slow_paths.keys().copied());
        let mut names: Vec<_> = names.collect();
        order::sort_by(&mut names, Ord::cmp);
        names.dedup();
        names
    }
}

/// Counts of the files other than the program's own.
fn tally(profile: &Profile, sites: &BTreeMap<PathBuf, Sites>, program: &Path) -> Cell {
    let (mut atomics, mut locks, mut slow, mut instructions) = (0, 0, None, 0);
    for (file, executed) in &profile.by_address {
        if file == program {
            continue;
        }
        instructions += executed.values().sum::<u64>();
        let Some(sites) = sites.get(file) else {
            continue;
        };
        let times = |address: &u64| executed.get(address).copied().unwrap_or(0);
        atomics += sites.atomics.iter().map(times).sum::<u64>();
        locks += sites.locks.iter().map(times).sum::<u64>();
        if !sites.slow_paths.is_empty() {
            *slow.get_or_insert(0) += sites.slow_paths.values().map(times).sum::<u64>();
        }
    }
    let mutexes = MUTEX_CALLS
        .iter()
        .filter_map(|name| profile.calls.get(*name));
    locks += mutexes.sum::<u64>();
    let known = |count: u64| Some(count as f64);
    [
        known(atomics),
        known(locks),
        None,
        slow.and_then(known),
        None,
        known(instructions),
    ]
}

fn native_tally(calls: &Calls, own_futex_calls: f64) -> Cell {
    let waits = calls.waiting as f64 - own_futex_calls;
    [
        None,
        None,
        Some(waits),
        None,
        Some(waits + calls.memory as f64),
        None,
    ]
}

fn subtract(a: &Cell, b: &Cell) -> Cell {
    std::array::from_fn(|column| Some(a[column]? - b[column]?))
}

/// The cells of an allocator that grow faster than the number of threads, against the fewest.
fn growing(plan: &CountsPlan, cells: &Cells, index: usize) -> Vec<(Pattern, usize, usize)> {
    let mut found = Vec::new();
    for pattern in &plan.patterns {
        let real = |threads: &&usize| **threads >= pattern.base_threads();
        let mut row = plan
            .threads
            .iter()
            .filter(real)
            .filter_map(|threads| Some((*threads, cells.get(&(index, *pattern, *threads))?)));
        let Some((fewest, first)) = row.next() else {
            continue;
        };
        for (threads, cell) in row {
            for column in 0..JUDGED {
                let (Some(then), Some(now)) = (first[column], cell[column]) else {
                    continue;
                };
                let grown = then.max(NEGLIGIBLE * fewest as f64) * threads as f64 / fewest as f64;
                if now > grown.max(NEGLIGIBLE_IN_ALL) {
                    found.push((*pattern, threads, column));
                }
            }
        }
    }
    found
}

fn report(
    plan: &CountsPlan,
    allocators: Vec<Allocator>,
    mut notes: Vec<String>,
    cells: &Cells,
    failures: Vec<String>,
    slow_paths: &[&str],
) -> Report {
    let mut tables = Vec::new();
    for (index, allocator) in allocators.iter().enumerate() {
        let growing = growing(plan, cells, index);
        tables.push(by_threads(plan, cells, index, allocator, &growing));
        notes.push(verdict(allocator, &growing));
    }
    if allocators.len() > 1 {
        tables.push(atomics(plan, &allocators, cells));
    }
    notes.push(format!(
        "Atomics: lock-prefixed instructions and exchanges with memory, outside of the program itself. \
         Locks: pthread mutexes, and Larder's own; spin locks that others have of their own are among \
         the atomics only. Waits: futex, yield and sleep calls. Slow paths: entries of {}; unknown \
         for others.",
        if slow_paths.is_empty() { "none".to_owned() } else { slow_paths.join(", ") }
    ));
    notes.push(
        "Atomics, locks, slow paths and instructions: callgrind, where one thread runs at a time, so \
         that retries are not seen. Waits and system calls: strace, natively."
            .to_owned(),
    );
    notes.extend(failures);
    let figures: Vec<_> = cells
        .iter()
        .map(|((index, pattern, threads), cell)| {
            let mut figure = json!({
                "allocator": allocators[*index].name,
                "pattern": pattern,
                "threads": threads,
            });
            for (name, count) in COLUMNS.iter().zip(cell) {
                figure[name.replace(' ', "_")] = json!(count);
            }
            figure
        })
        .collect();
    let faster: BTreeMap<&str, Vec<_>> = allocators
        .iter()
        .enumerate()
        .map(|(index, allocator)| {
            let growing = growing(plan, cells, index);
            let growing = growing.into_iter().map(|(pattern, threads, column)| {
                json!({"pattern": pattern, "threads": threads, "count": COLUMNS[column]})
            });
            (allocator.name.as_str(), growing.collect())
        })
        .collect();
    let data = json!({
        "operations": plan.operations,
        "slow_paths": slow_paths,
        "per_million_pairs": figures,
        "grow_faster_than_threads": faster,
    });
    Report {
        name: "counts",
        title: "Counts that predict many processors",
        method: format!(
            "Per million pairs of malloc and free, {} against {} pairs, or more on many threads;",
            2 * plan.operations,
            plan.operations
        ),
        tables,
        notes,
        plots: Vec::new(),
        data,
        allocators,
    }
}

fn verdict(allocator: &Allocator, growing: &[(Pattern, usize, usize)]) -> String {
    if growing.is_empty() {
        return format!(
            "{}: no count grows faster than the threads.",
            allocator.name
        );
    }
    format!(
        "{}: {} counts, marked *, grow faster than the threads.",
        allocator.name,
        growing.len()
    )
}

fn by_threads(
    plan: &CountsPlan,
    cells: &Cells,
    index: usize,
    allocator: &Allocator,
    growing: &[(Pattern, usize, usize)],
) -> Table {
    let caption = format!("{}, per million pairs", allocator.name);
    let header = ["pattern × threads".to_owned()].into_iter();
    let mut table = Table::new(&caption, header.chain(COLUMNS.map(str::to_owned)));
    for pattern in &plan.patterns {
        for threads in &plan.threads {
            let Some(cell) = cells.get(&(index, *pattern, *threads)) else {
                continue;
            };
            let texts = cell.iter().enumerate().map(|(column, count)| {
                let show = if column < JUDGED {
                    rounded
                } else {
                    output::figure
                };
                let mark = if growing.contains(&(*pattern, *threads, column)) {
                    "*"
                } else {
                    ""
                };
                output::optional(*count, show) + mark
            });
            let label = format!("{} × {threads}", pattern.name());
            table.push([label].into_iter().chain(texts));
        }
    }
    table
}

fn atomics(plan: &CountsPlan, allocators: &[Allocator], cells: &Cells) -> Table {
    let header = ["pattern × threads".to_owned()].into_iter();
    let names = allocators.iter().map(|allocator| allocator.name.clone());
    let mut table = Table::new(
        "Atomic read-modify-writes per million pairs",
        header.chain(names),
    );
    for pattern in &plan.patterns {
        for threads in &plan.threads {
            if !pattern.is_possible_on(*threads) {
                continue;
            }
            let texts = (0..allocators.len()).map(|index| {
                let count = cells
                    .get(&(index, *pattern, *threads))
                    .and_then(|cell| cell[0]);
                output::optional(count, rounded)
            });
            let label = format!("{} × {threads}", pattern.name());
            table.push([label].into_iter().chain(texts));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> CountsPlan {
        CountsPlan {
            patterns: vec![Pattern::Local],
            threads: vec![2, 8],
            operations: 1000,
            field: Field::default(),
            output: Output::default(),
        }
    }

    fn cell(atomics: f64) -> Cell {
        [
            Some(atomics),
            Some(0.0),
            Some(0.0),
            None,
            Some(0.0),
            Some(40.0),
        ]
    }

    #[test]
    fn the_programs_own_instructions_do_not_count() {
        let program = Path::new("/b/bench_counts");
        let executed = BTreeMap::from([(0x10, 7), (0x20, 5)]);
        let profile = Profile {
            by_address: BTreeMap::from([
                (program.to_owned(), executed.clone()),
                ("/l.so".into(), executed),
            ]),
            calls: BTreeMap::from([("pthread_mutex_lock".to_owned(), 3), ("free".to_owned(), 9)]),
            ..Profile::default()
        };
        let of = Sites {
            atomics: [0x10].into(),
            locks: [0x10].into(),
            slow_paths: [("malloc_slow", 0x20)].into(),
        };
        let sites = BTreeMap::from([
            ("/l.so".into(), of),
            (
                program.to_owned(),
                Sites {
                    atomics: [0x10].into(),
                    ..Sites::default()
                },
            ),
        ]);
        let counts = tally(&profile, &sites, program);
        assert_eq!(
            counts,
            [Some(7.0), Some(10.0), None, Some(5.0), None, Some(12.0)]
        );
    }

    #[test]
    fn slow_paths_of_other_allocators_are_unknown() {
        let profile = Profile::default();
        assert_eq!(tally(&profile, &BTreeMap::new(), Path::new("/b"))[3], None);
    }

    #[test]
    fn the_programs_own_waiting_is_taken_off() {
        let calls = Calls {
            memory: 5,
            waiting: 12,
            ..Calls::default()
        };
        assert_eq!(
            native_tally(&calls, 10.0),
            [None, None, Some(2.0), None, Some(7.0), None]
        );
    }

    #[test]
    fn growth_up_to_the_threads_is_allowed() {
        let grown = |then: f64, now: f64| {
            let cells = Cells::from([
                ((0, Pattern::Local, 2), cell(then)),
                ((0, Pattern::Local, 8), cell(now)),
            ]);
            growing(&plan(), &cells, 0)
        };
        assert!(grown(1000.0, 4000.0).is_empty());
        assert_eq!(grown(1000.0, 4001.0), [(Pattern::Local, 8, 0)]);
        // A growth from 0 to noise does not count.
        assert!(grown(0.0, 200.0).is_empty());
        assert_eq!(grown(0.0, 201.0).len(), 1);
    }

    #[test]
    fn a_cell_that_grows_is_marked() {
        let cells = Cells::from([
            ((0, Pattern::Local, 2), cell(10.0)),
            ((0, Pattern::Local, 8), cell(5000.0)),
        ]);
        let growing = growing(&plan(), &cells, 0);
        let table = by_threads(&plan(), &cells, 0, &Allocator::default(), &growing);
        assert_eq!(table.rows[0][..4], ["local × 2", "10", "0", "0"]);
        assert_eq!(table.rows[1][1], "5,000*");
        assert_eq!(table.rows[1][4], "–");
    }
}
