//! The tests of the recorders, in one program: each would link the same.

mod contents;
mod copies;
mod counts;
mod cpu;
mod dispatch;
mod filter;
mod harm;
mod io;
mod marks;
mod names;
mod processes;
mod python;
mod stacks;
mod support;
