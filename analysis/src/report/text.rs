//! The report as text. Every name that comes from outside goes through `shown`.

use std::io::{self, Write};

use larder_base::number::{counted, duration, grouped, percent};
use larder_base::printable::{self, escape};
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::Report;
use super::copies::{self, Copies};
use super::cpu::{self, Cpu};
use super::syscalls::{self, SystemCalls};
use crate::reading::excerpt;
use crate::reading::family::Counters;
use crate::reading::losses;
use crate::reading::naming::{self, site_name, site_place};
use crate::reading::sites::{Site, SortKey};

impl SortKey {
    fn title(self) -> &'static str {
        match self {
            SortKey::Calls => "Sites by calls",
            SortKey::Bytes => "Sites by bytes requested",
            SortKey::Peak => "Sites by bytes live at the peak",
            SortKey::Tiny => "Sites by blocks under 32 bytes",
            SortKey::Live => "Still live at exit",
            SortKey::Errors => "Sites by failed calls",
            SortKey::Time => "Sites by time",
        }
    }

    fn describe_total(self, counters: &Counters) -> String {
        let total = counters.of(self);
        match self {
            SortKey::Calls => counted(total, "call"),
            SortKey::Tiny => counted(total, "block"),
            SortKey::Live => {
                format!(
                    "{} in {}",
                    counted(total, "byte"),
                    counted(counters.live_blocks, "block")
                )
            }
            _ => counted(total, "byte"),
        }
    }
}

pub fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    print_head(report, out)?;
    print_counters(&report.analysis.counters, out)?;
    let keys = report
        .plan
        .sort
        .map_or(SortKey::OF_ALLOCATIONS.to_vec(), |key| vec![key]);
    for key in keys {
        if key == SortKey::Peak && !report.analysis.sites.knows_peak_shares() {
            writeln!(
                out,
                "\n{HEADING}{}: not known, because the calls were only counted{HEADING:#}",
                key.title()
            )?;
            continue;
        }
        print_ranking(report, key, out)?;
    }
    print_processes(report, out)?;
    naming::print_problems(&report.analysis.resolver, out)
}

pub fn print_syscalls(report: &Report, found: &SystemCalls, out: &mut dyn Write) -> io::Result<()> {
    print_head(report, out)?;
    let seconds = report.duration_ns() as f64 / 1e9;
    syscalls::text::print(&report.analysis.resolver, found, seconds, report.top(), out)?;
    naming::print_problems(&report.analysis.resolver, out)
}

pub fn print_copies(report: &Report, found: &Copies, out: &mut dyn Write) -> io::Result<()> {
    print_head(report, out)?;
    copies::text::print(&report.analysis.resolver, found, report.top(), out)?;
    naming::print_problems(&report.analysis.resolver, out)
}

pub fn print_cpu(report: &Report, found: &Cpu, out: &mut dyn Write) -> io::Result<()> {
    print_head(report, out)?;
    cpu::text::print(found, report.top(), out)?;
    naming::print_problems(&report.analysis.resolver, out)
}

fn print_head(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let images = &report.analysis.images;
    if let Some(image) = images.first() {
        let command: Vec<String> = image
            .process
            .argv
            .iter()
            .map(|word| printable::escape_bytes(word))
            .collect();
        let command = match command.is_empty() {
            true => printable::escape_bytes(&image.process.executable),
            false => command.join(" "),
        };
        writeln!(out, "{HEADING}{command}{HEADING:#}")?;
    }
    let events: u64 = images.iter().map(|image| image.events).sum();
    let threads: u64 = images.iter().map(|image| image.threads).sum();
    writeln!(
        out,
        "{FAINT}{}: {}, {}, {}, {}{FAINT:#}",
        printable::name(&report.plan.subject.trace),
        counted(images.len() as u64, "process image"),
        counted(threads, "thread"),
        counted(events, "event"),
        duration(report.duration_ns())
    )?;
    for line in losses::details(&report.analysis) {
        writeln!(out, "{WARNING}warning: {line}{WARNING:#}")?;
    }
    if let Some(passed) = report.analysis.wrappers.describe() {
        writeln!(out, "{FAINT}{}{FAINT:#}", escape(&passed))?;
    }
    for rule in &report.plan.subject.wrappers {
        let name = escape(&rule.function);
        writeln!(
            out,
            "{FAINT}counted only through the wrapper {name}{FAINT:#}"
        )?;
    }
    writeln!(out)
}

