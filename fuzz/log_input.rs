//! What the reader of memory-debug logs is asked to do with hostile bytes: by the fuzzer, and by
//! the tests with seeded mutations.

use larder_memdebug::line::Call;
use larder_memdebug::lines::looks_like_a_log;
use larder_memdebug::{Analyser, Line, Lines, Style};

/// Analyses a log of these bytes and checks what must hold of any log.
pub fn read(bytes: &[u8]) {
    let _ = looks_like_a_log(bytes);
    let mut lines = Lines::new(bytes);
    let mut analyser = Analyser::default();
    let mut said = Vec::new();
    while let Some(line) = lines.next().expect("a slice has no errors") {
        if let Ok(parsed) = Line::parse(line.bytes) {
            returns_as_written(&parsed);
        }
        analyser.line(line.bytes, &mut |message| {
            said.clear();
            message.write(Style::Current, &mut said).expect("memory");
        });
    }
    analyser.finish(&mut |message| message.write(Style::Before2017, &mut said).expect("memory"));
    let counters = &analyser.counters;
    assert!(counters.peak >= analyser.live());
    let calls: u64 = analyser.sites().iter().map(|site| site.calls).sum();
    assert_eq!(calls, counters.allocations());
    if counters.total < u64::MAX {
        let of_sites = |value: fn(&larder_memdebug::analyser::Site) -> u64| {
            analyser.sites().iter().map(value).sum::<u64>()
        };
        assert_eq!(of_sites(|site| site.bytes), counters.total);
        assert_eq!(of_sites(|site| site.live), analyser.live());
        assert_eq!(of_sites(|site| site.peak), counters.peak);
    }
}

/// What is written of a call is read as the same call.
fn returns_as_written(parsed: &Line<'_>) {
    if matches!(parsed.call, Call::Other | Call::Limit) {
        return;
    }
    let (path, number) = Line::split_place(parsed.place);
    let mut written = Vec::new();
    parsed
        .call
        .write(path, number, &mut written)
        .expect("memory");
    let again = Line::parse(&written).expect("what is written can be read");
    assert_eq!(again.call, parsed.call);
}
