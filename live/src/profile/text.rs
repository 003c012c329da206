//! The report as text. `naming` escapes every name that comes from outside.

use std::io::{self, Write};

use larder_analysis::reading::excerpt;
use larder_analysis::reading::naming::{self, site_name, site_place};
use larder_base::number::{counted, duration, grouped};
use larder_base::order;
use larder_base::printable::escape;
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::Report;
use super::args::{Key, Source};
use super::growing::Growing;
use super::heap::{Figures, HeapProfile, Origin};
use super::interval::{Growth, Interval};
use super::sites::{Base, ProfiledSite};

impl Report<'_> {
    /// What the sites are ranked by. A command that has ended has nothing in use but what it did not free,
    /// so its sites are ranked by the peak.
    pub fn key(&self) -> Key {
        let ended = matches!(self.plan.source, Source::Command { .. });
        match (self.plan.sort, self.profiled.base) {
            (Some(key), _) => key,
            (None, Base::None) if ended && self.profiled.total.at_peak.bytes > 0.0 => Key::Peak,
            (None, Base::None) => Key::InUse,
            (None, _) => Key::Growth,
        }
    }
}

impl Key {
    fn title(self) -> &'static str {
        match self {
            Key::InUse => "Sites by bytes in use",
            Key::Objects => "Sites by objects in use",
            Key::Allocated => "Sites by bytes allocated so far",
            Key::Growth => "Sites by growth",
            Key::Peak => "Sites by bytes in use at the peak",
            Key::Lifetimes => "Sites by objects freed so far",
        }
    }
}

/// The figure that sites are ranked by; for growth, the bytes in use.
pub fn weight(key: Key, figures: &Figures) -> f64 {
    match key {
        Key::InUse | Key::Growth => figures.in_use.bytes,
        Key::Objects => figures.in_use.objects,
        Key::Allocated => figures.allocated.bytes,
        Key::Peak => figures.at_peak.bytes,
        Key::Lifetimes => figures.freed(),
    }
}

/// The sites whose weight is not zero, heaviest first. By growth, those that shrank come last.
pub fn ranked<'a>(report: &'a Report<'_>, key: Key) -> Vec<&'a ProfiledSite> {
    let profiled = &report.profiled;
    let weight = |site: &ProfiledSite| match key {
        Key::Growth => site.growth.bytes,
        _ => weight(key, &site.figures),
    };
    let mut sites: Vec<(f64, &ProfiledSite)> = profiled
        .sites
        .iter()
        .map(|site| (weight(site), site))
        .filter(|(weight, _)| weight.round() != 0.0)
        .collect();
    order::sort_by(&mut sites, |(a, _), (b, _)| b.total_cmp(a));
    sites.into_iter().map(|(_, site)| site).collect()
}

pub fn print(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    print_head(report, out)?;
    print_totals(report, out)?;
    print_ranking(report, report.key(), out)?;
    print_incomplete(report, out)?;
    naming::print_problems(&report.profiled.resolver, out)
}

/// The sites that grew in every interval.
pub fn print_growing(
    report: &Report<'_>,
    found: &[Growing],
    out: &mut dyn Write,
) -> io::Result<()> {
    print_head(report, out)?;
    print_totals(report, out)?;
    let intervals = found.first().map_or(0, |growing| growing.each.len());
    let mean = report.profiles.first().map_or(0, |profile| profile.mean);
    if found.is_empty() {
        writeln!(out, "\n{HEADING}No site grew in every interval.{HEADING:#}")?;
    } else {
        let sites = counted(found.len() as u64, "site");
        let title = format!("Sites that grew in each of {intervals} intervals");
        writeln!(out, "\n{HEADING}{title}{HEADING:#} ({sites})")?;
        let header = ["growth", "95 %", "in use", "a second", "samples"];
        writeln!(
            out,
            "{FAINT}{}  site{FAINT:#}",
            cells(header.map(str::to_owned), Key::Growth)
        )?;
    }
    for growing in found.iter().take(report.top()) {
        if let Some(site) = report.profiled.sites.get(growing.site) {
            print_growing_site(report, growing, site, out)?;
        }
    }
    let least = counted(mean.saturating_mul(SAMPLES_FOR_GROWTH), "byte");
    writeln!(
        out,
        "\n{FAINT}growth of less than about {least} an interval cannot be distinguished from chance{FAINT:#}"
    )
}

