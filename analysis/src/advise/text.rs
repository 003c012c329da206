//! The advice as text.

use std::io::{self, Write};

use larder_base::number::{counted, duration, grouped, percent};
use larder_base::order;
use larder_base::printable;
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::calls;
use super::claim::Claim;
use super::element::AllocatedType;
use super::facts::ImageFacts;
use super::finding::{Finding, Pattern};
use super::kit::Kit;
use super::loops;
use super::rank::{Ranked, Totals};
use super::rates;
use super::within::Share;
use super::{AdvisePlan, ImageAdvice};
use crate::reading::Analysis;
use crate::reading::excerpt::{self, Excerpt};
use crate::reading::losses;
use crate::reading::naming::{self, frame_place, function_name};
use crate::reading::resolve::Resolver;
use crate::reading::sites::SiteStack;

/// Callers named of those that a cure helps, too.
const MOST_CALLERS: usize = 3;

pub fn print(
    plan: &AdvisePlan,
    analysis: &Analysis,
    advice: &[ImageAdvice],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}", printable::name(&plan.subject.trace))?;
    for line in losses::details(analysis) {
        writeln!(out, "{WARNING}{line}{WARNING:#}")?;
    }
    if let Some(passed) = analysis.wrappers.describe() {
        writeln!(out, "{FAINT}{}{FAINT:#}", printable::escape(&passed))?;
    }
    if advice.is_empty() {
        return writeln!(out, "No allocation was recorded.");
    }
    for image in advice.iter().take(plan.processes) {
        print_image(plan, analysis, image, advice.len() > 1, out)?;
    }
    if advice.iter().all(|image| !image.facts.has_contents) {
        writeln!(
            out,
            "\n{FAINT}equal blocks and needless zeroing were not checked: record with --contents{FAINT:#}"
        )?;
    }
    let left = |image: &ImageAdvice| {
        image
            .facts
            .sites
            .iter()
            .any(|site| site.sums.live_blocks > 0)
    };
    if advice.iter().any(left) && advice.iter().all(|image| !image.facts.records_lost) {
        writeln!(
            out,
            "{FAINT}blocks live at the end were not checked for leaks: record with --leaks{FAINT:#}"
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
    analysis: &Analysis,
    image: &ImageAdvice,
    titled: bool,
    out: &mut dyn Write,
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
    if facts.lost_calls > 0 {
        writeln!(
            out,
            "{WARNING}{} missing from the trace: lifetimes, and blocks at once, are not analysed{WARNING:#}",
            match facts.lost_calls {
                1 => "1 call is".to_owned(),
                calls => format!("{} calls are", grouped(calls)),
            }
        )?;
    }
    writeln!(out, "{}", summary(&image.totals, facts.allocations))?;
    print_by_time(plan, image, out)?;
    for (number, ranked) in image.findings.iter().take(shown).enumerate() {
        if number == image.worth {
            writeln!(out, "\n{FAINT}too little to be worth a change:{FAINT:#}")?;
        }
        print_finding(plan, analysis, (image, number + 1), ranked, out)?;
    }
    let more = image.findings.len() - shown;
    if more > 0 {
        writeln!(out, "\n{FAINT}{more} more: --top 0{FAINT:#}")?;
    }
    if let [first, ..] = &image.busy[..] {
        writeln!(out, "\n{}:", first.finding.pattern.title())?;
    }
    for ranked in &image.busy {
        let shown = facts.sites[ranked.finding.site].shown();
        writeln!(
            out,
            "   {FUNCTION}{shown}{FUNCTION:#}: {}",
            known_of(&ranked.finding)
        )?;
    }
    if let Some(calls) = &image.calls {
        calls::print::print(&analysis.resolver, calls, plan, out)?;
    }
    if image.hidden > 0 {
        let hidden = counted(image.hidden as u64, "weaker finding");
        writeln!(out, "\n{FAINT}{hidden} not shown: --all{FAINT:#}")?;
    }
    Ok(())
}

/// A busy line's evidence and cure, in one line.
fn known_of(finding: &Finding) -> String {
    let evidence = finding.evidence.iter().map(Claim::text);
    let parts: Vec<String> = evidence.chain([finding.cure.clone()]).collect();
    parts.join("; ")
}

/// What all findings save: each saves calls, memory or other time.
fn summary(totals: &Totals, allocations: u64) -> String {
    let would_save = |findings: u64, what: &str| {
        (findings > 0).then(|| format!("{} would save {what}", counted(findings, "finding")))
    };
    let calls = format!(
        "{} of them ({:.1} %), {}, about {}",
        grouped(totals.calls),
        percent(totals.calls, allocations),
        counted(totals.bytes, "byte"),
        duration(totals.ns as u64),
    );
    let kinds = [
        would_save(totals.findings, &calls),
        would_save(totals.memory_findings, "memory"),
        would_save(totals.other_findings, "other time"),
    ];
    match &kinds.into_iter().flatten().collect::<Vec<_>>()[..] {
        [] => "Nothing needless was found.".to_owned(),
        found => found.join("; "),
    }
}

fn print_finding(
    plan: &AdvisePlan,
    analysis: &Analysis,
    (image, number): (&ImageAdvice, usize),
    ranked: &Ranked,
    out: &mut dyn Write,
) -> io::Result<()> {
    let finding = &ranked.finding;
    let site = &image.facts.sites[finding.site];
    writeln!(
        out,
        "\n{HEADING}{number}. {}{HEADING:#}: {FUNCTION}{}{FUNCTION:#}",
        finding.pattern.title(),
        site.shown(),
    )?;
    let stack = site.stack();
    excerpt::print(&analysis.resolver, &stack, out)?;
    writeln!(out, "   saves  {}", saving(image, ranked))?;
    print_cpu(ranked.cpu, "", out)?;
    for (index, claim) in finding.evidence.iter().enumerate() {
        let label = if index == 0 { "why" } else { "" };
        writeln!(out, "   {label:<6} {}", claim.text())?;
    }
    for line in for_others(&image.facts, ranked) {
        writeln!(out, "          {line}")?;
    }
    for line in context(image, ranked) {
        writeln!(out, "          {line}")?;
    }
    writeln!(out, "   cure   {}", finding.cure)?;
    print_kit(Kit::of(finding, site, ranked.allocates.as_ref()), out)?;
    writeln!(
        out,
        "   {FAINT}confidence {}{FAINT:#}",
        finding.confidence.name()
    )?;
    if plan.stacks {
        naming::print_stack(&stack, out)
    } else {
        naming::print_stack_in_line(&stack, out)
    }
}

/// What its calls take of the processor's time now, if it was sampled.
pub fn print_cpu(cpu: Option<Share>, without: &str, out: &mut dyn Write) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let samples = counted(cpu.samples, "sample");
    writeln!(
        out,
        "   takes  {} of the processor time now{without}: {samples}",
        share_of_time(&cpu)
    )
}

