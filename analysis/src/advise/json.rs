//! The advice for programs: one object, described in `docs/reference/advice.md`.

use std::io::{self, Write};

use larder_base::output;
use larder_base::printable;
use serde_json::{Value, json};

use super::calls;
use super::claim::Claim;
use super::facts::{ImageFacts, Site};
use super::kit::Kit;
use super::loops;
use super::rank::Ranked;
use super::rates;
use super::{AdvisePlan, ImageAdvice};
use crate::reading::Analysis;
use crate::reading::excerpt;
use crate::reading::losses;
use crate::reading::resolve::{ChainFrame, Resolver};

pub fn print(
    plan: &AdvisePlan,
    analysis: &Analysis,
    advice: &[ImageAdvice],
    out: &mut dyn Write,
) -> io::Result<()> {
    let document = json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "trace": printable::name(&plan.subject.trace),
        "losses": losses::details(analysis),
        "wrappers": analysis.wrappers.names(),
        "processes": advice.iter().map(|image| process(plan, analysis, image)).collect::<Vec<_>>(),
    });
    output::write_json(&document, out)
}

fn process(plan: &AdvisePlan, analysis: &Analysis, image: &ImageAdvice) -> Value {
    let resolver = &analysis.resolver;
    let finding = |ranked| finding(resolver, &image.facts, ranked);
    let findings = image.findings.iter().take(plan.top);
    json!({
        "process": image.title,
        "allocations": image.facts.allocations,
        "peak_bytes": image.facts.peak_bytes,
        "has_contents": image.facts.has_contents,
        "lost_calls": image.facts.lost_calls,
        "measured_on": image.costs.allocator,
        "rates": rates::of_all(&image.facts),
        "saved": {
            "calls": image.totals.calls,
            "bytes": image.totals.bytes,
            "ns": image.totals.ns.round(),
            "of_ns": image.totals.all_ns.round(),
        },
        "findings": findings.map(finding).collect::<Vec<_>>(),
        "busy": image.busy.iter().map(finding).collect::<Vec<_>>(),
        "not_shown": image.hidden,
        "cpu": image.times.as_ref().map(|times| json!({
            "samples": times.all.samples,
            "ns": times.all.ns,
            "recorder_samples": times.recorder.samples,
            "recorder_ns": times.recorder.ns,
        })),
        "calls": image.calls.as_ref().map(|calls| {
            let calls = calls.iter().take(plan.top);
            calls.map(|finding| calls::print::json(resolver, finding)).collect::<Vec<_>>()
        }),
    })
}

fn finding(resolver: &Resolver, image: &ImageFacts, ranked: &Ranked) -> Value {
    let finding = &ranked.finding;
    let named = &image.sites[finding.site];
    let related = finding
        .related
        .iter()
        .map(|origin| site(&image.sites[*origin]));
    json!({
        "pattern": finding.pattern.id(),
        "title": finding.pattern.title(),
        "confidence": finding.confidence.name(),
        "site": site(named),
        "source": excerpt::json(resolver, Some(&named.stack())),
        "related": related.collect::<Vec<_>>(),
        "saves": {
            "calls": finding.calls(),
            "bytes": finding.bytes(),
            "net_calls": ranked.net_calls,
            "net_bytes": ranked.net_bytes,
            "net_ns": ranked.net_ns.round(),
            "memory_bytes": finding.memory_bytes,
            "share": ranked.share,
            "shared_with": ranked.shared_with,
        },
        "cpu": ranked.cpu.map(|cpu| cpu.json()),
        "size_bytes": finding.size_bytes,
        "type": ranked.allocates.as_ref().map(|found| json!({
            "name": found.name,
            "size_bytes": found.size_bytes,
        })),
        "evidence": finding.evidence.iter().map(Claim::text).collect::<Vec<_>>(),
        "also": ranked.also.iter().map(|other| json!({
            "site": site(&image.sites[other.site]),
            "calls": other.calls(),
            "cure": other.cure,
            "evidence": other.evidence.iter().map(Claim::text).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "rate": rates::of_site(named, finding.calls().max(named.sums.calls)),
        "loop": loops::of_finding(image, finding).map(|found| json!({
            "at": function(found.frame),
            "turns": found.iterations,
            "calls": found.calls,
            "calls_a_turn": found.an_iteration(),
        })),
        "cure": finding.cure,
        "kit": Kit::of(finding, named, ranked.allocates.as_ref()).map(|kit| kit.json()),
    })
}

fn site(site: &Site) -> Value {
    let index = site.site.unwrap_or(usize::MAX);
    let frames = site.functions();
    let named = frames.get(index).copied();
    json!({
        "function": named.and_then(|frame| Some(&*frame.source.function.as_ref()?.name)),
        "file": named.and_then(|frame| frame.source.file.as_deref()),
        "line": named.and_then(|frame| frame.source.line),
        "call": site.call_name,
        "calls": site.sums.calls,
        "bytes": site.sums.bytes,
        "stack": frames.iter().map(|frame| function(frame)).collect::<Vec<_>>(),
    })
}

fn function(frame: &ChainFrame) -> Value {
    json!({
        "function": frame.source.function.as_ref().map(|function| &*function.name),
        "file": frame.source.file.as_deref(),
        "line": frame.source.line,
        "module": frame.module.path,
        "inlined": frame.source.inlined,
    })
}
