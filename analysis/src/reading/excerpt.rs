//! The lines of source around a site, as text and as JSON.
//!
//! One thread. A file is read once, and only for a site that is shown. Memory: the text of these files,
//! up to `MOST_TEXT_BYTES`; further files are not shown.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use larder_base::printable;
use larder_base::regular::open_regular;
use larder_base::style::{FAINT, WARNING};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::attribute::functions;
use super::naming::{nearby, print_stack_in_line};
use super::resolve::{ChainFrame, Resolver};
use super::sites::{Site, SiteStack, SortKey};
use crate::symbols::source::FoundSource;

/// Of all files; sqlite's one file has 9 MB.
const MOST_TEXT_BYTES: u64 = 64 << 20;
/// Lines before the site's, and behind it.
const AROUND: usize = 1;
/// Sites of each ranking, where there are several.
const SHOWN_A_RANKING: usize = 3;
const COLUMNS_SHOWN: usize = 110;
const TAB_COLUMNS: usize = 8;
const INDENT: &str = "        ";

/// The texts of source files that were read.
pub struct Texts {
    files: RefCell<FxHashMap<PathBuf, Option<Rc<Text>>>>,
    bytes_left: Cell<u64>,
    /// Files and lines that were printed.
    printed: RefCell<HashSet<(PathBuf, usize)>>,
    /// Files whose age was printed.
    noted: RefCell<HashSet<PathBuf>>,
}

struct Text {
    bytes: Vec<u8>,
    modified: Option<SystemTime>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            files: RefCell::default(),
            bytes_left: Cell::new(MOST_TEXT_BYTES),
            printed: RefCell::default(),
            noted: RefCell::default(),
        }
    }
}

impl Texts {
    fn of(&self, path: &Path) -> Option<Rc<Text>> {
        if let Some(known) = self.files.borrow().get(path) {
            return known.clone();
        }
        let text = self.read(path).map(Rc::new);
        let mut files = self.files.borrow_mut();
        files.insert(path.to_owned(), text.clone());
        text
    }

    fn read(&self, path: &Path) -> Option<Text> {
        let file = open_regular(path).ok()?;
        let about = file.metadata().ok()?;
        self.bytes_left
            .set(self.bytes_left.get().checked_sub(about.len())?);
        let mut bytes = Vec::new();
        file.take(about.len()).read_to_end(&mut bytes).ok()?;
        let modified = about.modified().ok();
        Some(Text { bytes, modified })
    }
}

/// A site's line and those around it, ready to print.
#[derive(Debug)]
pub struct Excerpt {
    path: PathBuf,
    line: usize,
    /// Of the first of `lines`.
    first: usize,
    lines: Vec<String>,
    /// The program's file, if the source was changed after it was built.
    newer_than: Option<String>,
}

impl Excerpt {
    /// Of the site of a stack, if its source is found and to be shown.
    pub fn of(resolver: &Resolver, stack: &SiteStack) -> Option<Self> {
        let frame = functions(&stack.chain).nth(stack.site?)?;
        resolver.shown_texts()?;
        Self::read(resolver, frame)
    }

    fn read(resolver: &Resolver, frame: &ChainFrame) -> Option<Self> {
        let line = usize::try_from(frame.source.line?).ok()?;
        let FoundSource { path, is_compiled } = resolver.source(frame)?;
        let text = resolver.shown_texts()?.of(&path)?;
        let built = resolver.built(frame).filter(|_| !is_compiled);
        let is_newer = text
            .modified
            .zip(built)
            .is_some_and(|(text, built)| text > built);
        let (first, lines) = around(&text.bytes, line)?;
        Some(Self {
            path,
            line,
            first,
            lines,
            newer_than: is_newer.then(|| frame.module.name.clone()),
        })
    }

    /// Line number and text, the site's line marked.
    pub fn rows(&self) -> impl Iterator<Item = (String, &str)> {
        let last = self.first + self.lines.len() - 1;
        let width = last.to_string().len();
        let numbered = (self.first..).zip(&self.lines);
        numbered.map(move |(number, text)| {
            let mark = if number == self.line { ">" } else { " " };
            (format!("{mark} {number:>width$} |"), &**text)
        })
    }

    fn print(&self, texts: &Texts, out: &mut dyn Write) -> io::Result<()> {
        for (gutter, text) in self.rows() {
            let space = if text.is_empty() { "" } else { " " };
            match gutter.starts_with('>') {
                true => writeln!(out, "{INDENT}{FAINT}{gutter}{FAINT:#}{space}{text}")?,
                false => writeln!(out, "{INDENT}{FAINT}{gutter}{space}{text}{FAINT:#}")?,
            }
        }
        let Some(program) = &self.newer_than else {
            return Ok(());
        };
        if !texts.noted.borrow_mut().insert(self.path.clone()) {
            return Ok(());
        }
        let name = printable::name(&self.path);
        writeln!(
            out,
            "{INDENT}{WARNING}{} is newer than {program}: its lines may have moved{WARNING:#}",
            nearby(&name)
        )
    }

