//! The findings as text and JSON.

use std::io::{self, Write};

use larder_base::number::{bytes, counted, duration, grouped, percent};
use larder_base::printable;
use larder_base::style::{FAINT, FUNCTION, HEADING};
use serde_json::{Value, json};

use super::{CallFinding, Conversion, Pattern};
use crate::advise::AdvisePlan;
use crate::advise::kit::Kit;
use crate::advise::text::{print_cpu, print_kit};
use crate::reading::attribute::functions;
use crate::reading::excerpt;
use crate::reading::naming::{self, frame_name, frame_place};
use crate::reading::resolve::Resolver;
use crate::reading::sites::SiteStack;

/// `function  file:line`.
pub fn place(stack: &SiteStack) -> String {
    let frame = stack
        .site
        .and_then(|site| functions(&stack.chain).nth(site));
    frame.map_or_else(
        || "[no stack]".to_owned(),
        |frame| format!("{}  {}", frame_name(frame), frame_place(frame)),
    )
}

/// One sentence a line, made of the counts alone.
fn evidence(finding: &CallFinding) -> Vec<String> {
    let figures = &finding.figures;
    let other = finding.other.as_ref().map_or_else(String::new, place);
    let share = percent(figures.bytes, figures.of);
    let copied_on = |verb: &str| {
        vec![
            format!("{share:.1} % of the bytes that it {verb} are copied on by {other}"),
            "soon after, in the same thread, and nothing recorded changed them; the program's own stores are not \
             seen"
                .to_owned(),
        ]
    };
    match finding.pattern {
        Pattern::Wakes => vec![
            format!(
                "{} of 1 to 8 bytes each to a pipe that only other threads read, in {} by {other}",
                counted(figures.of, "write"),
                counted(figures.others, "read"),
            ),
            format!(
                "{} of the writes came while an earlier byte was not read yet",
                grouped(figures.calls)
            ),
        ],
        Pattern::CopiedOn => copied_on("copies"),
        Pattern::ReadThenCopied => copied_on("reads"),
        Pattern::FormattedThenCopied => copied_on("formats"),
        Pattern::FilledThenOverwritten => vec![format!(
            "{} of its {} are overwritten soon after by {other}",
            counted(figures.calls, "fill"),
            grouped(figures.others),
        )],
        Pattern::HandedOver => vec![format!(
            "the source is a block that is freed at once after {} of its {} copies",
            grouped(figures.calls),
            grouped(figures.of)
        )],
        Pattern::SourceLivesOn => vec![
            part_of_its_calls(finding, &other),
            "both were compared when the copy ended: check whether one of them changes for a while"
                .to_owned(),
        ],
        Pattern::SameText => vec![
            part_of_its_calls(finding, &other),
            "the same when they ended: check whether they change before".to_owned(),
        ],
        Pattern::OneConversion => finding.format.iter().map(formatted).collect(),
        _ => vec![part_of_its_calls(finding, &other)],
    }
}

/// How many of a line's calls are needless, and why.
fn part_of_its_calls(finding: &CallFinding, other: &str) -> String {
    let figures = &finding.figures;
    let (noun, why) = match finding.pattern {
        Pattern::SmallWrites => (
            "write",
            format!(
                "follow a small write to the same descriptor, in {}, {} on average",
                counted(figures.runs, "run"),
                bytes(figures.bytes / figures.calls.max(1))
            ),
        ),
        Pattern::UntilAgain => (
            "call",
            "returned EAGAIN after a read of the same descriptor that returned less than it asked for".to_owned(),
        ),
        Pattern::MapInTurn => (
            "mapping",
            "are of the size that the thread unmapped just before".to_owned(),
        ),
        Pattern::StatThenOpen => (
            "call",
            format!("that found the file came before {other} opened it: the next name that the thread looked up"),
        ),
        Pattern::OpenedAgain => (
            "opening",
            "are of a name that it had opened before, and closed since".to_owned(),
        ),
        Pattern::PollThenRead => (
            "wait",
            format!("for one descriptor returned at once, just before {other} read from it"),
        ),
        Pattern::ClockAgain => (
            "reading",
            "came less than 100 µs after the thread's last one from here".to_owned(),
        ),
        Pattern::SourceLivesOn => (
            "copy",
            format!("filled a block that ended with the bytes of its source, which lived on: {other} allocated it"),
        ),
        Pattern::SameText => (
            "copy",
            format!(
                "filled a block that ended with a text that an earlier one had: {} in all",
                counted(figures.runs, "text")
            ),
        ),
        _ => (
            "call",
            format!("returned ENOENT: {:.1} %", percent(figures.calls, figures.of)),
        ),
    };
    let all = counted(figures.of, noun);
    format!("{} of its {all} {why}", grouped(figures.calls))
}

