//! The page's data, as JSON. All names are escaped for terminals too; the page shows them as text.

use std::collections::HashMap;

use larder_base::number::percent;
use larder_base::printable;
use serde_json::{Value, json};

use super::gathered::Gathered;
use super::{Found, called, tree};
use crate::advise::FindingText;
use crate::reading::Analysis;
use crate::reading::attribute::functions;
use crate::reading::family::Counters;
use crate::reading::losses;
use crate::reading::naming::{frame_name, frame_place, site_name, site_place, without_start};
use crate::reading::observe::Both;
use crate::reading::resolve::{ChainFrame, ModuleProblem};
use crate::reading::sites::{Site, SiteStack, SortKey};
use crate::symbols::SymbolProblem;

/// Frames of a stack beyond this, from the innermost, are not shown.
const FRAMES_SHOWN: usize = 64;
/// Characters of a name beyond this are not shown.
const NAME_CHARS: usize = 300;

/// Distinct names, each once in the page.
#[derive(Default)]
pub struct Names {
    texts: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Names {
    pub fn of(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let mut text: String = name.chars().take(NAME_CHARS).collect();
        if text.len() < name.len() {
            text.push('…');
        }
        self.texts.push(text);
        self.numbers.insert(name.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }

    pub fn text(&self, number: usize) -> &str {
        self.texts.get(number).map_or("", |text| text)
    }
}

/// The whole document; rows below `share` of every figure are folded into one.
pub fn document(
    analysis: &Analysis,
    found: &Found,
    trace: &str,
    findings: &[FindingText],
    share: f64,
) -> Value {
    let mut names = Names::default();
    let counters = &analysis.counters;
    let ranked = analysis.sites.ranked(SortKey::Calls);
    let (shown, folded): (Vec<&Site>, Vec<&Site>) = ranked
        .into_iter()
        .partition(|site| weighs(site, counters, share));
    let sites: Vec<Value> = shown.iter().map(|s| site(s, &mut names)).collect();
    let Both(gathered, called) = found;
    let others = called::measures(called);
    let nodes = tree::nodes(&gathered.stacks.rows, &others, share, &mut names);
    let timed = others
        .iter()
        .map(|(title, _, key)| (*title, *key == SortKey::Time));
    let measures = tree::MEASURES.map(|title| (title, false)).into_iter();
    let tables = called::tables(called, &mut names);
    let findings = findings
        .iter()
        .map(|f| json!({"title": f.title, "source": f.source, "lines": f.lines}));
    json!({
        "trace": trace,
        "version": env!("CARGO_PKG_VERSION"),
        "share": share * 100.0,
        "processes": analysis.images.iter().map(process).collect::<Vec<_>>(),
        "losses": losses::details(analysis),
        "wrappers": analysis.wrappers.describe(),
        "symbols": analysis.resolver.problems().iter().filter_map(problem).collect::<Vec<_>>(),
        "counters": counter_rows(counters),
        "findings": findings.collect::<Vec<_>>(),
        "sites": sites,
        "folded": folded_row(&folded),
        "tables": tables,
        "measures": measures.chain(timed).collect::<Vec<_>>(),
        "tree": nodes,
        "sizes": sizes(gathered),
        "names": names.texts,
    })
}

/// Whether a site has this share of any figure.
fn weighs(site: &Site, counters: &Counters, share: f64) -> bool {
    SortKey::OF_ALLOCATIONS.iter().any(|key| {
        let weight = site.weight(*key);
        weight > 0 && percent(weight, counters.of(*key)) >= share * 100.0
    })
}

/// Calls, bytes, at the peak, tiny, live.
fn figures(site: &Site) -> [u64; 5] {
    SortKey::OF_ALLOCATIONS.map(|key| site.weight(key))
}

fn site(site: &Site, names: &mut Names) -> Value {
    let mut stacks: Vec<Value> = Vec::new();
    for key in SortKey::OF_ALLOCATIONS {
        if let Some(found) = site.heaviest(key) {
            let found = stack(found, names);
            if !stacks.contains(&found) {
                stacks.push(found);
            }
        }
    }
    let kinds: Vec<String> = site.kinds.keys().map(|kind| (*kind).to_owned()).collect();
    json!({
        "name": names.of(&site_name(site)),
        "place": names.of(&site_place(site)),
        "module": names.of(site.module.as_ref().map_or("", |module| &module.name)),
        "kinds": kinds.join(", "),
        "figures": figures(site),
        "stacks": stacks,
    })
}

/// `{at, frames: [name, place, inlined]…}`, innermost first; `at` is the site's frame.
pub fn stack(stack: &SiteStack, names: &mut Names) -> Value {
    let frames: Vec<&ChainFrame> = functions(&stack.chain).collect();
    let frames = without_start(&frames);
    let shown = frames.iter().take(FRAMES_SHOWN).map(|frame| {
        let inlined = u8::from(frame.source.inlined);
        json!([
            names.of(&frame_name(frame)),
            names.of(&frame_place(frame)),
            inlined
        ])
    });
    let shown: Vec<Value> = shown.collect();
    json!({
        "at": stack.site,
        "more": frames.len() - shown.len(),
        "frames": shown,
    })
}

fn folded_row(folded: &[&Site]) -> Value {
    let mut sums = [0u64; 5];
    for site in folded {
        for (sum, figure) in sums.iter_mut().zip(figures(site)) {
            *sum = sum.saturating_add(figure);
        }
    }
    json!({ "count": folded.len(), "figures": sums })
}

fn counter_rows(counters: &Counters) -> Value {
    json!([
        ["Mallocs", counters.mallocs],
        ["Reallocs", counters.reallocs],
        ["Callocs", counters.callocs],
        ["Strdups", counters.strdups],
        ["Wcsdups", counters.wcsdups],
        ["Frees", counters.frees],
        ["Allocations", counters.allocations],
        ["Under 32 bytes", counters.tiny],
        ["Failed", counters.failed],
        ["Blocks live at the end", counters.live_blocks],
        ["Bytes live at the end", counters.live_bytes],
        ["Maximum allocated", counters.peak_bytes],
        ["Total allocated", counters.total_bytes],
    ])
}

fn process(image: &crate::reading::image::ImageReport) -> Value {
    let words = image.process.argv.iter();
    let words: Vec<String> = words.map(|word| printable::escape_bytes(word)).collect();
    let command = match words.is_empty() {
        true => printable::escape_bytes(&image.process.executable),
        false => words.join(" "),
    };
    let counters = &image.counters;
    json!({
        "pid": image.process.pid,
        "command": command.chars().take(4 * NAME_CHARS).collect::<String>(),
        "duration_ns": image.duration_ns,
        "threads": image.threads,
        "events": image.events,
        "figures": [counters.allocations, counters.total_bytes, counters.peak_bytes],
    })
}

fn problem(found: &ModuleProblem) -> Option<String> {
    let why = match found.problem {
        SymbolProblem::NoDebugInfo => "no debug information, so no source lines",
        SymbolProblem::NoFile => "not found, so its functions have no names",
        SymbolProblem::OtherBuild { .. } => {
            "replaced since the recording, so its symbols are not used"
        }
    };
    Some(format!("{}: {why}", found.path))
}

/// `[least, most, calls, bytes]`, from the smallest class with calls to the largest.
fn sizes(gathered: &Gathered) -> Vec<Value> {
    let used = |class: &super::gathered::SizeClass| class.calls > 0;
    let first = gathered.sizes.iter().position(used).unwrap_or(0);
    let last = gathered.sizes.iter().rposition(used).unwrap_or(0);
    let classes = gathered.sizes.iter().enumerate();
    let classes = classes.filter(|(digits, _)| (first..=last).contains(digits));
    classes
        .map(|(digits, class)| {
            let least = if digits == 0 { 0 } else { 1u64 << (digits - 1) };
            let most = least.saturating_mul(2).saturating_sub(1).max(least);
            json!([
                least.to_string(),
                most.to_string(),
                class.calls,
                class.bytes
            ])
        })
        .collect()
}
