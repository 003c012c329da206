//! An instrument's report: a heading, tables, notes, plots and the data behind them, printed as
//! Markdown or JSON, and written to a directory. Computes nothing.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use larder_base::machine::{self, Machine};
use larder_base::number::rounded;
use larder_base::output::{self, Content};
use larder_base::printable;
use serde_json::{Value, json};

use crate::bench::allocators::Allocator;

/// Where the report goes; Markdown always goes to standard output, unless JSON is requested.
#[derive(Debug, Default)]
pub struct Output {
    pub directory: Option<PathBuf>,
    pub json: bool,
}

impl Output {
    /// Makes the directory, so that an error is found before the measurement.
    pub fn prepare(&self) -> std::result::Result<(), BaseError> {
        self.directory.as_deref().map_or(Ok(()), |directory| {
            fs::create_dir_all(directory).map_err(unwritable(directory))
        })
    }
}

/// Rows of text under a header; all columns except the first hold numbers.
#[derive(Debug)]
pub struct Table {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(caption: &str, header: impl IntoIterator<Item = String>) -> Table {
        Table {
            caption: caption.to_owned(),
            header: header.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Markdown with columns that are aligned in a terminal, too.
    fn markdown(&self) -> String {
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                let rows = self.rows.iter().chain([&self.header]);
                rows.map(|row| cell(row, column).chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(2)
            })
            .collect();
        let line = |row: &[String]| {
            let cells = widths.iter().enumerate().map(|(column, width)| {
                let text = cell(row, column);
                if column == 0 {
                    format!("{text:<width$}")
                } else {
                    format!("{text:>width$}")
                }
            });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = format!("### {}\n\n{}", self.caption, line(&self.header));
        for (column, width) in widths.iter().enumerate() {
            let dashes = "-".repeat(width + 1);
            let _ = write!(text, "|{}{}", dashes, if column == 0 { '-' } else { ':' });
        }
        text.push_str("|\n");
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// The report of an instrument.
pub struct Report {
    /// File names begin with it.
    pub name: &'static str,
    pub title: &'static str,
    /// How the figures were measured.
    pub method: String,
    pub allocators: Vec<Allocator>,
    pub tables: Vec<Table>,
    pub notes: Vec<String>,
    /// File name and content.
    pub plots: Vec<(String, String)>,
    pub data: Value,
}

impl Report {
    pub fn publish(&self, output: &Output, machine: &Machine) -> Result<()> {
        let markdown = self.markdown(machine);
        let json = self.json(machine);
        if let Some(directory) = &output.directory {
            let mut files = vec![
                (format!("{}.md", self.name), markdown.as_str()),
                (format!("{}.json", self.name), json.as_str()),
            ];
            files.extend(
                self.plots
                    .iter()
                    .map(|(name, plot)| (name.clone(), plot.as_str())),
            );
            for (name, content) in &files {
                let path = directory.join(name);
                fs::write(&path, content).map_err(unwritable(&path))?;
            }
            let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
            output::say(directory, &format!("{} written", names.join(", ")));
        }
        let text = if output.json { &json } else { &markdown };
        output::write(None, Content::Text, |out| out.write_all(text.as_bytes()))
    }

    fn markdown(&self, machine: &Machine) -> String {
        let mut text = format!(
            "## {}\n\n{} {}. {}; load {:.2} at the start.\n",
            self.title,
            self.method,
            machine::date(),
            machine.describe(),
            machine.load_at_start
        );
        for table in &self.tables {
            let _ = write!(text, "\n{}", table.markdown());
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        if !self.allocators.is_empty() {
            let names = self.allocators.iter().map(|allocator| {
                let library = printable::name(&allocator.library);
                format!("{} {}", allocator.name, allocator.version)
                    .trim()
                    .to_owned()
                    + &format!(" ({library})")
            });
            let _ = writeln!(
                text,
                "\nAllocators: {}.",
                names.collect::<Vec<_>>().join("; ")
            );
        }
        text
    }

    fn json(&self, machine: &Machine) -> String {
        let value = json!({
            "instrument": self.name,
            "date": machine::date(),
            "machine": machine,
            "method": self.method,
            "allocators": self.allocators,
            "notes": self.notes,
            "data": self.data,
        });
        format!("{value:#}\n")
    }
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> BaseError {
    system(printable::name(path), "name another directory with --out")
}

/// The digits of a figure: three significant ones, up to two behind the point.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => rounded(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// None is a dash.
pub fn optional(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// 50 B, 5 kB, 50 MB, if that is exact; else bytes.
pub fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1_000_000 && bytes.is_multiple_of(100_000) => {
            format!("{} MB", bytes as f64 / 1e6)
        }
        bytes if bytes >= 1_000 && bytes.is_multiple_of(100) => {
            format!("{} kB", bytes as f64 / 1e3)
        }
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_or_more() {
        let texts = [0.0, 1.234, 12.34, 123.4, 1234.4, 1_234_567.0].map(figure);
        assert_eq!(texts, ["0.00", "1.23", "12.3", "123", "1,234", "1,234,567"]);
        assert_eq!(optional(None, figure), "–");
    }

    #[test]
    fn sizes_are_exact() {
        let texts = [50, 1_024, 5_000, 7_500, 32_768, 50_000_000].map(size);
        assert_eq!(
            texts,
            ["50 B", "1024 B", "5 kB", "7.5 kB", "32768 B", "50 MB"]
        );
    }

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new("Times", ["size".to_owned(), "a".to_owned()]);
        table.push(["50 B".to_owned(), "1,234".to_owned()]);
        assert_eq!(
            table.markdown(),
            "### Times\n\n| size |     a |\n|------|------:|\n| 50 B | 1,234 |\n"
        );
    }
}
