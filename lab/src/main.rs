//! The program `larder-lab`, which `larder bench` and the like start. In its messages it is `larder`.

use std::process::ExitCode;

use larder_base::command_line;

fn main() -> ExitCode {
    command_line::exit_code(larder_lab::run(std::env::args_os()))
}