/// This many new samples, with none freed, are significant.
const SAMPLES_FOR_GROWTH: u64 = 5;

fn print_growing_site(
    report: &Report<'_>,
    growing: &Growing,
    site: &ProfiledSite,
    out: &mut dyn Write,
) -> io::Result<()> {
    let named = report.profiled.named(site);
    let Growth { bytes, interval } = growing.growth;
    let seconds = report.seconds.unwrap_or(1.0).max(1e-3);
    let line = [
        signed(bytes),
        format!("{} to {}", signed(interval.low), signed(interval.high)),
        grouped(whole(site.figures.in_use.bytes)),
        grouped(whole(bytes / seconds)),
        grouped(whole(site.figures.spread.samples)),
    ];
    writeln!(
        out,
        "{}  {FUNCTION}{}{FUNCTION:#}  {}",
        cells(line, Key::Growth),
        site_name(named),
        site_place(named),
    )?;
    let each: Vec<String> = growing
        .each
        .iter()
        .map(|growth| signed(growth.bytes))
        .collect();
    writeln!(out, "        {FAINT}in turn {}{FAINT:#}", each.join(", "))?;
    match report
        .profiled
        .heaviest(site, |figures| figures.in_use.bytes)
    {
        Some(row) => {
            let stack = row.stack();
            excerpt::print(&report.profiled.resolver, &stack, out)?;
            naming::print_stack(&stack, out)
        }
        None => Ok(()),
    }
}

fn print_head(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", report.title)?;
    let mut about: Vec<String> = match &report.profiles[..] {
        [one] => vec![how(one)],
        many => {
            let first = many.first().map(how);
            let count = format!("{} processes", many.len());
            vec![count].into_iter().chain(first).collect()
        }
    };
    let stacks: usize = report
        .profiles
        .iter()
        .map(|profile| profile.stacks.len())
        .sum();
    let samples = whole(report.profiled.total.spread.samples);
    if report
        .profiles
        .iter()
        .any(|profile| profile.origin.has_intervals())
    {
        about.push(format!("{} in use", counted(samples, "sample")));
    }
    about.push(counted(stacks as u64, "stack"));
    writeln!(out, "{FAINT}{}{FAINT:#}", about.join(", "))?;
    if let Some(passed) = report.profiled.wrappers.describe() {
        writeln!(out, "{FAINT}{}{FAINT:#}", escape(&passed))?;
    }
    writeln!(out)
}

fn how(profile: &HeapProfile) -> String {
    let process = profile.process.map(|id| format!("process {id}, "));
    let process = process.unwrap_or_default();
    match (profile.origin, profile.mean) {
        (Origin::Exact, _) => format!("{process}every object counted"),
        (Origin::Unstated, _) => {
            format!("{process}counted or estimated: the file does not state which")
        }
        (_, 0) => format!("{process}sampled"),
        (_, 1) => format!("{process}every object sampled"),
        (_, mean) => format!("{process}one sample in {}", bytes(mean)),
    }
}

/// "512 KiB" where it is one.
fn bytes(value: u64) -> String {
    for (shift, unit) in [(20, "MiB"), (10, "KiB")] {
        if value >= 1 << shift && value.trailing_zeros() >= shift {
            return format!("{} {unit}", grouped(value >> shift));
        }
    }
    counted(value, "byte")
}

