//! The copies as text. Every name that comes from outside goes through `naming`.

use std::io::{self, Write};

use larder_base::number::{bytes, counted, grouped, percent, percent_of};
use larder_base::style::{FAINT, FUNCTION, HEADING};

use super::{Copied, Copies, Key, Unseen};
use crate::reading::excerpt;
use crate::reading::naming::{site_name, site_place};
use crate::reading::resolve::Resolver;
use crate::report::callers::Sum as _;

impl Key {
    fn title(self) -> &'static str {
        match self {
            Key::Bytes => "Callers by bytes",
            Key::Calls => "Callers by calls",
        }
    }
}

pub fn print(
    resolver: &Resolver,
    found: &Copies,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let functions = found.functions();
    if functions.is_empty() {
        return writeln!(
            out,
            "{HEADING}Copies: none{HEADING:#} (larder record --copies records them)"
        );
    }
    let mut all = Copied::default();
    for (_, copied) in &functions {
        all.merge(copied);
    }
    let kinds = counted(functions.len() as u64, "function");
    let calls = counted(whole(all.calls), "call");
    let size = bytes(whole(all.bytes));
    writeln!(out, "{HEADING}Copies{HEADING:#} ({kinds}; {calls}; {size})")?;
    if found.rate > 0 {
        let rate = bytes(found.rate);
        writeln!(
            out,
            "{FAINT}Estimated from samples, one in {rate} on average.{FAINT:#}"
        )?;
    }
    writeln!(out, "{FAINT}{}{FAINT:#}", not_seen(&found.unseen))?;
    heading("function", out)?;
    for (call, copied) in &functions {
        figures(copied, &all, Key::Bytes, out)?;
        writeln!(out, "  {FUNCTION}{}{FUNCTION:#}", call.name())?;
    }
    for (call, copied) in &functions {
        copied
            .sizes
            .print(&format!("{} by bytes", call.name()), out)?;
    }
    for key in Key::ALL {
        print_callers(resolver, found, key, &all, top, out)?;
    }
    Ok(())
}

fn not_seen(unseen: &Unseen) -> String {
    let not_seen = "Not seen: what the compiler inlined, and what libc copies by itself";
    match unseen.all.samples {
        0 => format!("{not_seen}."),
        _ => {
            let share = percent(unseen.by_libc.ns, unseen.all.ns);
            format!("{not_seen}, the latter {share:.1} % of the processor time.")
        }
    }
}

fn whole(estimate: f64) -> u64 {
    estimate.round() as u64
}

fn heading(last: &str, out: &mut dyn Write) -> io::Result<()> {
    let [share, sum, calls, mean] = ["share", "bytes", "calls", "a call"];
    writeln!(
        out,
        "{FAINT}{share:>7} {sum:>16} {calls:>13} {mean:>10}  {last}{FAINT:#}"
    )
}

fn figures(copied: &Copied, all: &Copied, key: Key, out: &mut dyn Write) -> io::Result<()> {
    let share = percent_of(key.of(copied), key.of(all));
    write!(
        out,
        "{share:>5.1} % {:>16} {:>13} {:>10}",
        grouped(whole(copied.bytes)),
        grouped(whole(copied.calls)),
        bytes(whole(copied.bytes / copied.calls.max(1.0))),
    )
}

fn print_callers(
    resolver: &Resolver,
    found: &Copies,
    key: Key,
    all: &Copied,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let callers = found.ranked(key);
    let sites = counted(callers.len() as u64, "caller");
    let scope = match callers.len() > top {
        true => format!("{top} of {sites}"),
        false => sites,
    };
    writeln!(out, "\n{HEADING}{}{HEADING:#} ({scope})", key.title())?;
    heading("caller", out)?;
    for (place, caller) in callers.into_iter().take(top).enumerate() {
        let site = found.callers.site(caller);
        figures(&caller.sum, all, key, out)?;
        writeln!(
            out,
            "  {} by {FUNCTION}{}{FUNCTION:#}  {}",
            caller.kind.name(),
            site_name(site),
            site_place(site),
        )?;
        excerpt::print_heaviest(resolver, place, site, out)?;
    }
    Ok(())
}
