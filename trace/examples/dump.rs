//! Prints a trace as text, one call a line: `cargo run --example dump -- FILE [--summary]`.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use larder_trace::{Action, Event, Events, StackId, Trace, TraceError, trace_files};

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: dump FILE [--summary]");
        return std::process::ExitCode::from(2);
    };
    let summary = arguments.next().is_some();
    match trace_files(path.as_ref())
        .and_then(|files| files.iter().try_for_each(|file| dump(file, summary)))
    {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn dump(path: &std::path::Path, summary: bool) -> Result<(), TraceError> {
    let trace = Trace::open(path)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let process = trace.process();
    let argv: Vec<_> = process
        .argv
        .iter()
        .map(|a| String::from_utf8_lossy(a))
        .collect();
    let _ = writeln!(
        out,
        "process {} image {} of {} {:?} end {:?} stop {:?} {}: {:?}",
        process.pid,
        process.image,
        process.ppid,
        process.origin,
        process.end,
        process.stop,
        process.stop_errno,
        argv
    );
    let _ = writeln!(out, "losses {:?}", trace.losses());
    let mut counts = BTreeMap::new();
    let mut calls = 0u64;
    let mut events = trace.events();
    while let Some(event) = events.next() {
        *counts.entry(kind(&event)).or_insert(0u64) += 1;
        calls += u64::from(!matches!(event.action, Action::ReallocStart { .. }));
        if !summary {
            print_event(&mut out, &trace, &events, &event);
        }
    }
    for damage in events.damage() {
        let _ = writeln!(out, "damage {damage}");
    }
    let _ = writeln!(
        out,
        "{calls} calls ({} by chunk headers), {} bytes, {:.2} bytes a call, {} frames, {} modules",
        trace.event_count(),
        trace.length(),
        trace.length() as f64 / calls.max(1) as f64,
        events.stacks().frame_count(),
        trace.modules().len(),
    );
    let _ = writeln!(out, "{counts:?}");
    Ok(())
}

fn kind(event: &Event) -> &'static str {
    match event.action {
        Action::Alloc { call, .. } | Action::ReallocEnd { call, .. } => call.name(),
        Action::Free { call, .. } => call.name(),
        Action::ReallocStart { .. } => "realloc start",
        Action::Mark { .. } => "mark",
        Action::SystemCall { call, .. } => call.name(),
        Action::Copy { call, .. } => call.name(),
        Action::ThreadStart => "thread start",
        Action::ThreadEnd => "thread end",
        Action::Contents { .. } => "contents",
        Action::Sample { .. } => "sample",
        Action::Lost { .. } => "lost",
    }
}

fn print_event(out: &mut impl Write, trace: &Trace, events: &Events<'_>, event: &Event) {
    let time = trace.clock().since_start_ns(event.time);
    let _ = write!(out, "{time:>12} {:>7} {:?}", event.thread, event.action);
    if let Action::Mark { name } = event.action {
        let _ = write!(
            out,
            " {:?}",
            String::from_utf8_lossy(events.mark_name(name))
        );
    }
    let stack = event.action.stack().unwrap_or(StackId::COMPLETE_ROOT);
    for frame in events.stacks().frames(stack) {
        let module = frame.module.and_then(|id| trace.module(id));
        let name = module.map_or("?".into(), |m| {
            let path = String::from_utf8_lossy(&m.path).into_owned();
            path.rsplit('/').next().unwrap_or_default().to_owned()
        });
        let address = frame.address.wrapping_sub(module.map_or(0, |m| m.bias));
        let _ = write!(out, " {name}+{address:#x}");
    }
    let end = match events.stacks().root(stack) {
        StackId::COMPLETE_ROOT => "",
        StackId::TRUNCATED_ROOT => " (cut)",
        _ => " (unknown)",
    };
    let _ = writeln!(out, "{end}");
}