fn print_totals(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let profiled = &report.profiled;
    let total = &profiled.total;
    let line = |name: &str, e: super::heap::Estimate| {
        let objects = counted(whole(e.objects), "object");
        format!("{name}: {} in {objects}", counted(whole(e.bytes), "byte"))
    };
    let interval = total.spread.interval(total.in_use.bytes);
    writeln!(
        out,
        "{}{}",
        line("In use", total.in_use),
        in_words(&interval)
    )?;
    let allocated = match (profiled.base, report.seconds) {
        (Base::Earlier, Some(seconds)) => format!("Allocated in {seconds:.1} s"),
        (Base::Earlier, None) => "Allocated since the base".to_owned(),
        _ => "Allocated".to_owned(),
    };
    if total.allocated.bytes > 0.0 {
        writeln!(out, "{}", line(&allocated, total.allocated))?;
    }
    if total.at_peak.bytes > 0.0 {
        let name = match report.profiles.len() {
            0 | 1 => "At the peak".to_owned(),
            many => format!("At the peak of each of {many} processes"),
        };
        writeln!(out, "{}", line(&name, total.at_peak))?;
    }
    let from = match profiled.base {
        Base::None if total.at_mark.bytes > 0.0 => "the mark",
        Base::None => return Ok(()),
        Base::Earlier => "the base, of the same process",
        Base::OtherRun => "the base, of another run",
    };
    let growth = &profiled.total_growth;
    let interval = profiled
        .growth_is_sure()
        .then(|| growth_in_words(&growth.interval));
    let (bytes, interval) = (signed(growth.bytes), interval.unwrap_or_default());
    writeln!(out, "Growth since {from}: {bytes} bytes{interval}")
}

fn in_words(interval: &Interval) -> String {
    if interval.low.round() >= interval.high.round() {
        return String::new();
    }
    format!(" (95 %: {})", range(interval))
}

fn growth_in_words(interval: &Interval) -> String {
    let significance = if interval.holds_zero() {
        "; not significant"
    } else {
        ""
    };
    let (low, high) = (signed(interval.low), signed(interval.high));
    format!(" (95 %: {low} to {high}{significance})")
}

fn range(interval: &Interval) -> String {
    let (low, high) = (whole(interval.low), whole(interval.high));
    format!("{} to {}", grouped(low), grouped(high))
}

fn signed(value: f64) -> String {
    let sign = if value.round() < 0.0 { "-" } else { "+" };
    format!("{sign}{}", grouped(whole(value.abs())))
}

pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

fn print_ranking(report: &Report<'_>, key: Key, out: &mut dyn Write) -> io::Result<()> {
    let sites = ranked(report, key);
    let shown = sites.len().min(report.top());
    if sites.is_empty() {
        return writeln!(out, "\n{HEADING}{}: none{HEADING:#}", key.title());
    }
    let count = counted(sites.len() as u64, "site");
    let scope = if shown < sites.len() {
        format!("{shown} of {count}")
    } else {
        count
    };
    writeln!(out, "\n{HEADING}{}{HEADING:#} ({scope})", key.title())?;
    let columns: [&str; 5] = match key {
        Key::Growth => ["growth", "95 %", "in use", "was", "samples"],
        Key::Lifetimes => ["share", "freed", "half within", "90 % within", "in use"],
        Key::Allocated => ["share", "allocated", "in use", "objects", "samples"],
        Key::Peak => ["share", "at the peak", "objects", "in use", "samples"],
        Key::InUse | Key::Objects => ["share", "in use", "95 %", "objects", "samples"],
    };
    writeln!(
        out,
        "{FAINT}{}  site{FAINT:#}",
        cells(columns.map(str::to_owned), key)
    )?;
    for site in sites.iter().take(shown) {
        print_site(report, site, key, out)?;
    }
    Ok(())
}

