//! The page's data, as JSON. All names are escaped for terminals too; the page shows them as text.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use larder_base::number::percent;
use larder_base::printable;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::called::{self, Table};
use super::gathered::Gathered;
use super::tree::{self, Kept, Shown, Tree};
use crate::advise::FindingText;
use crate::reading::Analysis;
use crate::reading::excerpt::Excerpt;
use crate::reading::family::Counters;
use crate::reading::losses;
use crate::reading::resolve::ModuleProblem;
use crate::reading::sites::{Site, SiteId, SortKey};
use crate::reading::timeline::Timeline;
use crate::symbols::SymbolProblem;

/// Characters of a name beyond this are not shown.
const NAME_CHARS: usize = 300;
/// A site with this share of any figure is shown with its source.
const SHARE_WITH_SOURCE: f64 = 0.01;

/// Distinct names, each once in the page.
#[derive(Default)]
pub struct Names {
    pub texts: Vec<String>,
    numbers: HashMap<String, usize, RandomState>,
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

/// A site that may be shown.
struct ShownSite {
    id: SiteId,
    /// Of the tree's frames.
    frame: Option<usize>,
    /// The nodes of its heaviest stacks.
    nodes: Vec<usize>,
}

/// What a page is made of.
pub struct Page<'a> {
    analysis: &'a Analysis,
    gathered: &'a Gathered,
    trace: &'a str,
    findings: Vec<(&'a FindingText, SiteId)>,
    /// The sites of the timeline.
    timed: Vec<SiteId>,
    sites: Vec<ShownSite>,
    tables: Vec<Table>,
    tree: Tree<'a>,
}

impl<'a> Page<'a> {
    /// Without sites that have less than `share` of every figure.
    pub fn new(
        analysis: &'a mut Analysis,
        gathered: &'a Gathered,
        trace: &'a str,
        findings: &'a [FindingText],
        share: f64,
    ) -> Self {
        let table = &mut analysis.sites;
        let mut tree = Tree::new(gathered, table);
        called::measure(&gathered.called, &mut tree);
        let tables = called::tables(&gathered.called, &mut tree);
        let findings = findings.iter().map(|f| (f, table.intern(&f.site)));
        let findings: Vec<(&FindingText, SiteId)> = findings.collect();
        let timed = gathered.timed().map(|row| tree.site_of(row)).collect();
        let mut page = Self {
            analysis,
            gathered,
            trace,
            findings,
            timed,
            sites: Vec::new(),
            tables,
            tree,
        };
        page.sites = page.shown_sites(share);
        page
    }

    fn is_shown(&self, id: SiteId, share: f64) -> bool {
        let site = self.analysis.sites.get(id);
        let mut found = self.findings.iter().map(|(_, site)| site);
        site.sums.calls > 0
            && (weighs(site, &self.analysis.counters, share)
                || self.timed.contains(&id)
                || found.any(|site| *site == id))
    }

