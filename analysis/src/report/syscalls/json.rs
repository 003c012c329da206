//! The system calls as one JSON object, described in `docs/reference/report.md`.

use serde_json::{Map, Value, json};

use super::{Caller, Needless, Results, SystemCalls, error_name};
use crate::report::json::place;

impl Needless {
    fn key(self) -> &'static str {
        match self {
            Needless::Tiny => "tiny",
            Needless::Failed => "failed",
            Needless::NothingReady => "nothing_ready",
            Needless::Unfilled => "unfilled",
            Needless::Futex => "futex",
        }
    }
}

/// `seconds`: how long the trace is.
pub fn document(found: &SystemCalls, seconds: f64, top: usize) -> Value {
    let called = found.callers.kinds();
    let calls: u64 = called.iter().map(|(_, results)| results.calls).sum();
    let list = called.iter().map(|(function, results)| {
        let mut sums = sums(results);
        sums["function"] = json!(function.name());
        sums["calls_a_second"] = match seconds > 0.0 {
            true => json!(results.calls as f64 / seconds),
            false => Value::Null,
        };
        sums
    });
    let callers: Map<String, Value> = Needless::ALL
        .into_iter()
        .map(|kind| {
            let callers = found.ranked(kind).into_iter().take(top);
            let list: Vec<Value> = callers.map(|caller| described(found, caller)).collect();
            (kind.key().to_owned(), json!(list))
        })
        .collect();
    json!({
        "calls": calls,
        "functions": list.collect::<Vec<_>>(),
        "callers": callers,
    })
}

fn sums(results: &Results) -> Value {
    let errors: Map<String, Value> = results
        .errors
        .iter()
        .map(|(error, calls)| (error_name(*error), json!(calls)))
        .collect();
    let mut sums = json!({
        "calls": results.calls,
        "bytes": results.bytes,
        "time_ns": results.ns.round(),
        "errors": errors,
        "results": results.results.json(),
    });
    for kind in Needless::ALL {
        sums[kind.key()] = json!(results.needless(kind));
    }
    sums
}

fn described(found: &SystemCalls, caller: &Caller) -> Value {
    let mut sums = sums(&caller.sum);
    sums["call"] = json!(caller.kind.name());
    place(&mut sums, found.callers.site(caller));
    sums
}
