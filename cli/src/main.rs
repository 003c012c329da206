//! The `larder` command: parses, runs, and maps failures to exit codes.

mod args;
mod bench;
mod check;
mod doctor;
mod fail;
mod history;
mod instruments;
mod record;
mod replay;
mod run;
mod torture;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use larder_analysis::{advise, diff, export, flamegraph, html, import, memdebug, report};
use larder_base::failure::{Failure, Result};
use larder_live::{leaks, profile, serve, stats, top};

use args::Plan;

fn main() -> ExitCode {
    match perform() {
        Ok(code) => code,
        Err(failure) => {
            // A closed stderr leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "larder: error: {failure}");
            ExitCode::from(failure.status as u8)
        }
    }
}

fn perform() -> Result<ExitCode> {
    match args::parse(std::env::args_os())? {
        Plan::Run(plan) => match run::run(&plan)? {},
        Plan::Fail(plan) => fail::fail(&plan).map(ExitCode::from),
        Plan::Record(plan) => record::record(&plan).map(ExitCode::from),
        Plan::Report(plan) => report::report(plan).map(|()| ExitCode::SUCCESS),
        Plan::Diff(plan) => diff::diff(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Advise(plan) => advise::advise(&plan).map(|()| ExitCode::SUCCESS),
        Plan::MeasureMalloc => {
            advise::print_malloc_costs();
            Ok(ExitCode::SUCCESS)
        }
        Plan::LookAtEnd(plan) => record::look(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Html(plan) => html::html(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Timeline(plan) => html::timeline(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Export(plan) => export::export(plan).map(|()| ExitCode::SUCCESS),
        Plan::Flamegraph(plan) => flamegraph::flamegraph(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Doctor(plan) => doctor::doctor(&plan).map(ExitCode::from),
        Plan::Bench(plan) => bench::bench(*plan).map(ExitCode::from),
        Plan::Instrument(plan) => instruments::run(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Replay(plan) => replay::replay(&plan).map(ExitCode::from),
        Plan::Torture(plan) => torture::torture(&plan).map(ExitCode::from),
        Plan::Memdebug(plan) => memdebug::memdebug(&plan).map(ExitCode::from),
        Plan::Serve(plan) => serve::serve(*plan).map(|()| ExitCode::SUCCESS),
        Plan::Leaks(plan) => leaks::leaks(&plan).map(ExitCode::from),
        Plan::Stats(plan) => stats::stats(&plan).map(ExitCode::from),
        Plan::Top(plan) => top::top(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Import(plan) => import::import(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Check(plan) => check::check(&plan).map(ExitCode::from),
        Plan::History(plan) => history::history(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Profile(plan) => profile::profile(&plan).map(ExitCode::from),
        Plan::Show(text) => {
            let mut out = std::io::stdout();
            let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
            match written {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    Err(Failure::failed(format!(
                        "the help cannot be written: {}: name another place for it",
                        larder_base::target::reason(&error)
                    )))
                }
                _ => Ok(ExitCode::SUCCESS),
            }
        }
    }
}
