//! The importers on arbitrary bytes.
#![no_main]

#[path = "../import_input.rs"]
mod import_input;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| import_input::read(bytes));
