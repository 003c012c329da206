//! The fuzzer's corpus and seeded mutations of it: no panic, whatever the bytes.

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/trace_input.rs"]
mod trace_input;

use std::io::Write;
use std::path::Path;

use larder_trace::layout::{
    CHUNK_ALIGN, CHUNK_HEADER_BYTES, CONTENTS_BYTES, ChunkHeader, ChunkKind, Contents,
};
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

/// The contents of a seed of the corpus.
#[derive(Debug, Default, PartialEq)]
struct Held {
    calls: u64,
    marks: u64,
    system_calls: u64,
    copies: u64,
    contents: u64,
    samples: u64,
    counters: usize,
    lost: usize,
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
            Action::SystemCall { .. } => held.system_calls += 1,
            Action::Copy { .. } => held.copies += 1,
            Action::Contents { .. } => held.contents += 1,
            Action::Sample { cpu_ns, .. } if cpu_ns > 0 => held.samples += 1,
            _ => {}
        }
    }
    held.counters = events.counted().len();
    held.lost = trace.lost().map_or(0, |lost| lost.addresses().len());
    assert!(events.damage().is_empty(), "{name}: {:?}", events.damage());
    held
}

/// A write to a full disk leaves a part of a chunk behind the region that it was made from.
#[test]
fn a_cut_chunk_that_is_in_its_live_region_loses_no_calls() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
    let mut bytes = std::fs::read(folder.join("cut-off.ltrace")).expect("the seed");
    let live = (0..bytes.len())
        .step_by(CHUNK_ALIGN as usize)
        .find_map(|at| {
            let header = ChunkHeader::decode(bytes.get(at..)?.first_chunk()?).ok()?;
            let state = bytes.get(at + CHUNK_HEADER_BYTES..)?;
            let contents = Contents::decode(state.get(..CONTENTS_BYTES)?);
            let used = header.kind == ChunkKind::Live && contents.check_or_committed > 0;
            used.then_some(contents)
        });
    let contents = live.expect("a live region");
    bytes.resize(bytes.len().next_multiple_of(CHUNK_ALIGN as usize), 0);
    let cut = |seq| {
        let header = ChunkHeader {
            kind: ChunkKind::Events,
            compressed: true,
            columns: true,
            stored_bytes: 5000,
            raw_bytes: 9000,
            contents: Contents { seq, ..contents },
        };
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&bytes).expect("written");
        file.write_all(&header.encode()).expect("written");
        file.write_all(&[1; 100]).expect("written");
        let trace = Trace::open(file.path()).expect("a trace");
        let mut events = trace.events();
        let calls = std::iter::from_fn(|| events.next()).count();
        let lost: Vec<Option<u64>> = events.damage().iter().map(|d| d.events).collect();
        (calls, lost)
    };
    let (calls, lost) = cut(contents.seq);
    assert!(calls > 2000, "{calls}");
    assert_eq!(lost, [None]);
    assert_eq!(
        cut(contents.seq + 1),
        (calls, vec![Some(contents.events.into())])
    );
}

/// A seed that the reader rejects at once would fuzz little, so seeds have this version and are complete.
#[test]
fn the_seeds_of_this_version_are_read_whole() {
    let marked = held("marked.ltrace");
    assert!(marked.calls > 2000, "{marked:?}");
    assert!(
        (marked.marks, marked.system_calls) >= (30, 20),
        "{marked:?}"
    );
    let earlier = held("version-2-2.ltrace");
    assert_eq!((earlier.marks, earlier.system_calls), (30, 20));
    let before_ages = held("version-2-3.ltrace");
    assert_eq!(before_ages.calls, marked.calls, "{before_ages:?}");
    let copied = held("copied.ltrace");
    assert!(copied.copies > 200 && copied.system_calls > 4, "{copied:?}");
    let contents = held("contents.ltrace");
    assert!(contents.calls > 500, "{contents:?}");
    assert!(contents.contents > 400, "{contents:?}");
    let ordered = held("ordered.ltrace");
    assert_eq!(
        (ordered.calls, ordered.marks),
        (marked.calls, marked.marks),
        "{ordered:?}"
    );
    let killed = held("cut-off.ltrace");
    assert!(killed.calls > 2000, "{killed:?}");
    let counted = held("counted.ltrace");
    assert_eq!(counted.calls, 0);
    assert!(counted.counters >= 20, "{counted:?}");
    let sampled = held("sampled.ltrace");
    assert!(sampled.samples > 50, "{sampled:?}");
    let lost = held("lost.ltrace");
    assert_eq!((lost.calls, lost.lost), (100, 50));
    let named = held("named.ltrace");
    assert!(named.calls > 0 && named.named, "{named:?}");
}
