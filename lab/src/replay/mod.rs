//! `larder replay`: repeats the calls of a recorded program on any allocator, at full speed.
//!
//! ```text
//! args     the command line          session   larder-replay, allocator by allocator
//! compile  trace to operations       figures   medians and intervals
//!   slots, ops                       report    tables and a plot
//! ```
//!
//! The replaying process (`replay/`, C++) is another program, so that no memory of this one is in its
//! heap. docs/tasks/replay-on-other-allocators.md describes what is repeated and what is not.

mod args;
mod compile;
mod figures;
mod ops;
mod report;
mod session;
mod slots;

use std::fs::File;
use std::path::Path;

use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::subject::Subject;
use larder_analysis::reading::{ONLY_COUNTERS, counters_will_not_do};
use larder_base::error::system;
use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::measured::scratch_failure;
use larder_base::{output, printable};
use larder_trace::Trace;

use crate::bench::allocators::{self, Choice};
use crate::error::{self, LabError};
use crate::instruments::progress::Progress;

pub use args::{EXAMPLES, RawReplay, ReplayPlan};
use args::{Measurement, Task, Touch};
use compile::Totals;
use session::Replayer;

/// Redrawing the bar at every event would cost more than the event.
const PROGRESS_STEP: u64 = 1 << 16;
/// An allocator failed.
const EXIT_FAILED: u8 = 1;

/// The process image that is replayed.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub image: u32,
    /// The program and its arguments, printable.
    pub command: String,
    /// Number of images in the trace.
    pub images: usize,
    /// Files of the trace that could not be read, and why.
    pub unreadable: Vec<String>,
}

/// Returns 0 if all allocators completed it, 1 if one failed.
pub fn replay(plan: &ReplayPlan) -> Result<u8> {
    let (trace, process) = choose(&plan.trace, plan.pid)?;
    match &plan.task {
        Task::WriteOperations(path) => {
            write_operations(&trace, path)?;
            Ok(0)
        }
        Task::Measure(measurement) => measure(&trace, &process, plan.touch, measurement),
    }
}

fn measure(
    trace: &Trace,
    process: &Process,
    touch: Touch,
    measurement: &Measurement,
) -> Result<u8> {
    let machine = Machine::examine();
    measurement.output.prepare()?;
    let (allocators, mut notes) = allocators::find(&Choice {
        names: measurement.names.as_deref(),
        extra: &measurement.extra,
        larder: None,
    })?;
    let (operations, totals) = compile(trace, session::scratch_file()?)?;
    check_memory(&totals, touch)?;
    let replayer = Replayer::find(&operations, &totals, touch, measurement.run_limit)?;
    for allocator in &allocators {
        replayer.check_loaded(allocator)?;
    }
    let runs = replayer.measure(&allocators, measurement.rounds)?;
    if runs.runs.is_empty()
        && let Some((index, cause)) = runs.failures.first_key_value()
    {
        let name = allocators.get(*index).map_or("", |a| a.name.as_str());
        return Err(LabError::NoRun(format!(
            "no allocator could complete it; {name}: {cause}: --touch none takes less memory"
        ))
        .into());
    }
    let failed = !runs.failures.is_empty();
    notes.extend(report::notes(process, &totals, &allocators, &runs));
    let figures = figures::figures(&allocators, &runs, totals.peak_live_bytes);
    report::report(
        measurement,
        touch,
        process,
        &totals,
        allocators,
        notes,
        &runs,
        &figures,
    )
    .publish(&measurement.output, &machine)?;
    Ok(if failed { EXIT_FAILED } else { 0 })
}

/// The image with the most calls, of this process if one is named.
fn choose(path: &Path, pid: Option<u32>) -> Result<(Trace, Process)> {
    let subject = Subject {
        trace: path.to_owned(),
        pid,
        wrappers: Vec::new(),
        charging: Charging::default(),
    };
    let (traces, unreadable) = subject.open()?;
    let images = traces.len();
    let largest = traces.into_iter().max_by_key(Trace::event_count);
    let trace = largest.ok_or_else(|| LabError::Unfit {
        trace: path.to_owned(),
        lack: "has no process: record the program again",
    })?;
    if trace.counters().is_some() {
        return Err(counters_will_not_do(&trace, ONLY_COUNTERS));
    }
    let process = Process {
        pid: trace.process().pid,
        image: trace.process().image,
        command: command_of(&trace),
        images,
        unreadable,
    };
    Ok((trace, process))
}

fn command_of(trace: &Trace) -> String {
    const MOST: usize = 100;
    let words = &trace.process().argv;
    let words = words.iter().map(|word| printable::escape_bytes(word));
    let line = words.collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}

fn compile(trace: &Trace, file: File) -> Result<(File, Totals)> {
    let steps = (trace.event_count() / PROGRESS_STEP) as usize;
    let progress = Progress::new(steps);
    progress.begin("compiling");
    let mut count = 0u64;
    let compiled = compile::compile(trace, file, || {
        count += 1;
        if count.is_multiple_of(PROGRESS_STEP) {
            progress.end_step();
        }
    });
    let (file, totals) = compiled.map_err(|error| {
        let trace = printable::name(trace.path());
        scratch_failure(&format!("{trace}: its operations cannot be written"), error)
    })?;
    if totals.operations() == 0 {
        return Err(LabError::Unfit {
            trace: trace.path().to_owned(),
            lack: "has no call that can be replayed: choose another process with --pid",
        }
        .into());
    }
    Ok((file, totals))
}

fn write_operations(trace: &Trace, path: &Path) -> Result<()> {
    let unwritable = system(printable::name(path), "name another file with --operations");
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = tempfile::NamedTempFile::new_in(folder).map_err(&unwritable)?;
    let writable = file.as_file().try_clone();
    compile(trace, writable.map_err(&unwritable)?)?;
    file.persist(path)
        .map_err(|error| unwritable(error.error))?;
    output::say_written(path);
    Ok(())
}

/// A trace can contain larger blocks than the machine has memory; writing to them could make the kernel
/// end another process.
fn check_memory(totals: &Totals, touch: Touch) -> error::Result<()> {
    match session::available_bytes() {
        Some(available) if touch == Touch::All && totals.peak_live_bytes > available => {
            Err(LabError::NoRun(format!(
                "the program had {} MiB live, and {} MiB are available here: replay it on a larger \
                 machine, or with --touch edges, if it did not write to them all",
                totals.peak_live_bytes >> 20,
                available >> 20
            )))
        }
        _ => Ok(()),
    }
}
