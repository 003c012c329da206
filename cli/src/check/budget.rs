//! The budget file. An error names its line; an update changes the values in place and leaves comments
//! and the forms of the limits alone.
//!
//! A budget is hostile input: its size is bounded, and its command runs only if the user asks for it.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use larder_base::failure::{Failure, Result};
use larder_base::order;
use larder_base::target::reason;
use larder_base::{output, printable};
use serde::Deserialize;
use toml::Spanned;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::figures::Figure;
use super::limit::{Limit, Rule};
use super::measure::{Measured, MeasuredSite};

const MAX_BYTES: u64 = 4 << 20;
/// Sites that `--update` records from each ranking.
const RECORDED: usize = 40;

#[derive(Debug, Default)]
pub struct Budget {
    pub name: Option<String>,
    pub command: Vec<String>,
    pub limits: BTreeMap<Figure, Limit>,
    pub caps: Vec<Cap>,
    /// The sites at the last `--update`.
    pub recorded: Vec<MeasuredSite>,
}

/// Limits of the sites that a pattern of a function's name, and the end of a path, name together.
#[derive(Debug)]
pub struct Cap {
    pub function: String,
    pub file: Option<String>,
    pub limits: BTreeMap<Figure, Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBudget {
    name: Option<String>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default)]
    site: Vec<RawCap>,
    #[serde(default)]
    recorded: Vec<RawSite>,
}

type RawLimit = Option<Spanned<toml::Value>>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    allocations: RawLimit,
    peak_bytes: RawLimit,
    total_bytes: RawLimit,
    leaked_blocks: RawLimit,
    leaked_bytes: RawLimit,
    tiny: RawLimit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCap {
    function: String,
    file: Option<String>,
    calls: RawLimit,
    bytes: RawLimit,
    leaked_blocks: RawLimit,
    leaked_bytes: RawLimit,
    tiny: RawLimit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    function: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    line: u32,
    calls: u64,
    bytes: u64,
    #[serde(default)]
    leaked_blocks: u64,
    #[serde(default)]
    leaked_bytes: u64,
    #[serde(default)]
    tiny: u64,
}

/// The key of a figure of one site.
fn site_key(figure: Figure) -> &'static str {
    match figure {
        Figure::Allocations => "calls",
        Figure::TotalBytes => "bytes",
        _ => figure.key(),
    }
}

/// The figures that a site has.
const SITE_FIGURES: [Figure; 5] = [
    Figure::Allocations,
    Figure::TotalBytes,
    Figure::LeakedBlocks,
    Figure::LeakedBytes,
    Figure::Tiny,
];

/// The text of a budget; `None` if there is no such file.
pub fn read_text(path: &Path) -> Result<Option<String>> {
    let failed = |why: &str| {
        Failure::failed(format!(
            "{}: {why}: name a budget file with --budget",
            printable::name(path)
        ))
    };
    let file = match larder_base::regular::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&reason(&error))),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&reason(&error)))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed("larger than 4 MiB, so not a budget"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => Err(failed(&format!(
            "not text at offset {}",
            error.utf8_error().valid_up_to()
        ))),
    }
}

struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn wrong(&self, at: Option<Range<usize>>, what: &str) -> Failure {
        let before = at.and_then(|at| self.text.get(..at.start));
        let line = before.map(|before| before.matches('\n').count() + 1);
        let line = line.map_or(String::new(), |line| format!("line {line}: "));
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        Failure::failed(format!(
            "{}: {line}{}: docs/tasks/keep-a-budget-in-ci.md shows a budget",
            printable::name(self.path),
            printable::escape(&what)
        ))
    }

    fn limits(&self, raw: Vec<(Figure, RawLimit)>) -> Result<BTreeMap<Figure, Limit>> {
        let given = raw
            .into_iter()
            .filter_map(|(figure, raw)| Some((figure, raw?)));
        given
            .map(|(figure, raw)| {
                let text = match raw.get_ref() {
                    toml::Value::Integer(number) => number.to_string(),
                    toml::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let limit = Limit::parse(&text);
                let limit = limit.map_err(|forms| {
                    self.wrong(Some(raw.span()), &format!("{text} is not a limit: {forms}"))
                })?;
                Ok((figure, limit))
            })
            .collect()
    }
}

impl Budget {
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let source = Source { path, text };
        let raw: RawBudget =
            toml::from_str(text).map_err(|error| source.wrong(error.span(), error.message()))?;
        let limits = source.limits(vec![
            (Figure::Allocations, raw.limits.allocations),
            (Figure::PeakBytes, raw.limits.peak_bytes),
            (Figure::TotalBytes, raw.limits.total_bytes),
            (Figure::LeakedBlocks, raw.limits.leaked_blocks),
            (Figure::LeakedBytes, raw.limits.leaked_bytes),
            (Figure::Tiny, raw.limits.tiny),
        ])?;
        let cap = |raw: RawCap| {
            Ok(Cap {
                function: raw.function,
                file: raw.file,
                limits: source.limits(vec![
                    (Figure::Allocations, raw.calls),
                    (Figure::TotalBytes, raw.bytes),
                    (Figure::LeakedBlocks, raw.leaked_blocks),
                    (Figure::LeakedBytes, raw.leaked_bytes),
                    (Figure::Tiny, raw.tiny),
                ])?,
            })
        };
        Ok(Self {
            name: raw.name,
            command: raw.command,
            limits,
            caps: raw.site.into_iter().map(cap).collect::<Result<_>>()?,
            recorded: raw.recorded.into_iter().map(recorded_site).collect(),
        })
    }
}

