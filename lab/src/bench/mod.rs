//! `larder bench`: compares allocators, workload by workload, in interleaved rounds.
//!
//! ```text
//! args        the command line             ranking     medians, ratios, means
//! manifest    the workloads                markdown    ┐
//! allocators  the peers                    html        ┘ the reports; plots, svg
//! session     the order of the runs        results     every run, as JSON
//!   check_loaded   is it loaded?
//!   process        one run                 statistics, figures, machine, progress
//! ```
//!
//! Measuring (left) is independent of computing and printing (right): between them are the results, which
//! can be written, read and reported again.

pub mod allocators;
mod args;
mod check_loaded;
mod figures;
mod html;
mod interruption;
pub mod manifest;
mod markdown;
mod plots;
mod process;
mod progress;
mod ranking;
pub mod results;
mod session;

use std::fs;
use std::io;
use std::path::Path;

use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use larder_base::machine::{self, Machine};
use larder_base::order;
use larder_base::output::{self, Content};
use larder_base::printable;
use larder_base::target::Target;

use allocators::{Allocator, Choice};
use args::{Effort, Field, Output, Selection, Task};
use manifest::Workload;
use process::Runner;
use progress::say;
use ranking::Summary;
use results::{FORM, Results, Subject};
use session::{Flow, SMOKE_SCALE, Session, TRIAL_SCALE};

use crate::error::{self, LabError};

pub use args::{BenchPlan, EXAMPLES, RawBench};

pub const LARDER: &str = "larder";
pub const GLIBC: &str = "glibc";

/// Larder (in a smoke test: any allocator) failed on a workload.
const EXIT_FAILED: u8 = 1;
/// A shell's exit code for SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// Carries out the plan; returns the exit code.
pub fn bench(plan: BenchPlan) -> Result<u8> {
    match plan.task {
        Task::List(selection) => list(&selection),
        Task::Smoke(selection, field) => smoke(&selection, &field),
        Task::Measure(selection, field, effort) => {
            measure(&selection, &field, &effort, &plan.output)
        }
        Task::Report(files) => {
            let results = results::read_all(&files)?;
            write_out(&results, &plan.output).map(|_| 0)
        }
    }
}

fn list(selection: &Selection) -> Result<u8> {
    let workloads = selection.workloads(&manifest::directory()?)?;
    let width = workloads.iter().map(|w| w.name.len()).max().unwrap_or(0);
    let line = |w: &Workload| {
        let mark = |is: bool, word| if is { word } else { "" };
        let marks = format!("{}{}", mark(w.quick, " quick"), mark(w.idle, " idle"));
        format!(
            "{:width$}  {:8} {:12} {}\n",
            w.name,
            w.group,
            marks.trim(),
            w.what
        )
    };
    let lines: String = workloads.iter().map(line).collect();
    print(&lines).map(|()| 0)
}

/// What is run. Everything that it needs has been found.
struct Setting {
    runner: Runner,
    workloads: Vec<Workload>,
    allocators: Vec<Allocator>,
    notes: Vec<String>,
}

impl Setting {
    fn find(selection: &Selection, field: &Field) -> Result<Setting> {
        let directory = manifest::directory()?;
        let workloads = selection.workloads(&directory)?;
        let (allocators, mut notes) = allocators::find(&Choice {
            names: field.names.as_deref(),
            extra: &field.extra,
            larder: field.larder.as_deref(),
        })?;
        let (workloads, left_out) = selection.require_programs(workloads)?;
        notes.extend(left_out);
        let runner = Runner::new(&directory, field.run_limit.as_secs_f64())?;
        for workload in &workloads {
            if let Some(program) = runner.missing_program(workload) {
                let program = printable::escape(&program);
                return Err(LabError::Missing(format!(
                    "{}: {program} is not there: stage the workloads with `make peers`",
                    workload.name
                ))
                .into());
            }
        }
        for note in &notes {
            say(note);
        }
        Ok(Setting {
            runner,
            workloads,
            allocators,
            notes,
        })
    }
}

