//! The workloads: reads and checks `workloads.toml`, in the same folder as the programs that it names.
//!
//! Invariant: a checked workload has a unique name and a command whose placeholders are all known,
//! so expanding it cannot fail.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use larder_base::error::system;
use larder_base::installed;
use larder_base::printable::name;
use serde::Deserialize;

use crate::error::{LabError, Result};

pub const MANIFEST: &str = "workloads.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    workload: Vec<Workload>,
}

/// A program to run on each allocator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    pub group: String,
    pub what: String,
    command: Vec<String>,
    /// Part of `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// Measures its resident memory after idle seconds, too.
    #[serde(default)]
    pub idle: bool,
    /// Its work can be scaled.
    #[serde(default = "yes")]
    pub scales: bool,
    #[serde(default)]
    pub needs: Vec<Need>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub preload: Preload,
    /// The user's own command: it runs in his folder, with its words as they are.
    #[serde(skip)]
    pub given: bool,
}

fn yes() -> bool {
    true
}

/// A program (a name in PATH, or a path) and the Debian package that has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Need(pub String, pub String);

/// Which process preloads the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preload {
    /// The whole command runs under it.
    #[default]
    Whole,
    /// The command preloads `$BENCH_PRELOAD` into the program that is measured.
    Inner,
}

/// What is wrong in a manifest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("{}{message}", line.map(|line| format!("near line {line}: ")).unwrap_or_default())]
    Syntax {
        line: Option<usize>,
        message: String,
    },
    #[error("two workloads are called {0}")]
    Twice(String),
    #[error("has no [[workload]]")]
    Empty,
    #[error("the workload name '{0}' may have only letters, digits, '-', '.' and '_'")]
    Name(String),
    #[error("workload {0} has an empty command")]
    NoCommand(String),
    #[error("workload {workload}: '{word}': {cause}")]
    Word {
        workload: String,
        word: String,
        cause: WordError,
    },
}

/// What is wrong in a word of a command.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    #[error("the {{ has no }}")]
    Unclosed,
    #[error(
        "there is no placeholder {{{0}}}; there are {{bench}}, {{scratch}}, {{scale}} and {{scale*N}}"
    )]
    Placeholder(String),
}

/// The values of a command's placeholders.
pub struct Places<'a> {
    pub bench: &'a Path,
    pub scratch: &'a Path,
    pub scale: f64,
}

/// Where the workloads' programs and their manifest are, if they were staged.
pub fn directory() -> Result<PathBuf> {
    let directory = installed::programs().join("bench");
    if !directory.exists() {
        return Ok(directory);
    }
    let whole = directory.canonicalize();
    Ok(whole.map_err(system(name(&directory), "check its permissions"))?)
}

/// Reads and checks the manifest in `directory`.
pub fn load(directory: &Path) -> Result<Vec<Workload>> {
    let path = directory.join(MANIFEST);
    if !path.is_file() {
        return Err(LabError::NoPeers {
            file: MANIFEST.to_owned(),
            directory: directory.to_owned(),
        });
    }
    let text = std::fs::read_to_string(&path).map_err(system(
        name(&path),
        "stage the tree again with `make peers`",
    ))?;
    parse(&text).map_err(|cause| LabError::Manifest { path, cause })
}

fn parse(text: &str) -> std::result::Result<Vec<Workload>, ManifestError> {
    let manifest: Manifest = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map(|span| text[..span.start].lines().count().max(1));
        let message = error.message().replace('\n', " ");
        ManifestError::Syntax { line, message }
    })?;
    let mut names = HashSet::new();
    for workload in &manifest.workload {
        workload.check()?;
        if !names.insert(&workload.name) {
            return Err(ManifestError::Twice(workload.name.clone()));
        }
    }
    if manifest.workload.is_empty() {
        return Err(ManifestError::Empty);
    }
    Ok(manifest.workload)
}

/// Whether a workload's name may have it.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._".contains(c)
}

impl Workload {
    /// The user's command, of at least one word.
    pub fn given(command: &[String]) -> Workload {
        let file = Path::new(&command[0]).file_name().unwrap_or_default();
        let file = file.to_string_lossy();
        Workload {
            name: file
                .chars()
                .map(|c| if is_plain(c) { c } else { '-' })
                .collect(),
            group: "program".to_owned(),
            what: command.join(" "),
            command: command.to_vec(),
            quick: false,
            idle: false,
            scales: false,
            needs: Vec::new(),
            environment: BTreeMap::new(),
            preload: Preload::Whole,
            given: true,
        }
    }

