//! The fuzzer's corpus and seeded mutations of it: no panic, whatever the bytes.

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/trace_input.rs"]
mod trace_input;

#[test]
fn no_mutant_of_a_trace_causes_a_panic() {
    mutate::each_mutant("trace", 3000, |bytes| {
        trace_input::read(bytes);
        let mut repaired = bytes.to_vec();
        trace_input::repair(&mut repaired);
        trace_input::read(&repaired);
    });
}
