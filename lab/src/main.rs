//! The program `larder-lab`: `larder bench` and its like end up here, and it speaks as `larder`.

use std::process::ExitCode;

use larder_base::command_line;

fn main() -> ExitCode {
    command_line::exit_code(larder_lab::run(std::env::args_os()))
}
