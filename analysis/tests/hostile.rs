//! The fuzzer's corpora and seeded mutations of them: no panic, whatever the bytes of a file to import
//! or of a module.

#[path = "../../fuzz/import_input.rs"]
mod import_input;
#[path = "../../fuzz/module_input.rs"]
mod module_input;
#[path = "../../fuzz/mutate.rs"]
mod mutate;

#[test]
fn a_mutant_of_an_import_is_refused_or_becomes_a_trace() {
    mutate::each_mutant("import", 400, import_input::read);
}

#[test]
fn no_mutant_of_a_module_causes_a_panic() {
    mutate::each_mutant("module", 100, module_input::read);
}
