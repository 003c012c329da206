//! The system calls as text. Every name that comes from outside goes through `naming`.

use std::io::{self, Write};

use larder_base::number::{counted, duration, grouped, percent, rounded};
use larder_base::order;
use larder_base::style::{FAINT, FUNCTION, HEADING};

use super::{Caller, Needless, Results, SystemCalls, TINY_BYTES, UNFILLED, error_name};
use crate::reading::excerpt;
use crate::reading::naming::{site_name, site_place};
use crate::reading::resolve::Resolver;

/// A function's errors, the most frequent ones.
const ERRORS_SHOWN: usize = 4;

impl Needless {
    pub fn title(self) -> String {
        match self {
            Needless::Tiny => format!("Callers of tiny ones, of 0 to {TINY_BYTES} bytes"),
            Needless::Failed => "Callers of failed ones".to_owned(),
            Needless::Futex => {
                "Callers of futex, which waits for another thread or wakes one".to_owned()
            }
            Needless::NothingReady => "Callers of waits with nothing ready".to_owned(),
            Needless::Unfilled => {
                format!("Callers of reads that fill less than 1/{UNFILLED} of their buffer")
            }
        }
    }
}

/// `seconds`: how long the trace is.
pub fn print(
    resolver: &Resolver,
    found: &SystemCalls,
    seconds: f64,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let functions = found.callers.kinds();
    if functions.is_empty() {
        return writeln!(
            out,
            "{HEADING}System calls: none{HEADING:#} (larder record --syscalls records them)"
        );
    }
    let calls: u64 = functions.iter().map(|(_, f)| f.calls).sum();
    let kinds = counted(functions.len() as u64, "function");
    let all = counted(calls, "call");
    writeln!(out, "{HEADING}System calls{HEADING:#} ({kinds}; {all})")?;
    let [share, count, rate, time] = ["share", "calls", "a second", "time within"];
    let [bytes, errors] = ["bytes", "errors"];
    writeln!(
        out,
        "{FAINT}{share:>7} {count:>12} {rate:>11} {time:>12} {bytes:>15} {errors:>10}  \
         function{FAINT:#}"
    )?;
    for (function, results) in &functions {
        writeln!(
            out,
            "{:>5.1} % {:>12} {:>11} {:>12} {:>15} {:>10}  {FUNCTION}{}{FUNCTION:#}{}",
            percent(results.calls, calls),
            grouped(results.calls),
            rate_of(results.calls, seconds),
            time_of(results),
            grouped(results.bytes),
            grouped(results.needless(Needless::Failed)),
            function.name(),
            errors_of(results),
        )?;
    }
    for (function, results) in &functions {
        let unit = match (function.call.counts_bytes(), function.call.waits()) {
            (true, _) => "bytes",
            (false, true) => "descriptors",
            // All the same: no failure, and nothing that could be small or large.
            (false, false) => continue,
        };
        let title = format!("{} by {unit}", function.name());
        results.results.print(&title, out)?;
    }
    for kind in Needless::ALL {
        print_callers(resolver, found, kind, top, out)?;
    }
    Ok(())
}

/// Traces before version 2.3 have no times.
pub fn time_of(results: &Results) -> String {
    match results.ns {
        0.0 => "?".to_owned(),
        ns => duration(ns as u64),
    }
}

fn rate_of(calls: u64, seconds: f64) -> String {
    if seconds > 0.0 {
        rounded(calls as f64 / seconds)
    } else {
        "?".to_owned()
    }
}

/// The most frequent errors, in a bracket, or nothing.
fn errors_of(results: &Results) -> String {
    let mut errors: Vec<_> = results.errors.iter().collect();
    order::sort_by_key(&mut errors, |(_, calls)| std::cmp::Reverse(**calls));
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

fn print_callers(
    resolver: &Resolver,
    found: &SystemCalls,
    kind: Needless,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let callers = found.ranked(kind);
    let all: u64 = callers.iter().map(|c| c.sum.needless(kind)).sum();
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
    let [share, calls, of, time] = ["share", "calls", "of its", "their time"];
    writeln!(
        out,
        "{FAINT}{share:>7} {calls:>13} {of:>13} {time:>12}  caller{FAINT:#}"
    )?;
    for (place, caller) in callers.into_iter().take(top).enumerate() {
        print_caller(found, caller, kind, all, out)?;
        let site = found.callers.site(caller);
        excerpt::print_heaviest(resolver, place, site, out)?;
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
    let (site, results) = (found.callers.site(caller), &caller.sum);
    let calls = results.needless(kind);
    let errors = match kind {
        Needless::Failed => errors_of(results),
        _ => String::new(),
    };
    writeln!(
        out,
        "{:>5.1} % {:>13} {:>13} {:>12}  {} by {FUNCTION}{}{FUNCTION:#}  {}{errors}",
        percent(calls, all),
        grouped(calls),
        grouped(results.calls),
        time_of(results),
        caller.kind.name(),
        site_name(site),
        site_place(site),
    )
}
