//! What a trace has: its sites with their stacks, and the trees of callers and callees. Nothing here draws.
//!
//! Memory: by the sites and the distinct stacks of all process images.

use larder_analysis::calls::{Direction, Sums, Tree};
use larder_analysis::reading::Analysis;
use larder_analysis::reading::attribute::functions;
use larder_analysis::reading::chain::Chain;
use larder_analysis::reading::excerpt;
use larder_analysis::reading::functions::{FunctionId, FunctionTable, Leaf};
use larder_analysis::reading::losses;
use larder_analysis::reading::naming::{self, site_name, site_place};
use larder_analysis::reading::sites::{SiteId, SortKey};
use larder_analysis::reading::stacks::{StackRow, Stacks};
use larder_analysis::reading::subject::Subject;
use larder_base::failure::Result;
use larder_base::number::{bytes, counted, duration, grouped};
use larder_base::{order, printable};
use larder_trace::Call;
use rustc_hash::FxHashMap;

use super::columns::Column;
use crate::terminal::page;

/// Of a site, shown with Enter.
const MOST_STACKS: usize = 20;
/// Of a tree, which a deep recursion would fill memory with.
const MOST_LEVELS: usize = 100;

/// The note about a trace of counters.
const COUNTED: &str = "calls were only counted (record --aggregate): no shares of the peak, temporary blocks or \
                       findings";

/// What a site, a stack or all sites add up to. Blocks, where it is not bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub calls: u64,
    pub bytes: u64,
    /// `None`: not known.
    pub peak_bytes: Option<u64>,
    pub live_bytes: u64,
    /// `None`: not known.
    pub temporary: Option<u64>,
    pub tiny: u64,
}

#[derive(Debug)]
pub struct SiteRow {
    pub id: SiteId,
    /// Printable, both.
    pub name: String,
    pub place: String,
    pub figures: Figures,
    /// Indexes of the model's stacks.
    pub stacks: Vec<usize>,
}

/// A text with a title.
#[derive(Clone, Debug, Default)]
pub struct Text {
    pub title: String,
    pub lines: Vec<String>,
}

pub struct Model {
    analysis: Analysis,
    stacks: Vec<StackRow>,
    functions: FunctionTable,
    /// The first is the title.
    pub head: Vec<String>,
    /// Reasons to doubt figures.
    pub notes: Vec<String>,
    /// In a report's order by calls.
    pub sites: Vec<SiteRow>,
    pub total: Figures,
}

impl Model {
    /// Reads the trace, once.
    pub fn read(subject: &Subject) -> Result<Self> {
        let mut found = Stacks::<true>::default();
        let mut analysis = Analysis::read(subject, &mut found)?;
        let stacks = found.rows;
        let mut by_site: FxHashMap<SiteId, Vec<usize>> = FxHashMap::default();
        for (index, row) in stacks.iter().enumerate() {
            let site = analysis.sites.intern(&row.charged());
            by_site.entry(site).or_default().push(index);
        }
        let ranked = analysis.sites.ranked_ids(SortKey::Calls).into_iter();
        let sites = ranked.map(|id| {
            let rows = by_site.remove(&id).unwrap_or_default();
            site_row(&analysis, id, &stacks, rows)
        });
        let sites: Vec<SiteRow> = sites.collect();
        let total = total(&analysis, &sites);
        let mut notes = losses::details(&analysis);
        if is_counted(&analysis) {
            notes.insert(0, COUNTED.to_owned());
        }
        Ok(Self {
            head: head(subject, &analysis, &total),
            notes,
            stacks,
            functions: FunctionTable::default(),
            sites,
            total,
            analysis,
        })
    }

    pub fn site(&self, id: SiteId) -> Option<&SiteRow> {
        self.sites.iter().find(|site| site.id == id)
    }

    /// The source of a site, and its stacks in descending order of this.
    pub fn stacks_of(&self, id: SiteId, by: Column) -> Text {
        let Some(site) = self.site(id) else {
            return Text::default();
        };
        let mut rows: Vec<&StackRow> = site.stacks.iter().map(|i| &self.stacks[*i]).collect();
        let weight = |row: &StackRow| (by.of(&self.figures(row)), row.sums.calls);
        order::sort_by(&mut rows, |a, b| weight(b).cmp(&weight(a)));
        let resolver = &self.analysis.resolver;
        let mut lines = Vec::new();
        if let Some(first) = rows.first() {
            lines.extend(page::lines(|out| {
                excerpt::print(resolver, &first.charged(), out)
            }));
        }
        for row in rows.iter().take(MOST_STACKS) {
            lines.push(self.describe(row));
            lines.extend(page::lines(|out| naming::print_stack(&row.charged(), out)));
            if row.truncated {
                lines.push("          (cut off: the stack is deeper)".to_owned());
            }
        }
        if rows.len() > MOST_STACKS {
            lines.push(format!("{} more stacks", rows.len() - MOST_STACKS));
        }
        lines.extend(page::lines(|out| naming::print_problems(resolver, out)));
        Text {
            title: format!("{}  {}", site.name, site.place),
            lines,
        }
    }