fn recorded_site(raw: RawSite) -> MeasuredSite {
    let mut site = MeasuredSite {
        function: raw.function,
        file: raw.file,
        line: raw.line,
        ..MeasuredSite::default()
    };
    for (figure, value) in [
        (Figure::Allocations, raw.calls),
        (Figure::TotalBytes, raw.bytes),
        (Figure::LeakedBlocks, raw.leaked_blocks),
        (Figure::LeakedBytes, raw.leaked_bytes),
        (Figure::Tiny, raw.tiny),
    ] {
        site.figures.set(figure, value);
    }
    site
}

impl Cap {
    /// The sum over the sites that it names.
    pub fn found(&self, figure: Figure, sites: &[MeasuredSite]) -> u64 {
        let named = sites.iter().filter(|site| self.names(site));
        named.fold(0, |sum: u64, site| {
            sum.saturating_add(site.figures.get(figure))
        })
    }

    pub fn names(&self, site: &MeasuredSite) -> bool {
        let file = self
            .file
            .as_ref()
            .is_none_or(|file| Path::new(&site.file).ends_with(file));
        file && larder_analysis::reading::pattern::matches(&self.function, &site.function)
    }
}

/// The text with all its limits set to what was measured, and the sites recorded anew.
pub fn updated(path: &Path, text: Option<&str>, measured: &Measured) -> Result<String> {
    let budget = Budget::parse(path, text.unwrap_or_default())?;
    let source = Source {
        path,
        text: text.unwrap_or_default(),
    };
    let mut document: DocumentMut = source
        .text
        .parse()
        .map_err(|error: toml_edit::TomlError| source.wrong(error.span(), error.message()))?;
    let limits = document
        .entry("limits")
        .or_insert_with(|| Item::Table(Table::new()));
    if let Some(limits) = limits.as_table_like_mut() {
        for figure in Figure::ALL {
            match budget.limits.get(&figure) {
                Some(limit) => set(limits, figure.key(), limit, measured.figures.get(figure)),
                None if budget.limits.is_empty() => {
                    let exact = Limit {
                        value: 0,
                        rule: Rule::Exact,
                    };
                    set(limits, figure.key(), &exact, measured.figures.get(figure));
                }
                None => {}
            }
        }
    }
    if let Some(item) = document.get_mut("site") {
        let Some(caps) = item.as_array_of_tables_mut() else {
            return Err(source.wrong(item.span(), "write each site as a [[site]] of its own"));
        };
        for (table, cap) in caps.iter_mut().zip(&budget.caps) {
            for (figure, limit) in &cap.limits {
                set(
                    table,
                    site_key(*figure),
                    limit,
                    cap.found(*figure, &measured.sites),
                );
            }
        }
    }
    document.insert("recorded", Item::ArrayOfTables(recorded(&measured.sites)));
    Ok(document.to_string())
}

/// Changes a limit's value; its form, and the comments around it, stay.
fn set(table: &mut dyn toml_edit::TableLike, key: &str, limit: &Limit, found: u64) {
    let limit = Limit {
        value: found,
        ..*limit
    };
    let mut new = match (limit.rule, i64::try_from(found)) {
        (Rule::Exact, Ok(number)) => toml_edit::Value::from(number),
        _ => toml_edit::Value::from(limit.to_string()),
    };
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => _ = table.insert(key, Item::Value(new)),
    }
}

/// A path that is valid in another checkout: below the current directory, or the name alone.
fn portable(file: &str) -> &str {
    match file.rsplit_once('/') {
        Some((_, name)) if file.starts_with('/') => name,
        _ => file,
    }
}

/// The heaviest sites in any figure, those with most calls first.
fn recorded(sites: &[MeasuredSite]) -> ArrayOfTables {
    let mut kept: Vec<&MeasuredSite> = Vec::new();
    for figure in SITE_FIGURES {
        let mut ranked: Vec<&MeasuredSite> = sites
            .iter()
            .filter(|site| site.figures.get(figure) > 0)
            .collect();
        order::sort_by_key(&mut ranked, |site| {
            std::cmp::Reverse(site.figures.get(figure))
        });
        for site in ranked.into_iter().take(RECORDED) {
            if !kept.contains(&site) {
                kept.push(site);
            }
        }
    }
    let mut tables = ArrayOfTables::new();
    for site in kept {
        let mut table = Table::new();
        if tables.is_empty() {
            let comment =
                "\n# Recorded by `larder check --update`; only it writes below this line.\n";
            table.decor_mut().set_prefix(comment);
        }
        table.insert("function", value(&site.function));
        if !site.file.is_empty() {
            table.insert("file", value(portable(&site.file)));
            table.insert("line", value(i64::from(site.line)));
        }
        for figure in SITE_FIGURES {
            let found = site.figures.get(figure);
            let always = matches!(figure, Figure::Allocations | Figure::TotalBytes);
            if found > 0 || always {
                let number = i64::try_from(found).unwrap_or(i64::MAX);
                table.insert(site_key(figure), value(number));
            }
        }
        tables.push(table);
    }
    tables
}

/// Writes the file whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<()> {
    output::to_file(path, |out| out.write_all(text.as_bytes())).map_err(|error| {
        Failure::failed(format!(
            "{}: cannot be written: {}: name another place with --budget",
            printable::name(path),
            reason(&error)
        ))
    })
}