impl Selection {
    fn workloads(&self, directory: &Path) -> Result<Vec<Workload>> {
        let Some(program) = self.command.first() else {
            return Ok(self.choose(manifest::load(directory)?)?);
        };
        Target::resolve(program.as_ref())?;
        Ok(vec![Workload::given(&self.command)])
    }

    fn choose(&self, workloads: Vec<Workload>) -> error::Result<Vec<Workload>> {
        let names: Vec<String> = workloads.iter().map(|w| w.name.clone()).collect();
        let chosen = |w: &Workload| {
            (!self.quick || w.quick)
                && (self.only.is_empty() || self.only.iter().any(|only| only.is_match(&w.name)))
        };
        let workloads: Vec<Workload> = workloads.into_iter().filter(chosen).collect();
        if workloads.is_empty() {
            let patterns: Vec<&str> = self.only.iter().map(regex::Regex::as_str).collect();
            return Err(LabError::usage(format!(
                "--only {} names no workload{}; there are {}",
                printable::escape(&patterns.join(" ")),
                if self.quick { " of --quick" } else { "" },
                names.join(", ")
            )));
        }
        Ok(workloads)
    }

    /// The workloads whose programs are installed, and a note on those that are left out.
    fn require_programs(
        &self,
        workloads: Vec<Workload>,
    ) -> error::Result<(Vec<Workload>, Option<String>)> {
        let (there, missing): (Vec<Workload>, Vec<Workload>) =
            workloads.into_iter().partition(|w| w.missing().is_empty());
        if missing.is_empty() {
            return Ok((there, None));
        }
        let mut programs: Vec<String> = Vec::new();
        let mut packages: Vec<String> = Vec::new();
        for need in missing.iter().flat_map(Workload::missing) {
            programs.push(printable::escape(&need.0).into_owned());
            packages.push(printable::escape(&need.1).into_owned());
        }
        for list in [&mut programs, &mut packages] {
            order::sort_by(list, Ord::cmp);
            list.dedup();
        }
        let names: Vec<&str> = missing.iter().map(|w| w.name.as_str()).collect();
        let (names, programs) = (names.join(", "), programs.join(", "));
        if !self.skip_missing {
            return Err(LabError::Missing(format!(
                "{names}: {programs} not found: apt-get install {}, or leave them out with \
                 --skip-missing",
                packages.join(" ")
            )));
        }
        if there.is_empty() {
            return Err(LabError::Missing(format!(
                "--skip-missing leaves out every workload: apt-get install {}",
                packages.join(" ")
            )));
        }
        let note = format!("Left out because {programs} is missing: {names}.");
        Ok((there, Some(note)))
    }
}

/// Starts everything once; no figures.
fn smoke(selection: &Selection, field: &Field) -> Result<u8> {
    let setting = Setting::find(selection, field)?;
    let (workloads, allocators) = (&setting.workloads, &setting.allocators);
    let mut session = Session::new(&setting.runner, workloads, allocators, SMOKE_SCALE, 0);
    if session.check(SMOKE_SCALE)? == Flow::Interrupted {
        return Ok(EXIT_INTERRUPTED);
    }
    let failed = session.into_runs().len();
    let pairs = workloads.len() * allocators.len();
    print(&format!(
        "{} of {pairs} start: {} workloads on {} allocators\n",
        pairs - failed,
        workloads.len(),
        allocators.len()
    ))?;
    Ok(if failed == 0 { 0 } else { EXIT_FAILED })
}

