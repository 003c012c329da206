//! The output formats of all commands, and the endings of file names that choose them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::execute::Stdout;
use crate::failure::Fatal;
use crate::output::Content;
use crate::printable;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// JSON, for programs
    Json,
    /// A page for any browser
    Html,
    /// A drawing; for stacks, a flame graph
    Svg,
    /// pprof's gzipped protocol buffer
    Pprof,
    /// A line a stack, outermost function first, with one measure
    Collapsed,
    /// speedscope's JSON
    Speedscope,
    /// The JSON of valgrind's DHAT
    Dhat,
    /// A directory of two tables: events.parquet and stacks.parquet
    Parquet,
    /// The memory log of a debug curl, of one process
    Memdebug,
    /// The heap profile itself, to be read again
    Heap,
    /// Prometheus's text format
    Prometheus,
}

/// Longer endings precede their suffixes. The first ending of a format is the one in messages.
const ENDINGS: [(&str, Format); 13] = [
    (".txt", Format::Text),
    (".speedscope.json", Format::Speedscope),
    (".json", Format::Json),
    (".html", Format::Html),
    (".svg", Format::Svg),
    (".pb.gz", Format::Pprof),
    (".folded", Format::Collapsed),
    (".collapsed", Format::Collapsed),
    (".dhat", Format::Dhat),
    (".parquet", Format::Parquet),
    (".log", Format::Memdebug),
    (".heap", Format::Heap),
    (".prom", Format::Prometheus),
];

impl Format {
    /// The format of a command whose only option is `--json`.
    pub fn printed(json: bool) -> Self {
        if json { Format::Json } else { Format::Text }
    }

    pub fn content(self) -> Content {
        match self {
            Format::Text => Content::Coloured,
            Format::Pprof => Content::Binary,
            _ => Content::Text,
        }
    }

    /// Where a command's stdout goes whose report goes to `output`: apart from one that a program reads.
    pub fn stdout_of_command(self, output: Option<&Path>) -> Stdout {
        match (self, output) {
            (Format::Text, _) | (_, Some(_)) => Stdout::Ours,
            _ => Stdout::Stderr,
        }
    }

    /// The format of a file of this name.
    pub fn by_name(path: &Path) -> Option<Self> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let mut endings = ENDINGS.iter();
        let found = endings.find(|(ending, _)| name.ends_with(ending.as_bytes()))?;
        Some(found.1)
    }

    fn ending(self) -> &'static str {
        let mut endings = ENDINGS.iter();
        endings
            .find(|(_, format)| *format == self)
            .map_or("", |(ending, _)| ending)
    }
}

/// Why the name of a file chooses no format that a command makes.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: {cause}: end it in {}{otherwise}",
    printable::name(path),
    listed(made)
)]
pub struct FormatError {
    pub path: PathBuf,
    pub cause: FormatCause,
    /// What the command makes.
    pub made: Vec<Format>,
    /// How to do without: `, or give --format`.
    pub otherwise: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatCause {
    #[error("this command writes no {}", .0.ending())]
    NotMade(Format),
    #[error("its name does not choose a format")]
    Unnamed,
}

impl Fatal for FormatError {}

/// The format that the name of a file chooses, of those that a command makes. `otherwise` says how to
/// do without: `, or give --format`.
pub fn chosen(
    path: &Path,
    made: &[Format],
    otherwise: &'static str,
) -> Result<Format, FormatError> {
    let cause = match Format::by_name(path) {
        Some(format) if made.contains(&format) => return Ok(format),
        Some(format) => FormatCause::NotMade(format),
        None => FormatCause::Unnamed,
    };
    Err(FormatError {
        path: path.to_owned(),
        cause,
        made: made.to_owned(),
        otherwise,
    })
}

/// The format that `--format`, `--json` or the name of the output chooses, in this order; else text.
pub fn of_output(
    format: Option<Format>,
    json: bool,
    output: Option<&Path>,
    made: &[Format],
) -> Result<Format, FormatError> {
    match (format, json, output) {
        (Some(format), ..) => Ok(format),
        (None, false, Some(path)) => chosen(path, made, ", or give --format"),
        _ => Ok(Format::printed(json)),
    }
}

/// Fails if the name of a file says another format than the only one that a command makes.
pub fn expect(format: Format, path: Option<&Path>) -> Result<(), FormatError> {
    match path {
        Some(path) if Format::by_name(path).is_some() => chosen(path, &[format], "").map(drop),
        _ => Ok(()),
    }
}

fn listed(formats: &[Format]) -> String {
    let endings: Vec<_> = formats.iter().map(|format| format.ending()).collect();
    match endings.split_last() {
        Some((last, others @ [_, ..])) => format!("{} or {last}", others.join(", ")),
        _ => endings.concat(),
    }
}

/// The values of `--format` for a command that makes these.
pub fn among(made: &'static [Format]) -> impl TypedValueParser<Value = Format> {
    let values = made.iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(values).try_map(|name| <Format as ValueEnum>::from_str(&name, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_an_ending_that_means_it() {
        for format in Format::value_variants() {
            let name = format!("a.txt/b{}", format.ending());
            assert_eq!(Format::by_name(Path::new(&name)), Some(*format), "{name}");
        }
        for (ending, format) in ENDINGS {
            assert_eq!(Format::by_name(Path::new(ending)), Some(format), "{ending}");
        }
        for name in ["", "a", "json", "a.json/", "a.svg.bak", "a.SVG", ".."] {
            let found = Format::by_name(Path::new(name));
            assert_eq!(found, (name == "a.json/").then_some(Format::Json), "{name}");
        }
    }

    #[test]
    fn a_wrong_name_is_refused_with_its_cause_and_what_is_made() {
        const MADE: [Format; 3] = [Format::Text, Format::Json, Format::Html];
        let of = |name: &str| chosen(Path::new(name), &MADE, "");
        assert_eq!(of("a/app.html").unwrap(), Format::Html);
        for (name, cause) in [
            ("app", FormatCause::Unnamed),
            ("b/app.svg", FormatCause::NotMade(Format::Svg)),
            ("a\n.png", FormatCause::Unnamed),
        ] {
            let error = of(name).unwrap_err();
            assert_eq!((error.cause, &error.made[..]), (cause, &MADE[..]), "{name}");
            assert!(!error.to_string().contains('\n'));
        }
        assert_eq!(listed(&MADE), ".txt, .json or .html");
        let fails = |name: &str| expect(Format::Svg, Some(Path::new(name))).is_err();
        assert!(fails("a.html") && !fails("a.svg") && !fails("a"));
    }
}