fn print_counters(counters: &Counters, out: &mut dyn Write) -> io::Result<()> {
    let shown = counters.of_calls().into_iter().chain(counters.of_bytes());
    for (name, value) in shown {
        writeln!(out, "{name}: {value}")?;
    }
    let mut notes = Vec::new();
    for (value, text) in [
        (counters.news, "of the mallocs are operator new"),
        (counters.aligned, "of the mallocs are aligned"),
        (counters.strndups, "of the strdups are strndup"),
        (counters.deletes, "of the frees are operator delete"),
        (counters.failed, "more calls failed"),
        (
            counters.unknown_frees,
            "frees are of blocks whose allocation is not in the trace",
        ),
    ] {
        if value > 0 {
            notes.push(format!("{} {text}", grouped(value)));
        }
    }
    if !notes.is_empty() {
        writeln!(out, "{FAINT}({}){FAINT:#}", notes.join("; "))?;
    }
    Ok(())
}

fn print_ranking(report: &Report, key: SortKey, out: &mut dyn Write) -> io::Result<()> {
    let counters = &report.analysis.counters;
    let ranked = report.analysis.sites.ranked(key);
    let weighty = ranked
        .iter()
        .take_while(|site| site.weight(key) > 0)
        .count();
    let shown = weighty.min(report.top());
    let title = key.title();
    let total = key.describe_total(counters);
    if weighty == 0 {
        return writeln!(out, "\n{HEADING}{title}: none{HEADING:#}");
    }
    let sites = counted(weighty as u64, "site");
    let scope = if shown < weighty {
        format!("{shown} of {sites}")
    } else {
        sites
    };
    writeln!(out, "\n{HEADING}{title}{HEADING:#} ({scope}; {total})")?;
    let columns = ["share", "calls", "bytes", "at peak", "tiny", "live"];
    let [share, calls, bytes, peak, tiny, live] = columns;
    writeln!(
        out,
        "{FAINT}{share:>7} {calls:>12} {bytes:>15} {peak:>13} {tiny:>10} {live:>13}  site{FAINT:#}"
    )?;
    for (place, site) in ranked.iter().take(shown).enumerate() {
        print_site(report, (place, site), key, out)?;
    }
    Ok(())
}

fn print_site(
    report: &Report,
    (place, site): (usize, &Site),
    key: SortKey,
    out: &mut dyn Write,
) -> io::Result<()> {
    let total = report.analysis.counters.of(key);
    let at_peak = report.analysis.sites.at_peak(site);
    writeln!(
        out,
        "{:>5.1} % {:>12} {:>15} {:>13} {:>10} {:>13}  {FUNCTION}{}{FUNCTION:#}  {}",
        percent(site.weight(key), total),
        grouped(site.sums.calls),
        grouped(site.sums.bytes),
        at_peak.map_or("?".to_owned(), grouped),
        grouped(site.sums.tiny),
        grouped(site.sums.live_bytes),
        site_name(site),
        site_place(site),
    )?;
    let (resolver, Some(stack)) = (&report.analysis.resolver, site.heaviest(key)) else {
        return Ok(());
    };
    match report.plan.sort {
        Some(_) => {
            excerpt::print(resolver, stack, out)?;
            naming::print_stack(stack, out)
        }
        None => {
            excerpt::print_ranked(resolver, place, stack, out)?;
            naming::print_stack_in_line(stack, out)
        }
    }
}

fn print_processes(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let images = &report.analysis.images;
    if images.len() < 2 {
        return Ok(());
    }
    writeln!(
        out,
        "\n{HEADING}Process images{HEADING:#} (peaks are of the one with the highest)"
    )?;
    for image in images {
        let counters = &image.counters;
        writeln!(
            out,
            "{:>9}  {:>12} calls {:>15} bytes {:>13} at peak  {}",
            image.process.pid,
            grouped(counters.allocations),
            grouped(counters.total_bytes),
            grouped(counters.peak_bytes),
            printable::escape_bytes(&image.process.executable)
        )?;
    }
    Ok(())
}
