//! The fuzzer's corpus and seeded mutations of it: no panic, whatever the bytes of a heap profile,
//! and what is written of it is read as the same.

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/profile_input.rs"]
mod profile_input;

#[test]
fn no_mutant_of_a_profile_breaks_its_sums() {
    mutate::each_mutant("profile", 5000, profile_input::read);
}
