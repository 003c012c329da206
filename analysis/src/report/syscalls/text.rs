//! The system calls as text. Every name that comes from outside goes through `naming`.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use larder_base::number::{counted, grouped, percent, rounded};

use super::{Caller, Function, Needless, SystemCalls, TINY_BYTES, error_name};
use crate::reading::naming::{self, site_name, site_place};

const HEADING: Style = Style::new().bold();
const FUNCTION: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();

/// Columns of the longest bar of a histogram.
const BAR: u64 = 40;
/// A function's errors, the most frequent ones.
const ERRORS_SHOWN: usize = 4;

impl Needless {
    fn title(self) -> String {
        match self {
            Needless::Tiny => format!("Callers of tiny ones, of 0 to {TINY_BYTES} bytes"),
            Needless::Failed => "Callers of failed ones".to_owned(),
            Needless::NothingReady => "Callers of waits with nothing ready".to_owned(),
        }
    }
}

/// `seconds`: how long the trace is.
pub fn print(found: &SystemCalls, seconds: f64, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let functions = found.functions();
    if functions.is_empty() {
        return writeln!(
            out,
            "{HEADING}System calls: none{HEADING:#} (larder record --syscalls records them)"
        );
    }
    let calls: u64 = functions.iter().map(|(_, f)| f.results.calls).sum();
    let kinds = counted(functions.len() as u64, "function");
    let all = counted(calls, "call");
    writeln!(out, "{HEADING}System calls{HEADING:#} ({kinds}; {all})")?;
    let [share, count, rate, bytes, errors] = ["share", "calls", "a second", "bytes", "errors"];
    writeln!(
        out,
        "{FAINT}{share:>7} {count:>13} {rate:>12} {bytes:>16} {errors:>11}  function{FAINT:#}"
    )?;
    for (call, function) in &functions {
        let results = &function.results;
        writeln!(
            out,
            "{:>5.1} % {:>13} {:>12} {:>16} {:>11}  {FUNCTION}{}{FUNCTION:#}{}",
            percent(results.calls, calls),
            grouped(results.calls),
            rate_of(results.calls, seconds),
            grouped(results.bytes),
            grouped(results.needless(Needless::Failed)),
            call.name(),
            errors_of(function),
        )?;
    }
    for (call, function) in &functions {
        let unit = match (call.counts_bytes(), call.waits()) {
            (true, _) => "bytes",
            (false, true) => "descriptors",
            (false, false) => "results",
        };
        print_histogram(call.name(), unit, function, out)?;
    }
    for kind in Needless::ALL {
        print_callers(found, kind, top, out)?;
    }
    Ok(())
}

fn rate_of(calls: u64, seconds: f64) -> String {
    if seconds > 0.0 {
        rounded(calls as f64 / seconds)
    } else {
        "?".to_owned()
    }
}

/// The most frequent errors, in a bracket, or nothing.
fn errors_of(function: &Function) -> String {
    let mut errors: Vec<_> = function.errors.iter().collect();
    errors.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
    let shown = errors.iter().take(ERRORS_SHOWN);
    let mut names: Vec<String> = shown
        .map(|(error, calls)| format!("{} {}", error_name(**error), grouped(**calls)))
        .collect();
    if errors.len() > ERRORS_SHOWN {
        names.push(format!("{} more", errors.len() - ERRORS_SHOWN));
    }
    match names.is_empty() {
        true => String::new(),
        false => format!("  ({})", names.join(", ")),
    }
}

fn print_histogram(
    name: &str,
    unit: &str,
    function: &Function,
    out: &mut dyn Write,
) -> io::Result<()> {
    let most = function.results.histogram().map(|(.., calls)| calls).max();
    let Some(most) = most else {
        return Ok(());
    };
    writeln!(out, "\n{HEADING}{name} by {unit}{HEADING:#}")?;
    for (least, largest, calls) in function.results.histogram() {
        let range = match least == largest {
            true => grouped(least),
            false => format!("{}–{}", grouped(least), grouped(largest)),
        };
        let bar = "▇".repeat((calls * BAR).div_ceil(most) as usize);
        writeln!(
            out,
            "{range:>25} {:>13}  {FAINT}{bar}{FAINT:#}",
            grouped(calls)
        )?;
    }
    Ok(())
}

fn print_callers(
    found: &SystemCalls,
    kind: Needless,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let callers = found.callers(kind);
    let all: u64 = callers
        .iter()
        .map(|c| c.function.results.needless(kind))
        .sum();
    if all == 0 {
        return Ok(());
    }
    let sites = counted(callers.len() as u64, "caller");
    let scope = match callers.len() > top {
        true => format!("{top} of {sites}"),
        false => sites,
    };
    let (title, all_calls) = (kind.title(), counted(all, "call"));
    writeln!(out, "\n{HEADING}{title}{HEADING:#} ({scope}; {all_calls})")?;
    let [share, calls, of] = ["share", "calls", "of its"];
    writeln!(
        out,
        "{FAINT}{share:>7} {calls:>13} {of:>13}  caller{FAINT:#}"
    )?;
    for caller in callers.into_iter().take(top) {
        print_caller(found, caller, kind, all, out)?;
    }
    Ok(())
}

fn print_caller(
    found: &SystemCalls,
    caller: &Caller,
    kind: Needless,
    all: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (site, results) = (found.site(caller), &caller.function.results);
    let calls = results.needless(kind);
    let errors = match kind {
        Needless::Failed => errors_of(&caller.function),
        _ => String::new(),
    };
    writeln!(
        out,
        "{:>5.1} % {:>13} {:>13}  {} by {FUNCTION}{}{FUNCTION:#}  {}{errors}",
        percent(calls, all),
        grouped(calls),
        grouped(results.calls),
        caller.call.name(),
        site_name(site),
        site_place(site),
    )?;
    naming::print_stack_in_line(caller.stack(), out)
}
