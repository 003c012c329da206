//! The reader of heap profiles on arbitrary bytes.
#![no_main]

#[path = "../profile_input.rs"]
mod profile_input;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| profile_input::read(bytes));
