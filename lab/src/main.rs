//! The program; all of it is in the library, which is compiled once for it, its tests and the man pages.

use std::process::ExitCode;

fn main() -> ExitCode {
    larder_lab::main()
}