fn formatted((format, conversion): &(String, Conversion)) -> String {
    let format = printable::escape(format);
    format!(
        "its format is \"{format}\", which converts {}",
        conversion.noun()
    )
}

fn cure(finding: &CallFinding) -> &'static str {
    match &finding.format {
        Some((_, conversion)) => conversion.cure(),
        None => finding.pattern.cure(),
    }
}

fn kit(finding: &CallFinding) -> Option<Kit> {
    let conversion = finding.format.as_ref().map(|(_, conversion)| *conversion);
    Kit::of_calls(finding.pattern, conversion, &finding.site)
}

fn saves(finding: &CallFinding) -> String {
    let figures = &finding.figures;
    let mut text = counted(figures.calls, "call");
    if figures.bytes > 0 {
        text.push_str(&format!(", {}", counted(figures.bytes, "byte")));
    }
    if matches!(finding.pattern, Pattern::SourceLivesOn | Pattern::SameText) {
        text.push_str(", and as many allocations");
    }
    if figures.ns > 0.0 {
        text.push_str(&format!(", {} within them", duration(figures.ns as u64)));
    }
    text
}

pub fn print(
    resolver: &Resolver,
    findings: &[CallFinding],
    plan: &AdvisePlan,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\n{HEADING}System calls and copies{HEADING:#}")?;
    if findings.is_empty() {
        return writeln!(out, "Nothing needless was found.");
    }
    for (number, finding) in findings.iter().take(plan.top).enumerate() {
        let site = place(&finding.site);
        let title = finding.pattern.title();
        let number = number + 1;
        writeln!(
            out,
            "\n{HEADING}{number}. {title}{HEADING:#}: {FUNCTION}{site}{FUNCTION:#}"
        )?;
        excerpt::print(resolver, &finding.site, out)?;
        writeln!(out, "   saves  {}", saves(finding))?;
        let without = match finding.pattern {
            Pattern::MapInTurn => ", without the unmapping",
            Pattern::OpenedAgain => ", without the closing",
            _ => "",
        };
        print_cpu(finding.cpu, without, out)?;
        for (index, line) in evidence(finding).iter().enumerate() {
            let label = if index == 0 { "why" } else { "" };
            writeln!(out, "   {label:<6} {line}")?;
        }
        writeln!(out, "   cure   {}", cure(finding))?;
        print_kit(kit(finding), out)?;
        writeln!(
            out,
            "   {FAINT}confidence {}{FAINT:#}",
            finding.confidence.name()
        )?;
        match plan.stacks {
            true => naming::print_stack(&finding.site, out)?,
            false => naming::print_stack_in_line(&finding.site, out)?,
        }
    }
    let more = findings.len().saturating_sub(plan.top);
    if more > 0 {
        writeln!(out, "\n{FAINT}{more} more: --top 0{FAINT:#}")?;
    }
    Ok(())
}

pub fn json(resolver: &Resolver, finding: &CallFinding) -> Value {
    let figures = &finding.figures;
    json!({
        "pattern": finding.pattern.id(),
        "title": finding.pattern.title(),
        "confidence": finding.confidence.name(),
        "site": described(&finding.site),
        "source": excerpt::json(resolver, Some(&finding.site)),
        "other": finding.other.as_ref().map(described),
        "saves": { "calls": figures.calls, "bytes": figures.bytes, "ns": figures.ns.round() },
        "share": finding.share,
        "cpu": finding.cpu.map(|cpu| cpu.json()),
        "of": figures.of,
        "others": figures.others,
        "runs": figures.runs,
        "evidence": evidence(finding),
        "format": finding.format.as_ref().map(|(format, _)| format),
        "cure": cure(finding),
        "kit": kit(finding).map(|kit| kit.json()),
    })
}

fn described(stack: &SiteStack) -> Value {
    let named = stack
        .site
        .and_then(|site| functions(&stack.chain).nth(site));
    let frames = functions(&stack.chain).map(crate::report::frame_json);
    json!({
        "function": named.and_then(|frame| Some(&*frame.source.function.as_ref()?.name)),
        "file": named.and_then(|frame| frame.source.file.as_deref()),
        "line": named.and_then(|frame| frame.source.line),
        "stack": frames.collect::<Vec<_>>(),
    })
}
