//! The report as text. `naming` escapes every name that comes from outside.

use std::io::{self, Write};

use larder_analysis::reading::excerpt;
use larder_analysis::reading::naming::{self, site_name, site_place};
use larder_base::number::{counted, grouped};
use larder_base::order;
use larder_base::printable::escape;
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::Report;
use super::running::Running;
use crate::process::Reached;
use crate::profile::heap::{Estimate, Figures};

pub fn print(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", report.title)?;
    writeln!(out, "{FAINT}{}{FAINT:#}", how(report))?;
    if let Some(passed) = report.profiled.wrappers.describe() {
        writeln!(out, "{FAINT}{}{FAINT:#}", escape(&passed))?;
    }
    writeln!(out)?;
    let (objects, bytes) = report.reachable();
    let reachable = sum(Estimate { objects, bytes });
    let total = report.total();
    if total.in_use.objects <= 0.0 {
        writeln!(out, "Nothing is lost; {reachable} can be reached")?;
    } else {
        writeln!(
            out,
            "{HEADING}Lost: {}{HEADING:#}{}",
            sum(total.in_use),
            hanging(&total)
        )?;
        writeln!(out, "Reachable: {reachable}")?;
    }
    if let Some(running) = &report.running {
        print_reached(&running.reached, out)?;
    }
    if report.profiles.len() > 1 {
        for (profile, total) in report.leaking() {
            writeln!(
                out,
                "        {}: {}",
                super::name(profile),
                sum(total.in_use)
            )?;
        }
    }
    print_sites(report, out)?;
    if let Some(running) = &report.running {
        print_sizes(running, out)?;
    }
    print_warnings(report, out)?;
    naming::print_problems(&report.profiled.resolver, out)
}

/// What is reachable only from globals or the C++ library, which no thread may use any more.
fn print_reached(reached: &Reached, out: &mut dyn Write) -> io::Result<()> {
    let parts = [
        ("by globals alone", reached.by_globals_alone),
        (
            "by the C++ library alone, which keeps them in reserve",
            reached.by_cxx_library_alone,
        ),
    ];
    for (name, part) in parts.iter().filter(|(_, part)| part.objects > 0) {
        let (objects, bytes) = (part.objects as f64, part.bytes as f64);
        writeln!(out, "        {name}: {}", sum(Estimate { objects, bytes }))?;
    }
    Ok(())
}

fn how(report: &Report<'_>) -> String {
    match (&report.running, &report.profiles[..]) {
        (Some(running), _) => format!(
            "{} stopped for {:.1} ms",
            counted(running.threads as u64, "thread"),
            running.stopped_ms
        ),
        (None, [one]) => format!("{}, checked when it ended", super::name(one)),
        (None, many) => format!("{} processes, each checked when it ended", many.len()),
    }
}

fn sum(sum: Estimate) -> String {
    let (bytes, objects) = (sum.bytes as u64, sum.objects as u64);
    format!(
        "{} in {}",
        counted(bytes, "byte"),
        counted(objects, "object")
    )
}

/// The part that is reachable from other leaked objects.
fn hanging(figures: &Figures) -> String {
    match figures.indirect.objects > 0.0 {
        true => format!(", of these {} reachable from others", sum(figures.indirect)),
        false => String::new(),
    }
}

/// Invariant: the rows add up to what is lost.
fn print_sites(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (sites, without_stack) = (report.ranked(), report.without_stack());
    if sites.is_empty() && without_stack.in_use.objects <= 0.0 {
        return Ok(());
    }
    let (shown, more) = sites.split_at(sites.len().min(report.plan.top));
    let count = counted(sites.len() as u64, "site");
    let scope = match more {
        [] => count,
        _ => format!("{} of {count}", shown.len()),
    };
    writeln!(out, "\n{HEADING}Sites by bytes lost{HEADING:#} ({scope})")?;
    writeln!(
        out,
        "{FAINT}{}  site{FAINT:#}",
        cells(["bytes", "objects", "with others"].map(str::to_owned))
    )?;
    for site in shown {
        let named = report.profiled.named(site);
        let name = site_name(named);
        let (line, place) = (cells(row(&site.figures)), site_place(named));
        writeln!(out, "{line}  {FUNCTION}{name}{FUNCTION:#}  {place}")?;
        if let Some(row) = report
            .profiled
            .heaviest(site, |figures| figures.in_use.bytes)
        {
            let stack = row.stack();
            excerpt::print(&report.profiled.resolver, &stack, out)?;
            naming::print_stack(&stack, out)?;
        }
    }
    if !more.is_empty() {
        let mut sum = Figures::default();
        more.iter().for_each(|site| sum.add(&site.figures));
        let sites = counted(more.len() as u64, "more site");
        writeln!(
            out,
            "{}  {FAINT}{sites}: --top 0{FAINT:#}",
            cells(row(&sum))
        )?;
    }
    if without_stack.in_use.objects > 0.0 {
        writeln!(out, "{}  [no stack]", cells(row(&without_stack)))?;
    }
    Ok(())
}

fn row(figures: &Figures) -> [String; 3] {
    [
        figures.in_use.bytes,
        figures.in_use.objects,
        figures.indirect.objects,
    ]
    .map(|value| grouped(value as u64))
}

fn cells(cells: [String; 3]) -> String {
    let [bytes, objects, indirect] = cells;
    format!("{bytes:>15} {objects:>12} {indirect:>12}")
}

fn print_sizes(running: &Running, out: &mut dyn Write) -> io::Result<()> {
    if running.sizes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{HEADING}What has no stack, by size{HEADING:#}")?;
    writeln!(
        out,
        "{FAINT}{}  size{FAINT:#}",
        cells(["bytes", "objects", "with others"].map(str::to_owned))
    )?;
    let mut sizes: Vec<_> = running.sizes.iter().collect();
    order::sort_by(&mut sizes, |(_, a), (_, b)| {
        b.in_use.bytes.total_cmp(&a.in_use.bytes)
    });
    for (size, figures) in sizes {
        writeln!(
            out,
            "{}  up to {}",
            cells(row(figures)),
            counted(*size, "byte")
        )?;
    }
    if !running.everything {
        writeln!(
            out,
            "{FAINT}the process was not started with HEAPCHECK: only sampled objects have a \
             stack, and bytes are those of the size class{FAINT:#}"
        )?;
    }
    Ok(())
}

fn print_warnings(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let orphaned = report
        .running
        .as_ref()
        .map_or(0, |running| running.orphaned_heaps);
    if orphaned > 0 {
        let heaps = counted(orphaned as u64, "thread");
        writeln!(
            out,
            "\n{WARNING}warning: fork has left {heaps} behind: free memory there may be reported \
             as lost{WARNING:#}"
        )?;
    }
    let ran = |profile: &crate::profile::heap::HeapProfile| {
        profile.leaks.is_some_and(|check| check.threads_ran)
    };
    if report.profiles.iter().any(ran) {
        writeln!(
            out,
            "\n{WARNING}warning: other threads could not be stopped: objects that only their \
             registers point to may be reported as lost{WARNING:#}"
        )?;
    }
    Ok(())
}
