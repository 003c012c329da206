//! The system calls as one JSON object, described in `docs/reference/report.md`.

use serde_json::{Map, Value, json};

use super::{Caller, Function, Needless, SystemCalls, error_name};
use crate::reading::attribute::functions;
use crate::report::json::frame;

impl Needless {
    fn key(self) -> &'static str {
        match self {
            Needless::Tiny => "tiny",
            Needless::Failed => "failed",
            Needless::NothingReady => "nothing_ready",
        }
    }
}

/// `seconds`: how long the trace is.
pub fn document(found: &SystemCalls, seconds: f64, top: usize) -> Value {
    let called = found.functions();
    let calls: u64 = called.iter().map(|(_, f)| f.results.calls).sum();
    let list = called.iter().map(|(call, function)| {
        let mut sums = sums(function);
        sums["function"] = json!(call.name());
        sums["calls_a_second"] = match seconds > 0.0 {
            true => json!(function.results.calls as f64 / seconds),
            false => Value::Null,
        };
        sums
    });
    let callers: Map<String, Value> = Needless::ALL
        .into_iter()
        .map(|kind| {
            let callers = found.callers(kind).into_iter().take(top);
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

fn sums(function: &Function) -> Value {
    let results = &function.results;
    let errors: Map<String, Value> = function
        .errors
        .iter()
        .map(|(error, calls)| (error_name(*error), json!(calls)))
        .collect();
    let histogram: Vec<Value> = results
        .histogram()
        .map(|(least, largest, calls)| json!({"from": least, "to": largest, "calls": calls}))
        .collect();
    let mut sums = json!({
        "calls": results.calls,
        "bytes": results.bytes,
        "errors": errors,
        "results": histogram,
    });
    for kind in Needless::ALL {
        sums[kind.key()] = json!(results.needless(kind));
    }
    sums
}

fn described(found: &SystemCalls, caller: &Caller) -> Value {
    let site = found.site(caller);
    let stack: Vec<Value> = functions(&caller.stack().chain).map(frame).collect();
    let mut sums = sums(&caller.function);
    sums["call"] = json!(caller.call.name());
    sums["function"] = json!(site.function.as_deref());
    sums["file"] = json!(site.file.as_deref());
    sums["line"] = json!(site.line);
    sums["module"] = json!(site.module.as_ref().map(|module| &module.path));
    sums["stack"] = json!(stack);
    sums
}
