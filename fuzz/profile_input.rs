//! What the reader of heap profiles is asked to do with hostile bytes: by the fuzzer, and by the
//! tests with seeded mutations.
#![allow(dead_code, reason = "the tool uses the rest")]

#[path = "../live/src/profile/heap.rs"]
mod heap;
#[path = "../live/src/profile/interval.rs"]
mod interval;
#[path = "../live/src/profile/parse.rs"]
mod parse;
#[path = "../live/src/profile/write.rs"]
mod write;

use heap::HeapProfile;

/// Reads a profile of these bytes and checks what must hold of any profile.
pub fn read(bytes: &[u8]) {
    let Ok(profile) = parse::parse(bytes) else {
        return;
    };
    assert_eq!(profile.damage.is_some(), profile.damaged > 0);
    assert!(
        profile
            .mappings
            .iter()
            .all(|mapping| mapping.start < mapping.end)
    );
    assert!(profile.mappings.is_sorted_by_key(|mapping| mapping.start));
    let stacks = profile.stacks.iter().map(|stack| stack.figures.clone());
    for figures in stacks.chain([profile.total()]) {
        let bytes = figures.in_use.bytes;
        let interval = figures.spread.interval(bytes);
        assert!(bytes.is_finite() && bytes >= 0.0, "{figures:?}");
        assert!(interval.low >= 0.0 && interval.low <= bytes, "{figures:?}");
        assert!(
            interval.high.is_finite() && interval.high >= bytes,
            "{figures:?}"
        );
        let _ = figures.lifetime_below(0.5);
    }
    // Written, it is rounded; from then on it stays what it is.
    let rounded = written(&profile);
    assert_eq!(rounded.damaged, 0);
    assert_eq!(rounded.stacks.len(), profile.stacks.len());
    assert_eq!(rounded.mappings, profile.mappings);
    assert_eq!(written(&rounded), rounded);
}

fn written(profile: &HeapProfile) -> HeapProfile {
    let mut text = Vec::new();
    write::write(profile, &mut text).expect("memory");
    parse::parse(&text).expect("what is written can be read")
}