    fn shown_sites(&mut self, share: f64) -> Vec<ShownSite> {
        let sites = &self.analysis.sites;
        let shown = sites.ids().filter(|id| self.is_shown(*id, share));
        let shown: Vec<SiteId> = shown.collect();
        let found = shown.into_iter().map(|id| {
            let keys = SortKey::OF_ALLOCATIONS.into_iter();
            let stacks = keys.filter_map(|key| sites.get(id).heaviest(key));
            let mut nodes: Vec<usize> = Vec::new();
            for node in stacks.map(|stack| self.tree.add(stack)) {
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
            let frame = sites.get(id).heaviest(SortKey::Calls);
            let frame = frame.and_then(|stack| self.tree.frame_of(stack));
            ShownSite { id, frame, nodes }
        });
        found.collect()
    }

    /// The data; sites and nodes below `share` of every figure are left out.
    pub fn data(&self, share: f64) -> Value {
        let analysis = self.analysis;
        let sites = self.sites.iter();
        let sites: Vec<&ShownSite> = sites.filter(|site| self.is_shown(site.id, share)).collect();
        let numbered = sites.iter().enumerate();
        let numbers: FxHashMap<SiteId, usize> = numbered.map(|(n, site)| (site.id, n)).collect();
        let number = |id| numbers.get(&id).copied();
        let wanted = sites.iter().flat_map(|site| &site.nodes).copied();
        let wanted = wanted.chain(self.tables.iter().flat_map(Table::nodes));
        let kept = self.tree.kept(share, wanted);
        let mut shown = Shown::default();
        let nodes = kept.nodes(&mut shown);
        let found = sites
            .iter()
            .map(|found| self.site(found, &kept, &mut shown));
        let found: Vec<Value> = found.collect();
        let tables = self
            .tables
            .iter()
            .map(|table| table.json(&kept, &mut shown));
        let tables: Vec<Value> = tables.collect();
        let findings = self.findings.iter().map(|(f, site)| {
            json!({"title": f.title, "site": number(*site), "source": f.source, "lines": f.lines})
        });
        let timeline = self.gathered.drawn();
        let all = analysis.sites.ids();
        let all = all.filter(|id| analysis.sites.get(*id).sums.calls > 0);
        let problems = analysis.resolver.problems();
        json!({
            "trace": self.trace,
            "version": env!("CARGO_PKG_VERSION"),
            "share": share * 100.0,
            "processes": analysis.images.iter().map(process).collect::<Vec<_>>(),
            "losses": losses::details(analysis),
            "wrappers": analysis.wrappers.describe(),
            "symbols": problems.iter().map(problem).collect::<Vec<_>>(),
            "counters": counter_rows(&analysis.counters),
            "findings": findings.collect::<Vec<_>>(),
            "sites": found,
            "folded": all.count() - sites.len(),
            "tables": tables,
            "measures": tree::MEASURES,
            "nodes": nodes,
            "rows": kept.rows(number),
            "others": kept.others(),
            "timeline": timeline.map(|drawn| timeline_of(drawn, &self.timed, number)),
            "threads": threads(self.gathered),
            "sizes": sizes(self.gathered),
            "frames": shown.frames(),
            "names": shown.names.texts,
        })
    }

    fn site(&self, found: &ShownSite, kept: &Kept<'_>, shown: &mut Shown) -> Value {
        let site = self.analysis.sites.get(found.id);
        let kinds: Vec<&str> = site.kinds.keys().copied().collect();
        let excerpt = weighs(site, &self.analysis.counters, SHARE_WITH_SOURCE)
            .then(|| site.heaviest(SortKey::Calls))
            .flatten()
            .and_then(|stack| Excerpt::of(&self.analysis.resolver, stack));
        let source = excerpt.iter().flat_map(Excerpt::rows);
        json!({
            "frame": found.frame.map(|frame| kept.frame(frame, shown)),
            "kinds": kinds.join(", "),
            "nodes": found.nodes.iter().map(|node| kept.node(*node)).collect::<Vec<_>>(),
            "source": source.map(|(gutter, text)| format!("{gutter} {text}")).collect::<Vec<_>>(),
        })
    }
}

/// Whether a site has this share of any figure.
fn weighs(site: &Site, counters: &Counters, share: f64) -> bool {
    SortKey::OF_ALLOCATIONS.iter().any(|key| {
        let weight = site.weight(*key);
        weight > 0 && percent(weight, counters.of(*key)) >= share * 100.0
    })
}

/// Columns of the timeline: of all, and of the sites `[site, bytes…]`.
fn timeline_of(
    drawn: &Timeline,
    timed: &[SiteId],
    number: impl Fn(SiteId) -> Option<usize>,
) -> Value {
    let sites = drawn.sites.iter().zip(timed);
    let sites = sites.map(|((.., columns), id)| json!([number(*id), columns]));
    json!({
        "pid": drawn.pid,
        "column_ns": drawn.column_ns,
        "column_events": drawn.column_events,
        "group": drawn.columns_a_span(),
        "totals": drawn.totals,
        "sites": sites.collect::<Vec<_>>(),
        "others": drawn.other_sites,
    })
}

/// `[pid, thread, calls, bytes, frees, of other threads' blocks, live bytes]`, in the order of the parts of rows.
fn threads(gathered: &Gathered) -> Vec<Value> {
    let shown = gathered.shown_threads().into_iter();
    let rows = shown.map(|number| {
        let sums = &gathered.threads[number];
        let made = [
            sums.calls,
            sums.bytes,
            sums.frees,
            sums.foreign,
            sums.live_bytes,
        ];
        let id = [u64::from(sums.pid), u64::from(sums.thread)];
        json!([id.as_slice(), &made].concat())
    });
    rows.collect()
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
    let program = image.process.executable.rsplit(|byte| *byte == b'/').next();
    json!({
        "program": printable::escape_bytes(program.unwrap_or_default()),
        "pid": image.process.pid,
        "command": command.chars().take(4 * NAME_CHARS).collect::<String>(),
        "duration_ns": image.duration_ns,
        "threads": image.threads,
        "events": image.events,
        "figures": [counters.allocations, counters.total_bytes, counters.peak_bytes],
    })
}

fn problem(found: &ModuleProblem) -> String {
    let why = match found.problem {
        SymbolProblem::NoDebugInfo => "no debug information, so no source lines",
        SymbolProblem::NoFile => "not found, so its functions have no names",
        SymbolProblem::OtherBuild { .. } => {
            "replaced since the recording, so its symbols are not used"
        }
    };
    format!("{}: {why}", found.path)
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
