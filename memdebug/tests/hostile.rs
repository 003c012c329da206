//! The fuzzer's corpus and seeded mutations of it: no panic, and the sums hold, whatever the bytes.

#[path = "../../fuzz/log_input.rs"]
mod log_input;
#[path = "../../fuzz/mutate.rs"]
mod mutate;

#[test]
fn no_mutant_of_a_log_breaks_the_sums() {
    mutate::each_mutant("log", 5000, log_input::read);
}