fn cells(cells: [String; 5], key: Key) -> String {
    let widths = match key {
        Key::Growth => [15, 34, 15, 15, 8],
        Key::Lifetimes => [7, 12, 12, 12, 15],
        Key::Peak => [7, 15, 12, 15, 8],
        _ => [7, 15, 32, 12, 8],
    };
    let padded = cells.iter().zip(widths);
    let padded: Vec<String> = padded
        .map(|(cell, width)| format!("{cell:>width$}"))
        .collect();
    padded.join(" ")
}

fn print_site(
    report: &Report<'_>,
    site: &ProfiledSite,
    key: Key,
    out: &mut dyn Write,
) -> io::Result<()> {
    let profiled = &report.profiled;
    let named = profiled.named(site);
    writeln!(
        out,
        "{}  {FUNCTION}{}{FUNCTION:#}  {}",
        cells(figures(report, site, key), key),
        site_name(named),
        site_place(named),
    )?;
    let Some(row) = profiled.heaviest(site, |figures| weight(key, figures)) else {
        return Ok(());
    };
    let stack = row.stack();
    excerpt::print(&profiled.resolver, &stack, out)?;
    match report.plan.sort {
        Some(_) => naming::print_stack(&stack, out),
        None => naming::print_stack_in_line(&stack, out),
    }
}

fn figures(report: &Report<'_>, site: &ProfiledSite, key: Key) -> [String; 5] {
    let figures = &site.figures;
    let in_use = grouped(whole(figures.in_use.bytes));
    let objects = grouped(whole(figures.in_use.objects));
    let samples = grouped(whole(figures.spread.samples));
    let total = weight(key, &report.profiled.total);
    let share = match total > 0.0 {
        true => format!("{:.1} %", weight(key, figures) * 100.0 / total),
        false => String::new(),
    };
    match key {
        Key::Growth => {
            let growth = &site.growth;
            let before = match report.profiled.base {
                Base::None => figures.at_mark,
                _ => site.before.in_use,
            };
            let interval = match (report.profiled.growth_is_sure(), growth.is_significant()) {
                (false, _) => String::new(),
                (true, false) => "not significant".to_owned(),
                (true, true) => {
                    let Interval { low, high } = growth.interval;
                    format!("{} to {}", signed(low), signed(high))
                }
            };
            let before = grouped(whole(before.bytes));
            [signed(growth.bytes), interval, in_use, before, samples]
        }
        Key::Lifetimes => {
            let within = |part| {
                let micros = figures.lifetime_below(part).unwrap_or(0.0);
                duration((micros * 1e3) as u64)
            };
            let freed = grouped(whole(figures.freed()));
            [share, freed, within(0.5), within(0.9), in_use]
        }
        Key::Peak => {
            let peak = figures.at_peak;
            let objects = grouped(whole(peak.objects));
            [share, grouped(whole(peak.bytes)), objects, in_use, samples]
        }
        Key::Allocated => {
            let bytes = grouped(whole(figures.allocated.bytes));
            [share, bytes, in_use, objects, samples]
        }
        Key::InUse | Key::Objects => {
            let interval = range(&figures.spread.interval(figures.in_use.bytes));
            [share, in_use, interval, objects, samples]
        }
    }
}

/// Warns of bytes whose stacks are missing or cut off.
fn print_incomplete(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let rows = &report.profiled.rows;
    let sum = |wanted: &dyn Fn(&super::sites::Row) -> bool| -> f64 {
        let wanted = rows.iter().filter(|row| wanted(row));
        wanted.map(|row| row.figures.in_use.bytes).sum()
    };
    let lost = whole(sum(&|row| row.chain.is_empty()));
    let truncated = whole(sum(&|row| row.truncated));
    for (bytes, text) in [
        (
            lost,
            "in use without a stack: it could not be walked, or the site table was full",
        ),
        (
            truncated,
            "in use in stacks that were cut off because they are too deep",
        ),
    ] {
        if bytes > 0 {
            let bytes = counted(bytes, "byte");
            writeln!(out, "\n{WARNING}warning: {bytes} {text}{WARNING:#}")?;
        }
    }
    Ok(())
}
