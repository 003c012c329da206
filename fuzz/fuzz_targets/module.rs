//! The readers of symbols, debug information and machine code on arbitrary bytes.
#![no_main]

#[path = "../module_input.rs"]
mod module_input;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| module_input::read(bytes));
