//! The trace reader on arbitrary bytes, as they are and with their checksums made right.
#![no_main]

#[path = "../trace_input.rs"]
mod trace_input;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    trace_input::read(bytes);
    let mut repaired = bytes.to_vec();
    trace_input::repair(&mut repaired);
    trace_input::read(&repaired);
});
