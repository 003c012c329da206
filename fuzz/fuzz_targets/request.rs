//! The parser of HTTP requests on arbitrary bytes.
#![no_main]

#[path = "../request_input.rs"]
mod request_input;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| request_input::read(bytes));