fn share_of_time(cpu: &Share) -> String {
    let [share, low, high] = [cpu.share, cpu.low, cpu.high].map(|part| 100.0 * part);
    format!("{share:.1} % ({low:.1}–{high:.1} %)")
}

/// All findings in one order: by the processor time that their calls take.
fn print_by_time(plan: &AdvisePlan, image: &ImageAdvice, out: &mut dyn Write) -> io::Result<()> {
    let Some(times) = &image.times else {
        return Ok(());
    };
    let allocations = image.findings.iter().map(|ranked| {
        let site = &image.facts.sites[ranked.finding.site];
        (ranked.cpu, ranked.finding.pattern.title(), site.shown())
    });
    let calls = image.calls.iter().flatten().map(|finding| {
        let place = calls::print::place(&finding.site);
        (finding.cpu, finding.pattern.title(), place)
    });
    let mut rows: Vec<(Share, &str, String)> = allocations
        .chain(calls)
        .filter_map(|(cpu, title, place)| Some((cpu.filter(|cpu| cpu.samples > 0)?, title, place)))
        .collect();
    order::sort_by(&mut rows, |a, b| b.0.share.total_cmp(&a.0.share));
    writeln!(
        out,
        "\n{HEADING}By processor time{HEADING:#} ({}; the recorder's own are left out)",
        counted(times.all.samples, "sample")
    )?;
    if rows.is_empty() {
        return writeln!(out, "No sample was within the calls of these findings.");
    }
    for (cpu, title, place) in rows.iter().take(plan.top) {
        let share = share_of_time(cpu);
        writeln!(out, "{share:>21}  {title}: {FUNCTION}{place}{FUNCTION:#}")?;
    }
    match rows.len().saturating_sub(plan.top) {
        0 => Ok(()),
        more => writeln!(out, "{FAINT}{more} more: --top 0{FAINT:#}"),
    }
}

