//! The `larder` command. It owns the commands that run a program or store results (`run`, `record`,
//! `check`, `history`, `doctor`); `analysis`, `live` and `larder-lab` own the others. `args` makes a checked
//! plan of the command line; `main` runs it and maps failures to exit codes.

mod args;
mod check;
mod doctor;
mod fail;
mod help;
mod history;
mod lab;
mod record;
mod run;

use std::process::ExitCode;

use larder_analysis::{advise, import, memdebug};
use larder_base::command_line;
use larder_base::failure::Result;
use larder_live::{leaks, profile, serve, stats, top, view};

use args::Plan;

fn main() -> ExitCode {
    command_line::exit_code(perform())
}

fn perform() -> Result<ExitCode> {
    match args::parse(std::env::args_os())? {
        Plan::Run(plan) => match run::run(&plan)? {},
        Plan::Fail(plan) => fail::fail(&plan).map(ExitCode::from),
        Plan::Record(plan) => record::record(&plan).map(ExitCode::from),
        Plan::View(view) => view.show().map(|()| ExitCode::SUCCESS),
        Plan::MeasureMalloc => {
            advise::print_malloc_costs();
            Ok(ExitCode::SUCCESS)
        }
        Plan::LookAtEnd(plan) => record::look(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Doctor(plan) => doctor::doctor(&plan).map(ExitCode::from),
        Plan::Lab(words) => match lab::start(&words)? {},
        Plan::Memdebug(plan) => memdebug::memdebug(&plan).map(ExitCode::from),
        Plan::Serve(plan) => serve::serve(*plan).map(|()| ExitCode::SUCCESS),
        Plan::Leaks(plan) => leaks::leaks(&plan).map(ExitCode::from),
        Plan::Stats(plan) => stats::stats(&plan).map(ExitCode::from),
        Plan::Top(plan) => top::top(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Explore(plan) => view::view(*plan).map(|()| ExitCode::SUCCESS),
        Plan::Import(plan) => import::import(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Check(plan) => check::check(&plan).map(ExitCode::from),
        Plan::History(plan) => history::history(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Profile(plan) => profile::profile(&plan).map(ExitCode::from),
        Plan::Show(text) => command_line::show(&text),
    }
}
