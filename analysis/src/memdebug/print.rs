//! The table by source line, and the JSON object.

use std::cmp::Reverse;
use std::io::{self, Write};

use larder_base::number::grouped;
use larder_base::order;
use larder_base::printable;
use larder_memdebug::analyser::Site;
use larder_memdebug::{Line, Style};
use serde_json::{Map, Value, json};

use super::Read;
use super::args::{MemdebugPlan, SiteKey};

/// The allocating source lines, sorted by the plan's key.
fn ranked<'a>(sites: &'a [Site], plan: &MemdebugPlan) -> Vec<&'a Site> {
    let mut ranked: Vec<&Site> = sites.iter().filter(|site| site.calls > 0).collect();
    let key = |site: &Site| match plan.sort {
        SiteKey::Calls => site.calls,
        SiteKey::Bytes => site.bytes,
        SiteKey::Peak => site.peak,
        SiteKey::Largest => site.largest,
    };
    order::sort_by(&mut ranked, |a, b| {
        (Reverse(key(a)), &a.place).cmp(&(Reverse(key(b)), &b.place))
    });
    ranked
}

pub fn sites(sites: &[Site], plan: &MemdebugPlan, out: &mut dyn Write) -> io::Result<()> {
    let ranked = ranked(sites, plan);
    writeln!(
        out,
        "\n{:>12} {:>16} {:>14} {:>12} {:>12}  source line",
        "calls", "bytes", "at the peak", "smallest", "largest"
    )?;
    for site in ranked.iter().take(plan.top) {
        writeln!(
            out,
            "{:>12} {:>16} {:>14} {:>12} {:>12}  {}",
            grouped(site.calls),
            grouped(site.bytes),
            grouped(site.peak),
            grouped(site.smallest),
            grouped(site.largest),
            printable::escape_bytes(&site.place)
        )?;
    }
    let left = ranked.len().saturating_sub(plan.top);
    if left > 0 {
        writeln!(out, "{:>12} more: --top 0 shows all", grouped(left as u64))?;
    }
    Ok(())
}

pub fn document(read: &Read, messages: Vec<String>, plan: &MemdebugPlan) -> Value {
    let analyser = &read.analyser;
    let counters = analyser.counters.list(Style::Current).into_iter();
    let counters: Map<String, Value> = counters
        .map(|(name, value)| (name.to_lowercase().replace(' ', "_"), value.into()))
        .collect();
    let sites: Vec<Value> = ranked(analyser.sites(), plan)
        .into_iter()
        .take(plan.top)
        .map(site)
        .collect();
    json!({
        "larder": env!("CARGO_PKG_VERSION"),
        "log": printable::name(&plan.log),
        "counters": counters,
        "leaked_bytes": analyser.live(),
        "message_count": read.messages,
        "messages": messages,
        "cut_at": read.damage.cut_at,
        "long_lines": read.damage.long_lines,
        "sites": sites,
    })
}

fn site(site: &Site) -> Value {
    let (path, line) = Line::split_place(&site.place);
    json!({
        "file": printable::escape_bytes(path),
        "line": line,
        "calls": site.calls,
        "bytes": site.bytes,
        "peak_bytes": site.peak,
        "live_bytes": site.live,
        "smallest": site.smallest,
        "largest": site.largest,
    })
}
