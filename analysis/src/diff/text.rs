//! The comparison as text. `naming` escapes names from outside, or the code that read them did.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use larder_base::number::{counted, grouped, shortest};
use larder_base::printable;
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::DiffPlan;
use super::compare::{self, Change, Comparison, Status};
use super::figures::{CHANCE, Figure, estimated, names, shown};
use super::growth::{Growth, SiteGrowth, WorkSource};
use super::obstacles::obstacles;
use super::side::{KnownSite, Side};
use super::stacks::StackChange;
use crate::of::Of;
use crate::reading::losses;
use crate::reading::naming::{print_stack_in_line, site_name, site_place};
use crate::reading::sites::SortKey;

const LESS: Style = AnsiColor::Green.on_default();
const MORE: Style = AnsiColor::Red.on_default();

type Out<'a> = &'a mut dyn Write;

pub fn print_comparison(
    comparison: &Comparison<'_>,
    plan: &DiffPlan,
    out: Out<'_>,
) -> io::Result<()> {
    let sides = [comparison.before, comparison.after];
    for (side, name) in sides.into_iter().zip(["before", "after"]) {
        print_side(side, name, out)?;
    }
    for line in obstacles(sides) {
        writeln!(out, "{WARNING}warning: {line}{WARNING:#}")?;
    }
    writeln!(out)?;
    print_counters(comparison, plan.of, out)?;
    print_changes(comparison, plan, out)
}

fn print_side(side: &Side<'_>, name: &str, out: Out<'_>) -> io::Result<()> {
    let command = side.analysis.images.first().map(|image| {
        let words = image.process.argv.iter();
        let words: Vec<String> = words.map(|word| printable::escape_bytes(word)).collect();
        words.join(" ")
    });
    let command = command.unwrap_or_default();
    writeln!(
        out,
        "{name:>6}  {HEADING}{}{HEADING:#}  {FAINT}{command}{FAINT:#}",
        side.trace
    )?;
    for line in losses::details(side.analysis) {
        writeln!(out, "        {WARNING}warning: {line}{WARNING:#}")?;
    }
    if let Some(passed) = side.analysis.wrappers.describe() {
        let passed = printable::escape(&passed);
        writeln!(out, "{INDENT}{FAINT}{passed}{FAINT:#}")?;
    }
    Ok(())
}

