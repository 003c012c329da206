//! What the importers are asked to do with hostile bytes: by the fuzzer, and by the tests with seeded
//! mutations.

use larder_analysis::import::{ImportFormat, ImportPlan, convert};
use larder_trace::{Trace, trace_files};

/// Imports these bytes in each format, and checks that the trace has what was imported.
pub fn read(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input");
    std::fs::write(&input, bytes).expect("a file");
    for format in [ImportFormat::Heaptrack, ImportFormat::Collapsed] {
        let plan = ImportPlan {
            input: input.clone(),
            output: folder.path().join(format!("{format:?}")),
            format,
        };
        let Ok(outcome) = convert(&plan) else {
            assert!(!plan.output.exists(), "what is refused leaves no trace");
            continue;
        };
        let files = trace_files(&plan.output).expect("a trace");
        let trace = Trace::open(&files[0]).expect("a trace that can be read");
        let mut events = trace.events();
        let calls = std::iter::from_fn(|| events.next()).count() as u64;
        assert!(events.damage().is_empty(), "{:?}", events.damage());
        assert_eq!(calls, outcome.calls, "{format:?}");
    }
}
