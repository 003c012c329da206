//! The definitions of the command line, for `cli/pages`, which makes man pages of them. The program is `main`.

#![allow(dead_code, reason = "the program uses the rest")]

mod args;
mod bench;
mod built;
mod error;
mod instruments;
mod replay;
mod torture;

pub use args::command;