fn measure(selection: &Selection, field: &Field, effort: &Effort, output: &Output) -> Result<u8> {
    let mut setting = Setting::find(selection, field)?;
    prepare(output)?;
    let machine = Machine::examine();
    if machine.load_at_start > machine::QUIET_LOAD {
        let note = format!(
            "The machine was busy: its load average was {:.2} at the start.",
            machine.load_at_start
        );
        say(&note);
        setting.notes.push(note);
    }
    let seed = effort.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut session = Session::new(
        &setting.runner,
        &setting.workloads,
        &setting.allocators,
        effort.scale,
        seed,
    );
    let flow = run_all(&mut session, effort)?;
    if session.rounds() == 0 {
        say("interrupted before the first round was complete: nothing was measured");
        return Ok(EXIT_INTERRUPTED);
    }
    let mut notes = setting.notes;
    if flow == Flow::Interrupted {
        let note = format!(
            "Interrupted: {} of {} rounds are complete.",
            session.rounds(),
            effort.rounds
        );
        say(&note);
        notes.push(note);
    }
    let subjects = setting.workloads.iter().zip(session.scales());
    let results = Results {
        form: FORM,
        date: machine::date(),
        command: command_line(),
        seed,
        rounds: session.rounds(),
        machine,
        workloads: subjects
            .map(|(workload, scale)| Subject {
                name: workload.name.clone(),
                group: workload.group.clone(),
                what: workload.what.clone(),
                scale: *scale,
            })
            .collect(),
        runs: session.into_runs(),
        allocators: setting.allocators,
        notes,
    };
    let summary = write_out(&results, output)?;
    Ok(match flow {
        Flow::Interrupted => EXIT_INTERRUPTED,
        Flow::Done if summary.reference == LARDER && summary.reference_failed() => EXIT_FAILED,
        Flow::Done => 0,
    })
}

fn run_all(session: &mut Session, effort: &Effort) -> Result<Flow> {
    if session.check(TRIAL_SCALE)? == Flow::Interrupted {
        return Ok(Flow::Interrupted);
    }
    if let Some(limit) = effort.time_limit
        && session.fit(limit, effort.rounds, effort.idle_rounds)? == Flow::Interrupted
    {
        return Ok(Flow::Interrupted);
    }
    if session.measure(effort.rounds)? == Flow::Interrupted {
        return Ok(Flow::Interrupted);
    }
    session.measure_idle(effort.idle_rounds)
}

fn command_line() -> String {
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    format!("larder {}", words.join(" "))
}

/// Reports now, not after an hour, that the results cannot be written.
fn prepare(output: &Output) -> error::Result<()> {
    if let Some(directory) = &output.directory {
        fs::create_dir_all(directory).map_err(unwritable(directory))?;
    }
    for file in [&output.json, &output.markdown].into_iter().flatten() {
        if file.as_os_str() != "-" {
            let open = fs::OpenOptions::new().append(true).create(true).open(file);
            open.map_err(unwritable(file))?;
        }
    }
    Ok(())
}

fn write_out(results: &Results, output: &Output) -> Result<Summary> {
    let summary = Summary::of(results);
    let json = || {
        let mut value = serde_json::to_value(results).unwrap_or_default();
        value["summary"] = serde_json::to_value(&summary).unwrap_or_default();
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    };
    let markdown = || markdown::render(results, &summary);
    if let Some(directory) = &output.directory {
        fs::create_dir_all(directory).map_err(unwritable(directory))?;
        write_file(&directory.join("results.json"), &json())?;
        write_file(&directory.join("results.md"), &markdown())?;
        write_file(
            &directory.join("index.html"),
            &html::render(results, &summary),
        )?;
        say(&format!(
            "{}: results.json, results.md, index.html",
            printable::name(directory)
        ));
    }
    if let Some(file) = &output.json {
        write_or_print(file, &json())?;
    }
    match &output.markdown {
        Some(file) => write_or_print(file, &markdown())?,
        None if output.json.is_none() && output.directory.is_none() => print(&markdown())?,
        None => {}
    }
    Ok(summary)
}

fn write_or_print(path: &Path, text: &str) -> Result<()> {
    if path.as_os_str() == "-" {
        return print(text);
    }
    write_file(path, text)?;
    output::say_written(path);
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    Ok(fs::write(path, text).map_err(unwritable(path))?)
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> BaseError {
    system(printable::name(path), "name another place for the results")
}

fn print(text: &str) -> Result<()> {
    output::write(None, Content::Text, |out| out.write_all(text.as_bytes()))
}
