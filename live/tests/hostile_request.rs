//! The fuzzer's corpus and seeded mutations of it: no panic, whatever a client sends.

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/request_input.rs"]
mod request_input;

#[test]
fn no_mutant_of_a_request_is_misread() {
    mutate::each_mutant("request", 20_000, request_input::read);
}