/// Lines of code with the part of the kit that the cure can be written with.
pub fn print_kit(kit: Option<Kit>, out: &mut dyn Write) -> io::Result<()> {
    for (index, line) in kit.iter().flat_map(Kit::lines).enumerate() {
        let label = if index == 0 { "kit" } else { "" };
        writeln!(out, "   {label:<6} {line}")?;
    }
    Ok(())
}

/// A finding without colours.
pub struct FindingText {
    pub title: String,
    pub site: SiteStack,
    /// The source around the site; empty if it is not found.
    pub source: Vec<String>,
    pub lines: Vec<String>,
}

pub fn lines(resolver: &Resolver, image: &ImageAdvice, ranked: &Ranked) -> FindingText {
    let finding = &ranked.finding;
    let site = &image.facts.sites[finding.site];
    let title = format!("{}: {}", finding.pattern.title(), site.shown());
    let mut lines = vec![format!("saves {}", saving(image, ranked))];
    lines.extend(finding.evidence.iter().map(Claim::text));
    lines.extend(for_others(&image.facts, ranked));
    lines.extend(context(image, ranked));
    lines.push(format!("cure: {}", finding.cure));
    lines.push(format!("confidence {}", finding.confidence.name()));
    let source = Excerpt::of(resolver, &site.stack());
    let rows = source.iter().flat_map(Excerpt::rows);
    FindingText {
        title,
        site: site.stack(),
        source: rows
            .map(|(gutter, text)| format!("{gutter} {text}"))
            .collect(),
        lines,
    }
}

/// Why the cure holds for other callers of the line, or for other lines.
fn for_others(image: &ImageFacts, ranked: &Ranked) -> Vec<String> {
    let calls = |also: &[Finding]| also.iter().map(Finding::calls).sum();
    let named = ranked.also.len().min(MOST_CALLERS);
    let (named, more) = ranked.also.split_at(named);
    let mut lines: Vec<String> = named
        .iter()
        .map(|other| {
            let site = &image.sites[other.site];
            let is_same = site.place == image.sites[ranked.finding.site].place;
            let frame = match is_same {
                true => site.caller_frame(),
                false => site.site_frame(),
            };
            let shown = frame.map_or("another caller".to_owned(), |frame| {
                format!("{} ({})", function_name(frame), frame_place(frame))
            });
            let mut why: Vec<String> = other.evidence.iter().map(Claim::text).collect();
            let own =
                other.pattern == Pattern::Reserve || (other.pattern == Pattern::Reuse && is_same);
            if own && other.cure != ranked.finding.cure {
                why.push(other.cure.clone());
            }
            format!(
                "and for {shown}, {} calls: {}",
                grouped(other.calls()),
                why.join("; ")
            )
        })
        .collect();
    if !more.is_empty() {
        lines.push(format!(
            "and for {} more, {} calls",
            grouped(more.len() as u64),
            grouped(calls(more))
        ));
    }
    lines
}

/// What is allocated, and the rates of its calls: by loop, by system call.
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
            let with: Vec<String> = ranked
                .shared_with
                .iter()
                .map(|place| (place + 1).to_string())
                .collect();
            parts.push(match with.is_empty() {
                true => format!("{counted_before} more are counted above"),
                false => format!("{counted_before} more are counted with {}", with.join(", ")),
            });
        }
    }
    if calls == 0 && ranked.net_ns > 0.0 {
        let time = duration(ranked.net_ns as u64);
        parts.push(format!("about {time} of zeroing"));
    }
    if ranked.finding.memory_bytes > 0 {
        let bytes = counted(ranked.finding.memory_bytes, "byte");
        let share = 100.0 * ranked.memory_share;
        parts.push(match ranked.finding.pattern {
            Pattern::Tiny => {
                format!("{bytes} that malloc adds ({share:.1} % of what it takes at the peak)")
            }
            _ => format!("{bytes} of memory ({share:.1} % of the peak)"),
        });
    }
    if parts.is_empty() {
        parts.push("time outside of the allocator".to_owned());
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_that_save_memory_are_counted_apart() {
        let mut totals = Totals::default();
        assert_eq!(summary(&totals, 100), "Nothing needless was found.");
        totals.memory_findings = 1;
        assert_eq!(summary(&totals, 100), "1 finding would save memory");
        totals.findings = 2;
        (totals.calls, totals.bytes, totals.ns) = (50, 4000, 2000.0);
        totals.other_findings = 1;
        assert_eq!(
            summary(&totals, 100),
            "2 findings would save 50 of them (50.0 %), 4,000 bytes, about 2.0 µs; 1 finding would \
             save memory; 1 finding would save other time"
        );
    }
}
