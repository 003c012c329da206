//! The advice for people.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::element::AllocatedType;
use super::loops;
use super::rank::Ranked;
use super::rates;
use super::{AdvisePlan, ImageAdvice, wrapper};
use crate::analysis::Analysis;
use crate::analysis::losses;
use crate::analysis::naming;
use crate::analysis::number::{counted, duration, grouped, percent};
use crate::analysis::sites::SiteStack;
use crate::printable;

const HEADING: Style = Style::new().bold();
const WARNING: Style = AnsiColor::Yellow.on_default();
const FUNCTION: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();

pub fn print(
    plan: &AdvisePlan,
    analysis: &Analysis,
    advice: &[ImageAdvice],
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}", printable::name(&plan.subject.trace))?;
    for line in losses::details(analysis) {
        writeln!(out, "{WARNING}{line}{WARNING:#}")?;
    }
    if advice.is_empty() {
        return writeln!(out, "No allocation was recorded.");
    }
    for image in advice.iter().take(plan.processes) {
        print_image(plan, image, advice.len() > 1, out)?;
    }
    if advice.iter().all(|image| !image.facts.has_contents) {
        writeln!(
            out,
            "\n{FAINT}equal blocks and needless zeroing were not looked for: record with \
             --contents{FAINT:#}"
        )?;
    }
    let more = advice.len().saturating_sub(plan.processes);
    if more > 0 {
        let more = match more {
            1 => "1 less busy process".to_owned(),
            more => format!("{more} less busy processes"),
        };
        writeln!(
            out,
            "\n{FAINT}{more} not shown: --pid PID, or --top 0{FAINT:#}"
        )?;
    }
    naming::print_problems(&analysis.resolver, out)
}

fn print_image(
    plan: &AdvisePlan,
    image: &ImageAdvice,
    titled: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let facts = &image.facts;
    if titled {
        writeln!(out, "\n{HEADING}{}{HEADING:#}", image.title)?;
    }
    let shown = image.findings.len().min(plan.top);
    writeln!(
        out,
        "{}, {} at the peak; a malloc and free costs {:.0} ns here ({})",
        counted(facts.allocations, "allocation"),
        counted(facts.peak_bytes, "byte"),
        image.costs.pair_ns(64),
        image.costs.allocator,
    )?;
    for rate in rates::of_all(facts) {
        writeln!(out, "{rate}")?;
    }
    match image.findings.len() {
        0 => writeln!(out, "Nothing needless was found.")?,
        found => writeln!(
            out,
            "{} would save {} of them ({:.1} %), {}, about {}",
            counted(found as u64, "finding"),
            grouped(image.totals.calls),
            percent(image.totals.calls, facts.allocations),
            counted(image.totals.bytes, "byte"),
            duration(image.totals.ns as u64),
        )?,
    }
    for (number, ranked) in image.findings.iter().take(shown).enumerate() {
        print_finding(plan, image, number + 1, ranked, out)?;
    }
    if let Some(hint) = wrapper::hint(facts) {
        writeln!(out, "\n{hint}")?;
    }
    let more = image.findings.len() - shown;
    if more > 0 {
        writeln!(out, "\n{FAINT}{more} more: --top 0{FAINT:#}")?;
    }
    if image.hidden > 0 {
        let hidden = counted(image.hidden as u64, "weaker finding");
        writeln!(out, "\n{FAINT}{hidden} not shown: --all{FAINT:#}")?;
    }
    Ok(())
}

fn print_finding(
    plan: &AdvisePlan,
    image: &ImageAdvice,
    number: usize,
    ranked: &Ranked,
    out: &mut impl Write,
) -> io::Result<()> {
    let finding = &ranked.finding;
    let site = &image.facts.sites[finding.site];
    writeln!(
        out,
        "\n{HEADING}{number}. {}{HEADING:#}: {FUNCTION}{}{FUNCTION:#}",
        finding.pattern.title(),
        site.shown(),
    )?;
    writeln!(out, "   saves  {}", saving(image, ranked))?;
    for (index, line) in finding.evidence.iter().enumerate() {
        let label = if index == 0 { "why" } else { "" };
        writeln!(out, "   {label:<6} {line}")?;
    }
    for line in context(image, ranked) {
        writeln!(out, "          {line}")?;
    }
    writeln!(out, "   cure   {}", finding.cure)?;
    writeln!(
        out,
        "   {FAINT}confidence {}{FAINT:#}",
        finding.confidence.name()
    )?;
    let stack = SiteStack {
        chain: site.chain.clone(),
        site: site.site,
    };
    if plan.stacks {
        naming::print_stack(&stack, out)
    } else {
        naming::print_stack_in_line(&stack, out)
    }
}

/// A finding without colours: its title, and what else is said.
pub fn lines(image: &ImageAdvice, ranked: &Ranked) -> (String, Vec<String>) {
    let finding = &ranked.finding;
    let site = &image.facts.sites[finding.site];
    let title = format!("{}: {}", finding.pattern.title(), site.shown());
    let mut lines = vec![format!("saves {}", saving(image, ranked))];
    lines.extend(finding.evidence.iter().cloned());
    lines.extend(context(image, ranked));
    lines.push(format!("cure: {}", finding.cure));
    lines.push(format!("confidence {}", finding.confidence.name()));
    (title, lines)
}

/// What is allocated, and what its calls are to be seen against: a loop, system calls.
fn context(image: &ImageAdvice, ranked: &Ranked) -> impl Iterator<Item = String> {
    let finding = &ranked.finding;
    let site = &image.facts.sites[finding.site];
    let rate = rates::of_site(site, finding.calls().max(site.sums.calls));
    let allocates = ranked.allocates.as_ref().map(AllocatedType::describe);
    allocates
        .into_iter()
        .chain(loops::describe(&image.facts, finding))
        .chain(rate)
}

fn saving(image: &ImageAdvice, ranked: &Ranked) -> String {
    let mut parts = Vec::new();
    let calls = ranked.finding.calls();
    if calls > 0 {
        parts.push(format!(
            "{} ({:.1} %), {}, about {}",
            counted(ranked.net_calls, "call"),
            percent(ranked.net_calls, image.facts.allocations),
            counted(ranked.net_bytes, "byte"),
            duration(ranked.net_ns as u64)
        ));
        if ranked.net_calls < calls {
            let counted_before = grouped(calls - ranked.net_calls);
            parts.push(format!("{counted_before} more are counted above"));
        }
    }
    if calls == 0 && ranked.net_ns > 0.0 {
        let time = duration(ranked.net_ns as u64);
        parts.push(format!("about {time} of zeroing"));
    }
    if ranked.finding.memory_bytes > 0 {
        let bytes = ranked.finding.memory_bytes;
        parts.push(format!(
            "{} of memory ({:.1} % of the peak)",
            counted(bytes, "byte"),
            percent(bytes, image.facts.peak_bytes)
        ));
    }
    if parts.is_empty() {
        parts.push("time that the allocator does not see".to_owned());
    }
    parts.join("; ")
}