fn print_counters(comparison: &Comparison<'_>, of: Of, out: Out<'_>) -> io::Result<()> {
    let [name, a, b, difference] = ["", "before", "after", "difference"];
    writeln!(
        out,
        "{FAINT}{name:<22} {a:>16} {b:>16} {difference:>16}{FAINT:#}"
    )?;
    let sides = [comparison.before, comparison.after];
    let [before, after] = sides.map(|side| compare::counters(side, of));
    for ((name, key, before), (_, _, after)) in before.into_iter().zip(after) {
        let words = match key {
            SortKey::Calls | SortKey::Tiny | SortKey::Errors => ["fewer", "more"],
            _ => ["less", "more"],
        };
        let factor = factor(before, after, words);
        let line = format!(
            "{name:<22} {:>16} {:>16} {:>16}  {factor}",
            shown(key, before),
            shown(key, after),
            difference_of(key, before, after)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The change with its sign; nothing if there is none.
fn difference_of(key: SortKey, before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Less => format!("-{}", shown(key, before - after)),
        std::cmp::Ordering::Equal => String::new(),
        std::cmp::Ordering::Greater => format!("+{}", shown(key, after - before)),
    }
}

/// "263 times fewer", "4.5 % more"; `words` are those for less and for more.
fn factor(before: u64, after: u64, [less, more]: [&str; 2]) -> String {
    let (small, large) = (before.min(after) as f64, before.max(after) as f64);
    let word = if after < before { less } else { more };
    match large / small {
        _ if before == after => String::new(),
        _ if before == 0 => "none before".to_owned(),
        _ if after == 0 => "none after".to_owned(),
        ratio if ratio >= 10.0 => format!("{} times {word}", grouped(ratio.round() as u64)),
        ratio if ratio >= 2.0 => format!("{ratio:.1} times {word}"),
        _ => {
            let percent = (large - small) * 100.0 / before as f64;
            match percent {
                ..0.05 => format!("under 0.1 % {word}"),
                _ => format!("{percent:.1} % {word}"),
            }
        }
    }
}

/// The site, and what it calls if it is known by that.
fn called_by(known: &KnownSite<'_>) -> String {
    let name = site_name(known.site);
    match known.call() {
        Some(call) => format!(
            "{} by {FUNCTION}{name}{FUNCTION:#}",
            printable::escape(&call)
        ),
        None => format!("{FUNCTION}{name}{FUNCTION:#}"),
    }
}

/// Columns of a figure; what may be an estimate has its deviation, too.
fn width(of: Of) -> usize {
    match of {
        Of::Allocations | Of::SystemCalls => 15,
        Of::Copies | Of::ProcessorTime => 19,
    }
}

/// What of the sites is chance, if anything is.
fn print_chance(mut figures: impl Iterator<Item = Figure>, out: Out<'_>) -> io::Result<()> {
    if figures.any(|figure| figure.deviation().is_some()) {
        writeln!(
            out,
            "{FAINT}estimated from samples, ± one standard deviation; what lies within {CHANCE} is taken for \
             chance{FAINT:#}"
        )?;
    }
    Ok(())
}

fn print_changes(comparison: &Comparison<'_>, plan: &DiffPlan, out: Out<'_>) -> io::Result<()> {
    let counts: Vec<String> = Status::ALL
        .iter()
        .map(|status| (status, comparison.count(*status)))
        .filter(|(_, count)| *count > 0)
        .map(|(status, count)| format!("{} {}", grouped(count), status.name()))
        .collect();
    let [unit, ..] = names(plan.of, plan.sort);
    let counts = if counts.is_empty() {
        "none".to_owned()
    } else {
        counts.join(", ")
    };
    writeln!(
        out,
        "\n{HEADING}Sites by change of {unit}{HEADING:#} ({counts})"
    )?;
    let figures = comparison.changes.iter();
    print_chance(figures.flat_map(|change| change.figures(plan.sort)), out)?;
    let all = comparison.shown(plan.all).count();
    if all == 0 {
        return writeln!(out, "no site changed");
    }
    let ([what, a, b, difference], width) = (["", "before", "after", "difference"], width(plan.of));
    writeln!(
        out,
        "{FAINT}{what:<8} {a:>width$} {b:>width$} {difference:>16}  site{FAINT:#}"
    )?;
    for change in comparison.shown(plan.all).take(plan.top) {
        print_change(change, &comparison.keys, plan, out)?;
    }
    let more = all.saturating_sub(plan.top);
    if more > 0 {
        let sites = counted(more as u64, "more site");
        writeln!(out, "{FAINT}{sites}: --top 0 shows all{FAINT:#}")?;
    }
    Ok(())
}

fn print_change(
    change: &Change<'_>,
    keys: &[SortKey],
    plan: &DiffPlan,
    out: Out<'_>,
) -> io::Result<()> {
    let (key, width) = (plan.sort, width(plan.of));
    let Some(known) = change.after.or(change.before) else {
        return Ok(());
    };
    let [before, after] = change.figures(key);
    let difference = difference_of(key, before.value, after.value);
    let colour = if after.value < before.value {
        LESS
    } else {
        MORE
    };
    writeln!(
        out,
        "{:<8} {:>width$} {:>width$} {colour}{difference:>16}{colour:#}  {}  {}",
        change.status.name(),
        estimated(key, before),
        estimated(key, after),
        called_by(known),
        site_place(known.site),
    )?;
    if let (Some(was), Some(now), Some(how)) = (change.before, change.after, change.how) {
        let place = site_place(was.site);
        if how.is_guess() {
            let (why, name) = (how.describe(), site_name(was.site));
            writeln!(
                out,
                "{INDENT}{WARNING}a guess: {why}; was {name}  {place}{WARNING:#}"
            )?;
        } else if plan.of != Of::ProcessorTime && place != site_place(now.site) {
            writeln!(out, "{INDENT}{FAINT}was {place}{FAINT:#}")?;
        }
    }
    let others = keys.iter().filter(|other| **other != key);
    let others: Vec<String> = others
        .map(|other| (*other, change.figures(*other)))
        .filter(|(_, [before, after])| before.value != after.value)
        .map(|(other, figures)| {
            let [_, name, _] = names(plan.of, other);
            let [before, after] = figures.map(|figure| estimated(other, figure));
            format!("{name} {before} → {after}")
        })
        .collect();
    if !others.is_empty() {
        writeln!(out, "{INDENT}{FAINT}{}{FAINT:#}", others.join("; "))?;
    }
    print_callers(known, change.stack.as_ref(), plan, out)
}

const INDENT: &str = "        ";

/// The stack that changed most, with its own figures if the site has several; the heaviest if none
/// changed.
fn print_callers(
    known: &KnownSite<'_>,
    changed: Option<&StackChange<'_>>,
    plan: &DiffPlan,
    mut out: Out<'_>,
) -> io::Result<()> {
    let Some(StackChange {
        stack,
        key,
        before,
        after,
        of,
    }) = changed
    else {
        return match known.site.heaviest(plan.sort) {
            Some(stack) => print_stack_in_line(stack, &mut out),
            None => Ok(()),
        };
    };
    if *of > 1 {
        let [before, after] = [before, after].map(|value| shown(*key, *value));
        let ([unit, ..], of) = (names(plan.of, *key), grouped(*of as u64));
        writeln!(
            out,
            "{INDENT}{FAINT}of {of} stacks this changed most: {before} → {after} {unit}{FAINT:#}"
        )?;
    }
    print_stack_in_line(stack, &mut out)
}

pub fn print_growth(
    growth: &Growth<'_>,
    sides: &[Side<'_>],
    plan: &DiffPlan,
    out: Out<'_>,
) -> io::Result<()> {
    for (side, work) in sides.iter().zip(&growth.work) {
        print_side(side, &shortest(*work, 3), out)?;
    }
    for line in obstacles(sides.iter()) {
        writeln!(out, "{WARNING}warning: {line}{WARNING:#}")?;
    }
    match &growth.source {
        WorkSource::Given => {}
        WorkSource::Measured { quantity, chosen } => {
            let quantity = quantity.describe();
            let choice = if *chosen {
                ": --work names another measure"
            } else {
                ""
            };
            writeln!(out, "{FAINT}the work is the {quantity}{choice}{FAINT:#}")?;
        }
        WorkSource::Estimated(sites) => {
            let sites = match plan.of {
                Of::Allocations => counted(*sites as u64, "site"),
                _ => counted(*sites as u64, "allocating site"),
            };
            writeln!(
                out,
                "{WARNING}the work is estimated as the median growth of {sites}: give it with --work \
                 to be sure{WARNING:#}"
            )?;
        }
    }
    let [unit, ..] = names(plan.of, plan.sort);
    let superlinear = counted(growth.superlinear() as u64, "site");
    writeln!(
        out,
        "\n{HEADING}Growth of {unit} with the work{HEADING:#} ({superlinear} of {} superlinear)",
        grouped(growth.sites.len() as u64)
    )?;
    let figures = growth.sites.iter();
    print_chance(figures.flat_map(|site| site.values.iter().copied()), out)?;
    let shown: Vec<&SiteGrowth<'_>> = growth.shown(plan.all).collect();
    if shown.is_empty() {
        return writeln!(out, "no site grows faster than the work");
    }
    let (exponent, values) = ("exponent", "values");
    writeln!(out, "{FAINT}{exponent:>8}  {values:<30}  site{FAINT:#}")?;
    for site in shown.iter().take(plan.top) {
        print_site_growth(site, plan, out)?;
    }
    let more = shown.len().saturating_sub(plan.top);
    if more > 0 {
        let sites = counted(more as u64, "more site");
        writeln!(out, "{FAINT}{sites}: --top 0 shows all{FAINT:#}")?;
    }
    Ok(())
}

fn print_site_growth(growth: &SiteGrowth<'_>, plan: &DiffPlan, out: Out<'_>) -> io::Result<()> {
    let exponent = growth
        .exponent
        .map_or("-".to_owned(), |exponent| format!("{exponent:.2}"));
    let values = growth.values.iter();
    let values: Vec<String> = values.map(|y| estimated(plan.sort, *y)).collect();
    let verdict = if growth.superlinear {
        format!("  {MORE}superlinear{MORE:#}")
    } else {
        String::new()
    };
    writeln!(
        out,
        "{exponent:>8}  {:<30}  {}  {}{verdict}",
        values.join(" → "),
        called_by(growth.site),
        site_place(growth.site.site),
    )?;
    print_callers(growth.site, growth.stack.as_ref(), plan, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_percentages_when_small_and_times_when_large() {
        let fewer = |before, after| factor(before, after, ["fewer", "more"]);
        assert_eq!(fewer(33_961, 129), "263 times fewer");
        assert_eq!(fewer(115, 80), "30.4 % fewer");
        assert_eq!(fewer(80, 115), "43.8 % more");
        assert_eq!(fewer(100, 30), "3.3 times fewer");
        assert_eq!(fewer(100_000, 99_999), "under 0.1 % fewer");
        assert_eq!(fewer(0, 3), "none before");
        assert_eq!(fewer(3, 0), "none after");
        assert_eq!(fewer(3, 3), "");
        assert_eq!(factor(160_385, 153_247, ["less", "more"]), "4.5 % less");
    }

    #[test]
    fn differences_have_a_sign() {
        let difference = |before, after| difference_of(SortKey::Calls, before, after);
        assert_eq!(difference(5, 3), "-2");
        assert_eq!(difference(0, 1_000), "+1,000");
        assert_eq!(difference(1, 1), "");
    }
}
