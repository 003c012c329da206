//! The report as one JSON object, described in `docs/reference/report.md`.

use std::io::{self, Write};

use larder_base::number::percent;
use larder_base::output;
use larder_base::printable;
use larder_trace::{EndState, Origin};
use serde_json::{Value, json};

use super::Report;
use super::copies::{self, Copies};
use super::cpu::{self, Cpu};
use super::syscalls::{self, SystemCalls};
use crate::reading::Analysis;
use crate::reading::attribute::functions;
use crate::reading::excerpt;
use crate::reading::image::ImageReport;
use crate::reading::losses;
use crate::reading::naming::inlined_into;
use crate::reading::resolve::{ChainFrame, ModuleProblem};
use crate::reading::sites::{Site, SortKey};
use crate::symbols::SymbolProblem;

pub fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    output::write_json(&document(report), out)
}

pub fn print_syscalls(report: &Report, found: &SystemCalls, out: &mut dyn Write) -> io::Result<()> {
    let seconds = report.duration_ns() as f64 / 1e9;
    let mut document = about(report);
    document["system_calls"] = syscalls::json::document(found, seconds, report.top());
    output::write_json(&document, out)
}

pub fn print_copies(report: &Report, found: &Copies, out: &mut dyn Write) -> io::Result<()> {
    let mut document = about(report);
    document["copies"] = copies::json::document(found, report.top());
    output::write_json(&document, out)
}

/// Where the calls of a site are made.
pub fn place(of: &mut Value, site: &Site) {
    let stack = site.heaviest(SortKey::Calls).into_iter();
    let stack: Vec<Value> = stack.flat_map(|s| functions(&s.chain)).map(frame).collect();
    of["function"] = json!(site.function.as_deref());
    of["file"] = json!(site.file.as_deref());
    of["line"] = json!(site.line);
    of["module"] = json!(site.module.as_ref().map(|module| &module.path));
    of["stack"] = json!(stack);
}

pub fn print_cpu(report: &Report, found: &Cpu, out: &mut dyn Write) -> io::Result<()> {
    let mut document = about(report);
    document["cpu"] = cpu::json::document(found, report.top());
    output::write_json(&document, out)
}

fn document(report: &Report) -> Value {
    let analysis = &report.analysis;
    let key = report.plan.sort.unwrap_or(SortKey::Calls);
    let ranked = analysis.sites.ranked(key);
    let sites: Vec<Value> = ranked
        .iter()
        .take(report.top())
        .map(|s| site(s, key, analysis))
        .collect();
    let mut document = about(report);
    document["counters"] = json!(analysis.counters);
    document["sites"] = json!(sites);
    document["site_count"] = json!(ranked.len());
    document
}

/// What is said of any report.
fn about(report: &Report) -> Value {
    let analysis = &report.analysis;
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "trace": printable::name(&report.plan.subject.trace),
        "processes": analysis.images.iter().map(process).collect::<Vec<_>>(),
        "losses": all_losses(report),
        "warnings": analysis.warnings(),
        "wrappers": analysis.wrappers.names(),
        "symbols": analysis.resolver.problems().iter().map(problem).collect::<Vec<_>>(),
    })
}

fn site(site: &Site, key: SortKey, analysis: &Analysis) -> Value {
    let (counters, at_peak) = (&analysis.counters, analysis.sites.at_peak(site));
    let stack = site.heaviest(key);
    let frames: Vec<&ChainFrame> = stack
        .map(|stack| functions(&stack.chain).collect())
        .unwrap_or_default();
    let index = stack.and_then(|stack| stack.site);
    let inlined = index.map_or(&[][..], |index| inlined_into(&frames, index));
    let through = index.map_or(&[][..], |index| &frames[..index]);
    let list = |frames: &[&ChainFrame]| frames.iter().map(|f| frame(f)).collect::<Vec<_>>();
    json!({
        "function": site.function.as_deref(),
        "offset": site.offset,
        "file": site.file.as_deref(),
        "line": site.line,
        "source": excerpt::json(&analysis.resolver, stack),
        "module": site.module.as_ref().map(|module| &module.path),
        "address": site.address,
        "inlined": list(inlined),
        "through": list(through),
        "stack": list(&frames),
        "calls": site.sums.calls,
        "bytes": site.sums.bytes,
        "peak_bytes": at_peak,
        "tiny": site.sums.tiny,
        "live_blocks": site.sums.live_blocks,
        "live_bytes": site.sums.live_bytes,
        "share": {
            "calls": percent(site.sums.calls, counters.allocations),
            "bytes": percent(site.sums.bytes, counters.total_bytes),
            "peak": at_peak.map(|bytes| percent(bytes, counters.peak_bytes)),
            "tiny": percent(site.sums.tiny, counters.tiny),
            "live": percent(site.sums.live_bytes, counters.live_bytes),
        },
        "kinds": site.kinds,
    })
}

