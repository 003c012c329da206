//! The reader of memory-debug logs on arbitrary bytes.
#![no_main]

#[path = "../log_input.rs"]
mod log_input;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| log_input::read(bytes));