    fn figures(&self, row: &StackRow) -> Figures {
        let is_counted = is_counted(&self.analysis);
        Figures {
            calls: row.sums.calls,
            bytes: row.sums.bytes,
            peak_bytes: (!is_counted).then_some(row.sums.peak_bytes),
            live_bytes: row.sums.live_bytes,
            temporary: (!is_counted).then_some(row.life.temporary),
            tiny: row.sums.tiny,
        }
    }

    /// A stack's figures, those that are 0 left out.
    fn describe(&self, row: &StackRow) -> String {
        let found = self.figures(row);
        let mut parts = vec![
            format!("{} of {}", counted(found.calls, "call"), row.call),
            counted(found.bytes, "byte"),
        ];
        for (figure, what) in [
            (found.peak_bytes.unwrap_or(0), "bytes at the peak"),
            (found.live_bytes, "bytes live at the end"),
            (found.temporary.unwrap_or(0), "temporary"),
            (found.tiny, "tiny"),
        ] {
            if figure > 0 {
                parts.push(format!("{} {what}", grouped(figure)));
            }
        }
        let images = &self.analysis.images;
        let image = images.get(row.image).filter(|_| images.len() > 1);
        let process = image.map(|image| format!("process {}: ", image.process.pid));
        format!("{}{}", process.unwrap_or_default(), parts.join(", "))
    }

    /// The function that is charged at a site.
    pub fn function(&mut self, id: SiteId) -> Option<FunctionId> {
        let stack = *self.site(id)?.stacks.first()?;
        let stack = self.stacks[stack].charged();
        let frame = functions(&stack.chain).nth(stack.site?)?;
        Some(self.functions.of_frame(&mut self.analysis.resolver, frame))
    }

    /// Printable.
    pub fn function_name(&self, id: FunctionId) -> &str {
        &self.functions.get(id).name
    }

    /// The callers or the callees of a function, by the calls that allocate.
    pub fn tree(&mut self, root: FunctionId, direction: Direction) -> Tree {
        let mut tree = Tree::new(direction, MOST_LEVELS);
        for row in &self.stacks {
            let sums = Sums {
                calls: row.sums.calls as f64,
                bytes: row.sums.bytes as f64,
                ..Sums::default()
            };
            let chain: Chain = row.charged().chain;
            let leaf = recorded(row.call).map_or(Leaf::Sample, Leaf::Call);
            let resolver = &mut self.analysis.resolver;
            let path = self.functions.path(resolver, &chain, leaf);
            tree.add(&path, |id| id == root, &sums);
        }
        tree
    }
}

/// The call of this name.
fn recorded(name: &str) -> Option<Call> {
    let mut calls = (0..=u8::MAX).filter_map(Call::from_code);
    calls.find(|call| call.name() == name)
}

/// Whether a process image has only counters.
fn is_counted(analysis: &Analysis) -> bool {
    let mut traces = analysis.traces.iter();
    traces.any(|trace| trace.counters().is_some())
}

fn site_row(analysis: &Analysis, id: SiteId, all: &[StackRow], stacks: Vec<usize>) -> SiteRow {
    let site = analysis.sites.get(id);
    SiteRow {
        id,
        name: site_name(site),
        place: site_place(site),
        figures: Figures {
            calls: site.sums.calls,
            bytes: site.sums.bytes,
            peak_bytes: analysis.sites.at_peak(site),
            live_bytes: site.sums.live_bytes,
            temporary: (!is_counted(analysis))
                .then(|| stacks.iter().map(|index| all[*index].life.temporary).sum()),
            tiny: site.sums.tiny,
        },
        stacks,
    }
}

fn total(analysis: &Analysis, sites: &[SiteRow]) -> Figures {
    let counters = &analysis.counters;
    Figures {
        calls: counters.allocations,
        bytes: counters.total_bytes,
        peak_bytes: Some(counters.peak_bytes),
        live_bytes: counters.live_bytes,
        temporary: sites.iter().map(|site| site.figures.temporary).sum(),
        tiny: counters.tiny,
    }
}

fn head(subject: &Subject, analysis: &Analysis, total: &Figures) -> Vec<String> {
    let images = &analysis.images;
    let longest = images.iter().map(|image| image.duration_ns).max();
    let temporary = total
        .temporary
        .map(|blocks| format!("{} temporary, ", grouped(blocks)));
    let temporary = temporary.unwrap_or_default();
    let mut lines = vec![
        format!(
            "larder view: {}: {}, {}, {}",
            printable::name(&subject.trace),
            counted(images.len() as u64, "process image"),
            counted(images.iter().map(|image| image.events).sum(), "event"),
            duration(longest.unwrap_or(0)),
        ),
        format!(
            "{} of {} ({temporary}{} tiny), {} at the peak, {} live at the end",
            counted(total.calls, "allocation"),
            bytes(total.bytes),
            grouped(total.tiny),
            bytes(total.peak_bytes.unwrap_or(0)),
            bytes(total.live_bytes),
        ),
    ];
    if let Some(passed) = analysis.wrappers.describe() {
        lines.push(printable::escape(&passed).into_owned());
    }
    lines
}
