//! The copies as one JSON object, described in `docs/reference/report.md`.

use serde_json::{Value, json};

use super::{Caller, Copied, Copies, Key, Unseen};
use crate::report::json::place;

pub fn document(found: &Copies, top: usize) -> Value {
    let functions = found.functions();
    let list = functions.iter().map(|(call, copied)| {
        let mut sums = sums(copied);
        sums["function"] = json!(call.name());
        sums
    });
    let list: Vec<Value> = list.collect();
    let callers = |key| -> Vec<Value> {
        let ranked = found.ranked(key).into_iter().take(top);
        ranked.map(|caller| described(found, caller)).collect()
    };
    let sum =
        |of: fn(&Copied) -> f64| -> f64 { functions.iter().map(|(_, copied)| of(copied)).sum() };
    json!({
        "calls": sum(|copied| copied.calls).round() as u64,
        "bytes": sum(|copied| copied.bytes).round() as u64,
        "rate": found.rate,
        "by_libc": by_libc(&found.unseen),
        "functions": list,
        "callers": { "bytes": callers(Key::Bytes), "calls": callers(Key::Calls) },
    })
}

/// Null without samples of processor time.
fn by_libc(unseen: &Unseen) -> Value {
    match unseen.all.samples {
        0 => Value::Null,
        of => json!({
            "samples": unseen.by_libc.samples,
            "ns": unseen.by_libc.ns,
            "of_samples": of,
            "of_ns": unseen.all.ns,
        }),
    }
}

fn sums(copied: &Copied) -> Value {
    json!({
        "calls": copied.calls.round() as u64,
        "bytes": copied.bytes.round() as u64,
        "sizes": copied.sizes.json(),
    })
}

fn described(found: &Copies, caller: &Caller) -> Value {
    let mut sums = sums(&caller.sum);
    sums["call"] = json!(caller.kind.name());
    place(&mut sums, found.callers.site(caller));
    sums
}