    fn json(&self) -> Value {
        json!({
            "path": printable::name(&self.path),
            "first": self.first,
            "lines": self.lines,
            "newer": self.newer_than.is_some(),
        })
    }
}

/// Prints the lines around the site of a stack; nothing if its source is not found.
pub fn print(resolver: &Resolver, stack: &SiteStack, out: &mut dyn Write) -> io::Result<()> {
    match (Excerpt::of(resolver, stack), resolver.shown_texts()) {
        (Some(excerpt), Some(texts)) => excerpt.print(texts, out),
        _ => Ok(()),
    }
}

/// The same in one of several rankings, for the sites at the first places, once each.
pub fn print_ranked(
    resolver: &Resolver,
    place: usize,
    stack: &SiteStack,
    out: &mut dyn Write,
) -> io::Result<()> {
    if place >= SHOWN_A_RANKING {
        return Ok(());
    }
    match (Excerpt::of(resolver, stack), resolver.shown_texts()) {
        (Some(excerpt), Some(texts)) => {
            let key = (excerpt.path.clone(), excerpt.line);
            match texts.printed.borrow_mut().insert(key) {
                true => excerpt.print(texts, out),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Below a site in one of several rankings: its source, and the stack with the most calls.
pub fn print_heaviest(
    resolver: &Resolver,
    place: usize,
    site: &Site,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(stack) = site.heaviest(SortKey::Calls) else {
        return Ok(());
    };
    print_ranked(resolver, place, stack, out)?;
    print_stack_in_line(stack, out)
}

/// Null if the source is not found.
pub fn json(resolver: &Resolver, stack: Option<&SiteStack>) -> Value {
    let excerpt = stack.and_then(|stack| Excerpt::of(resolver, stack));
    excerpt.map_or(Value::Null, |excerpt| excerpt.json())
}

/// The lines around this one, counted from 1, and the number of the first; `None` if there is no such
/// line. What they are all indented by is left out.
fn around(text: &[u8], line: usize) -> Option<(usize, Vec<String>)> {
    let first = line.saturating_sub(AROUND).max(1);
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').skip(first - 1);
    let lines = lines.take(line.checked_add(1)?.checked_sub(first)? + AROUND);
    let lines: Vec<String> = lines.map(shown).collect();
    if first + lines.len() <= line {
        return None;
    }
    let indents = lines.iter().filter(|line| !line.is_empty());
    let indents = indents.map(|line| line.len() - line.trim_start_matches(' ').len());
    let indent = indents.min().unwrap_or(0);
    let lines = lines
        .iter()
        .map(|line| cut(line.get(indent..).unwrap_or_default()));
    Some((first, lines.collect()))
}

/// A line as it looks on a terminal, which interprets nothing in it. A long one is read in part.
fn shown(line: &[u8]) -> String {
    let line = &line[..line.len().min(8 * COLUMNS_SHOWN)];
    let mut out = String::new();
    let mut columns = 0;
    for c in String::from_utf8_lossy(line).trim_end().chars() {
        let width = match c {
            '\t' => TAB_COLUMNS - columns % TAB_COLUMNS,
            _ => 1,
        };
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', width)),
            c => out.push(if printable::is_plain(c) {
                c
            } else {
                '\u{fffd}'
            }),
        }
        columns += width;
    }
    out
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(COLUMNS_SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_around_one_are_taken_without_their_common_indent() {
        let text = b"int main(void) {\n\tint a;\n\n\t\tp = f(\"\\n\");\r\n\treturn 0;\n}\n";
        let of = |line| around(text, line);
        let lines = |first: usize, lines: &[&str]| {
            Some((first, lines.iter().map(|line| (*line).to_owned()).collect()))
        };
        assert_eq!(
            of(4),
            lines(3, &["", "        p = f(\"\\n\");", "return 0;"])
        );
        assert_eq!(of(1), lines(1, &["int main(void) {", "        int a;"]));
        assert_eq!(of(6), lines(5, &["        return 0;", "}"]));
        assert_eq!(of(7), None);
        assert_eq!(around(b"", 2), None);
        assert_eq!(of(usize::MAX), None);
    }

    #[test]
    fn nothing_in_a_line_reaches_the_terminal() {
        assert_eq!(
            shown(b"a\x1b[2J\xffb\xe2\x80\xae"),
            "a\u{fffd}[2J\u{fffd}b\u{fffd}"
        );
        let long = vec![b'x'; 100_000];
        let (_, lines) = around(&long, 1).unwrap();
        assert_eq!(lines[0].chars().count(), COLUMNS_SHOWN + 1);
    }

    #[test]
    fn the_gutter_is_as_wide_as_the_last_number() {
        let excerpt = Excerpt {
            path: "a.c".into(),
            line: 9,
            first: 9,
            lines: vec!["f();".to_owned(), "}".to_owned()],
            newer_than: None,
        };
        let rows: Vec<_> = excerpt.rows().collect();
        assert_eq!(rows[0], (">  9 |".to_owned(), "f();"));
        assert_eq!(rows[1], ("  10 |".to_owned(), "}"));
    }
}
