//! The tests of the lab, in one program: each would link the same.

mod bench;
#[path = "../../cli/tests/common/mod.rs"]
mod common;
mod instruments;
mod replay;
mod torture;
