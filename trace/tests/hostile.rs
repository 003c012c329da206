//! The fuzzer's corpus and seeded mutations of it: no panic, whatever the bytes.

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/trace_input.rs"]
mod trace_input;

use std::path::Path;

use larder_trace::{Action, Trace};

#[test]
fn no_mutant_of_a_trace_causes_a_panic() {
    mutate::each_mutant("trace", 3000, |bytes| {
        trace_input::read(bytes);
        let mut repaired = bytes.to_vec();
        trace_input::repair(&mut repaired);
        trace_input::read(&repaired);
    });
}

/// What a seed of the corpus holds.
#[derive(Debug, Default, PartialEq)]
struct Held {
    calls: u64,
    marks: u64,
    io: u64,
    contents: u64,
    counters: usize,
    named: bool,
}

fn held(name: &str) -> Held {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
    let trace = Trace::open(&folder.join(name)).expect(name);
    let mut events = trace.events();
    let mut held = Held::default();
    while let Some(event) = events.next() {
        match event.action {
            Action::Alloc { stack, .. } => {
                held.calls += 1;
                let mut frames = events.stacks().frames(stack);
                held.named |= frames.any(|frame| {
                    let module = frame.module.and_then(|id| trace.module(id));
                    module.is_some_and(|module| {
                        let at = frame.lookup_address().wrapping_sub(module.bias);
                        trace.symbols().functions(module.id, at).count() > 0
                    })
                });
            }
            Action::Mark { name } if events.mark_name(name) == b"round" => held.marks += 1,
            Action::Io { .. } => held.io += 1,
            Action::Contents { .. } => held.contents += 1,
            _ => {}
        }
    }
    held.counters = events.counted().len();
    assert!(events.damage().is_empty(), "{name}: {:?}", events.damage());
    held
}

/// A seed that a reader gives up on would fuzz little: these are of this version and whole.
#[test]
fn the_seeds_of_this_version_are_read_whole() {
    let marked = held("marked.ltrace");
    assert!(marked.calls > 2000, "{marked:?}");
    assert_eq!((marked.marks, marked.io), (30, 20));
    let contents = held("contents.ltrace");
    assert!(contents.calls > 500, "{contents:?}");
    assert!(contents.contents > 400, "{contents:?}");
    let killed = held("cut-off.ltrace");
    assert!(killed.calls > 2000, "{killed:?}");
    let counted = held("counted.ltrace");
    assert_eq!(counted.calls, 0);
    assert!(counted.counters >= 20, "{counted:?}");
    let named = held("named.ltrace");
    assert!(named.calls > 0 && named.named, "{named:?}");
}
