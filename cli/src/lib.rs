//! The definitions of the command line, for `pages`, which makes man pages of them. The program is `main`.

#![allow(dead_code, unused_imports, reason = "the program uses the rest")]

mod args;
mod check;
mod doctor;
mod fail;
mod help;
mod history;
mod lab;
mod record;
mod run;

pub use args::command;
pub use help::GROUPS;