    fn check(&self) -> std::result::Result<(), ManifestError> {
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(ManifestError::Name(self.name.clone()));
        }
        if self.command.is_empty() {
            return Err(ManifestError::NoCommand(self.name.clone()));
        }
        for word in &self.command {
            pieces(word).map_err(|cause| ManifestError::Word {
                workload: self.name.clone(),
                word: word.clone(),
                cause,
            })?;
        }
        Ok(())
    }

    /// The words to run.
    pub fn command(&self, places: &Places) -> Vec<String> {
        if self.given {
            return self.command.clone();
        }
        let expand = |word: &String| {
            let pieces = pieces(word).unwrap_or_default();
            pieces.iter().map(|piece| piece.text(places)).collect()
        };
        self.command.iter().map(expand).collect()
    }

    /// The needs that are not installed.
    pub fn missing(&self) -> Vec<&Need> {
        let there = |need: &&Need| in_path(Path::new(&need.0)).is_none();
        self.needs.iter().filter(there).collect()
    }
}

/// The file of a name without `/`.
pub fn in_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.exists().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Bench,
    Scratch,
    Scale,
    Scaled(f64),
}

impl Piece<'_> {
    fn text(&self, places: &Places) -> String {
        match self {
            Piece::Text(text) => (*text).to_owned(),
            Piece::Bench => places.bench.to_string_lossy().into_owned(),
            Piece::Scratch => places.scratch.to_string_lossy().into_owned(),
            Piece::Scale => places.scale.to_string(),
            Piece::Scaled(usual) => format!("{:.0}", (usual * places.scale).round().max(1.0)),
        }
    }
}

fn pieces(word: &str) -> std::result::Result<Vec<Piece<'_>>, WordError> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').ok_or(WordError::Unclosed)?;
        if open > 0 {
            pieces.push(Piece::Text(&rest[..open]));
        }
        let name = &rest[open + 1..open + close];
        pieces.push(match name {
            "bench" => Piece::Bench,
            "scratch" => Piece::Scratch,
            "scale" => Piece::Scale,
            _ => name
                .strip_prefix("scale*")
                .and_then(|usual| usual.parse::<u64>().ok())
                .map(|usual| Piece::Scaled(usual as f64))
                .ok_or_else(|| WordError::Placeholder(name.to_owned()))?,
        });
        rest = &rest[open + close + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "[[workload]]\nname = 'pair'\ngroup = 'own'\nwhat = 'pairs'\n\
                        command = ['{bench}/pair', '{scale*1000}', 'x{scale}']\n";

    #[test]
    fn placeholders_are_expanded() {
        let workloads = parse(PAIR).unwrap();
        let places = Places {
            bench: Path::new("/b"),
            scratch: Path::new("/s"),
            scale: 0.25,
        };
        assert_eq!(workloads[0].command(&places), ["/b/pair", "250", "x0.25"]);
        let small = Places {
            scale: 1e-9,
            ..places
        };
        assert_eq!(workloads[0].command(&small)[1], "1");
    }

    #[test]
    fn defaults_are_the_quiet_ones() {
        let workload = &parse(PAIR).unwrap()[0];
        assert!(!workload.quick && !workload.idle && workload.scales);
        assert_eq!(workload.preload, Preload::Whole);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let syntax = |text: &str| match parse(text).unwrap_err() {
            ManifestError::Syntax { line, message } => {
                assert!(!message.contains('\n'), "{message}");
                line
            }
            other => panic!("{text:?}: {other}"),
        };
        assert_eq!(syntax("[[workload"), Some(1));
        assert_eq!(syntax(&format!("{PAIR}quick = 1\n")), Some(6));
        for line in ["fast = true\n", "preload = 'outer'\n"] {
            syntax(&format!("{PAIR}{line}"));
        }
        syntax("");
        let wrong = |word: &str, cause| ManifestError::Word {
            workload: "pair".to_owned(),
            word: word.to_owned(),
            cause,
        };
        let unknown = |name: &str| WordError::Placeholder(name.to_owned());
        for (text, error) in [
            ("workload = []", ManifestError::Empty),
            (
                &format!("{PAIR}{PAIR}"),
                ManifestError::Twice("pair".to_owned()),
            ),
            (
                &PAIR.replace("{scale}", "{size}"),
                wrong("x{size}", unknown("size")),
            ),
            (
                &PAIR.replace("{scale*1000}", "{scale*x}"),
                wrong("{scale*x}", unknown("scale*x")),
            ),
            (
                &PAIR.replace("{scale}", "{scale"),
                wrong("x{scale", WordError::Unclosed),
            ),
            (
                &PAIR.replace("'pair'", "'pa ir'"),
                ManifestError::Name("pa ir".to_owned()),
            ),
            (
                "[[workload]]\nname = 'a'\ngroup = 'own'\nwhat = ''\ncommand = []\n",
                ManifestError::NoCommand("a".to_owned()),
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), error, "{text:?}");
        }
    }

    #[test]
    fn the_projects_own_manifest_is_well_formed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let workloads = load(&root.join("bench")).unwrap();
        assert!(workloads.iter().any(|workload| workload.quick));
        assert!(workloads.iter().any(|workload| workload.idle));
    }

    #[test]
    fn a_missing_program_is_known_by_its_package() {
        let text = format!("{PAIR}needs = [['sh', 'dash'], ['no-such-program', 'no-package']]\n");
        let workload = &parse(&text).unwrap()[0];
        let missing = workload.missing();
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].1, "no-package");
    }
}
