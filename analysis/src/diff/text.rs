//! The comparison as text. `naming` escapes names from outside, or the code that read them did.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use larder_base::number::{counted, grouped, shortest};
use larder_base::printable;
use larder_base::style::{FAINT, FUNCTION, HEADING, WARNING};

use super::compare::{self, Change, Comparison, Status};
use super::growth::{Growth, SiteGrowth, WorkSource};
use super::obstacles::obstacles;
use super::side::Side;
use super::stacks::StackChange;
use super::{DiffPlan, side};
use crate::reading::family::Counter;
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
    print_counters(comparison, out)?;
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

fn print_counters(comparison: &Comparison<'_>, out: Out<'_>) -> io::Result<()> {
    let [before, after] = [comparison.before, comparison.after].map(|side| &side.analysis.counters);
    let [name, a, b, difference] = ["", "before", "after", "difference"];
    writeln!(
        out,
        "{FAINT}{name:<22} {a:>16} {b:>16} {difference:>16}{FAINT:#}"
    )?;
    let (before, before_bytes) = compare::counters(before);
    let (after, after_bytes) = compare::counters(after);
    for (before, after) in before.into_iter().zip(after) {
        print_counter(before, after, ["fewer", "more"], out)?;
    }
    for (before, after) in before_bytes.into_iter().zip(after_bytes) {
        print_counter(before, after, ["less", "more"], out)?;
    }
    Ok(())
}

fn print_counter(
    (name, before): Counter,
    (_, after): Counter,
    words: [&str; 2],
    out: Out<'_>,
) -> io::Result<()> {
    let factor = factor(before, after, words);
    let line = format!(
        "{name:<22} {:>16} {:>16} {:>16}  {factor}",
        grouped(before),
        grouped(after),
        difference(before, after)
    );
    writeln!(out, "{}", line.trim_end())
}

/// The change with its sign; nothing if there is none.
fn difference(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Less => format!("-{}", grouped(before - after)),
        std::cmp::Ordering::Equal => String::new(),
        std::cmp::Ordering::Greater => format!("+{}", grouped(after - before)),
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

fn unit(key: SortKey) -> &'static str {
    match key {
        SortKey::Calls => "calls",
        SortKey::Bytes => "bytes requested",
        SortKey::Peak => "bytes live at the peak",
        SortKey::Tiny => "blocks under 32 bytes",
        SortKey::Live => "bytes live at the end",
    }
}

fn short(key: SortKey) -> &'static str {
    match key {
        SortKey::Calls => "calls",
        SortKey::Bytes => "bytes",
        SortKey::Peak => "at peak",
        SortKey::Tiny => "tiny",
        SortKey::Live => "live",
    }
}

fn print_changes(comparison: &Comparison<'_>, plan: &DiffPlan, out: Out<'_>) -> io::Result<()> {
    let counts: Vec<String> = Status::ALL
        .iter()
        .map(|status| (status, comparison.count(*status)))
        .filter(|(_, count)| *count > 0)
        .map(|(status, count)| format!("{} {}", grouped(count), status.name()))
        .collect();
    let unit = unit(plan.sort);
    let counts = if counts.is_empty() {
        "none".to_owned()
    } else {
        counts.join(", ")
    };
    writeln!(
        out,
        "\n{HEADING}Sites by change of {unit}{HEADING:#} ({counts})"
    )?;
    let all = comparison.shown(plan.all).count();
    if all == 0 {
        return writeln!(out, "no site changed");
    }
    let [what, a, b, difference] = ["", "before", "after", "difference"];
    writeln!(
        out,
        "{FAINT}{what:<8} {a:>15} {b:>15} {difference:>16}  site{FAINT:#}"
    )?;
    for change in comparison.shown(plan.all).take(plan.top) {
        print_change(change, &comparison.keys, plan.sort, out)?;
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
    key: SortKey,
    out: Out<'_>,
) -> io::Result<()> {
    let Some(known) = change.after.or(change.before) else {
        return Ok(());
    };
    let (before, after) = change.figures(key);
    let colour = if after < before { LESS } else { MORE };
    writeln!(
        out,
        "{:<8} {:>15} {:>15} {colour}{:>16}{colour:#}  {FUNCTION}{}{FUNCTION:#}  {}",
        change.status.name(),
        grouped(before),
        grouped(after),
        difference(before, after),
        site_name(known.site),
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
        } else if place != site_place(now.site) {
            writeln!(out, "{INDENT}{FAINT}was {place}{FAINT:#}")?;
        }
    }
    let others = keys.iter().filter(|other| **other != key);
    let others: Vec<String> = others
        .map(|other| (short(*other), change.figures(*other)))
        .filter(|(_, (before, after))| before != after)
        .map(|(name, (before, after))| format!("{name} {} → {}", grouped(before), grouped(after)))
        .collect();
    if !others.is_empty() {
        writeln!(out, "{INDENT}{FAINT}{}{FAINT:#}", others.join("; "))?;
    }
    print_callers(known, change.stack.as_ref(), key, out)
}

const INDENT: &str = "        ";

/// The stack that changed most, with its own figures if the site has several; the heaviest if none
/// changed.
fn print_callers(
    known: &side::KnownSite<'_>,
    changed: Option<&StackChange<'_>>,
    key: SortKey,
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
        return match known.site.heaviest(key) {
            Some(stack) => print_stack_in_line(stack, &mut out),
            None => Ok(()),
        };
    };
    if *of > 1 {
        let (before, after, of) = (grouped(*before), grouped(*after), grouped(*of as u64));
        let unit = unit(*key);
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
            let sites = counted(*sites as u64, "site");
            writeln!(
                out,
                "{WARNING}the work is estimated as the median growth of {sites}: give it with --work \
                 to be sure{WARNING:#}"
            )?;
        }
    }
    let unit = unit(growth.key);
    let superlinear = counted(growth.superlinear() as u64, "site");
    writeln!(
        out,
        "\n{HEADING}Growth of {unit} with the work{HEADING:#} ({superlinear} of {} superlinear)",
        grouped(growth.sites.len() as u64)
    )?;
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
    let values: Vec<String> = growth.values.iter().map(|value| grouped(*value)).collect();
    let verdict = if growth.superlinear {
        format!("  {MORE}superlinear{MORE:#}")
    } else {
        String::new()
    };
    writeln!(
        out,
        "{exponent:>8}  {:<30}  {FUNCTION}{}{FUNCTION:#}  {}{verdict}",
        values.join(" → "),
        site_name(growth.site.site),
        site_place(growth.site.site),
    )?;
    print_callers(growth.site, growth.stack.as_ref(), plan.sort, out)
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
        assert_eq!(difference(5, 3), "-2");
        assert_eq!(difference(0, 1_000), "+1,000");
        assert_eq!(difference(1, 1), "");
    }
}
