//! Tests and measures allocators: `bench` compares them by programs, `replay` by a trace, `instruments`
//! by one question each, and `torture` finds faults. It depends on `larder-analysis` for traces and
//! symbols, and on `larder-base`. It is a program of its own, `larder-lab`, which `larder bench` and the like
//! start in the tool's place, so that reading a trace does not need it. In its messages it is `larder`.

mod args;
mod bench;
mod built;
mod error;
mod instruments;
mod replay;
mod torture;

use std::process::ExitCode;

use larder_base::command_line;
use larder_base::failure::Result;

use args::Plan;

fn main() -> ExitCode {
    command_line::exit_code(perform())
}

fn perform() -> Result<ExitCode> {
    match args::parse(std::env::args_os())? {
        Plan::Bench(plan) => bench::bench(*plan).map(ExitCode::from),
        Plan::Instrument(plan) => instruments::run(&plan).map(|()| ExitCode::SUCCESS),
        Plan::Replay(plan) => replay::replay(&plan).map(ExitCode::from),
        Plan::Torture(plan) => torture::torture(&plan).map(ExitCode::from),
        Plan::Show(text) => command_line::show(&text),
    }
}