pub fn frame(frame: &ChainFrame) -> Value {
    json!({
        "function": frame.source.function.as_ref().map(|function| &*function.name),
        "file": frame.source.file.as_deref(),
        "line": frame.source.line,
        "module": frame.module.path,
        "address": frame.address,
        "inlined": frame.source.inlined,
    })
}

fn process(image: &ImageReport) -> Value {
    let process = &image.process;
    let origin = match process.origin {
        Origin::Start => "start",
        Origin::Fork => "fork",
        Origin::Exec => "exec",
        Origin::Attach => "attach",
    };
    let end = match process.end {
        EndState::Running => "not seen",
        EndState::Exited => "exit",
        EndState::Exec => "exec",
    };
    let arguments: Vec<String> = process
        .argv
        .iter()
        .map(|word| printable::escape_bytes(word))
        .collect();
    json!({
        "file": image.path,
        "pid": process.pid,
        "ppid": process.ppid,
        "image": process.image,
        "origin": origin,
        "end": end,
        "executable": printable::escape_bytes(&process.executable),
        "arguments": arguments,
        "started_unix_ns": process.start_wall_ns,
        "duration_ns": image.duration_ns,
        "threads": image.threads,
        "events": image.events,
        "counters": image.counters,
        "losses": image_losses(image),
    })
}

fn image_losses(image: &ImageReport) -> Value {
    let damage: Vec<Value> = image
        .damage
        .iter()
        .map(|damage| {
            json!({
                "offset": damage.offset,
                "length": damage.length,
                "events": damage.events,
                "cause": damage.cause.to_string(),
            })
        })
        .collect();
    json!({
        "calls": image.lost_calls(),
        "after_stop": image.losses.after_stop,
        "reentrant": image.losses.reentrant,
        "vfork": image.losses.vfork,
        "truncated_stacks": image.losses.truncated_stacks,
        "unrecorded_children": image.losses.unrecorded_children,
        "stopped": losses::stop_reason(image),
        "damage": damage,
    })
}

fn all_losses(report: &Report) -> Value {
    let images = &report.analysis.images;
    let calls: u64 = images.iter().map(ImageReport::lost_calls).sum();
    let truncated: u64 = images
        .iter()
        .map(|image| image.losses.truncated_stacks)
        .sum();
    let damaged: usize = images.iter().map(|image| image.damage.len()).sum();
    json!({
        "complete": losses::summary(&report.analysis).is_none(),
        "calls": calls,
        "truncated_stacks": truncated,
        "damaged_parts": damaged,
        "stopped": images.iter().find_map(losses::stop_reason),
        "unreadable_files": report.analysis.unreadable,
        "messages": losses::details(&report.analysis),
    })
}

fn problem(found: &ModuleProblem) -> Value {
    let (name, recorded, build) = match &found.problem {
        SymbolProblem::NoFile => ("file not found", None, None),
        SymbolProblem::OtherBuild { recorded, found } => {
            ("replaced since the recording", Some(recorded), Some(found))
        }
        SymbolProblem::NoDebugInfo => ("no debug information", None, None),
    };
    json!({
        "module": found.path,
        "problem": name,
        "recorded_build_id": recorded,
        "found_build_id": build,
    })
}
