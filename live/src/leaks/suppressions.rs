//! Suppression files in LeakSanitizer's format, `leak:PATTERN` a line, like alloc/leak/suppressions.h.

use std::io::Read;
use std::path::Path;

use larder_analysis::reading::losses;
use larder_base::error::system;
use larder_base::number::counted;
use larder_base::printable;
use larder_base::regular::open_regular;
use regex::Regex;

use crate::error::{LiveError, Result};
use crate::process::MAX_SUPPRESSION_BYTES;

#[derive(Debug)]
pub struct Suppressions(pub Vec<Suppression>);

#[derive(Debug)]
pub struct Suppression {
    /// The line in the file.
    pub pattern: String,
    regex: Regex,
}

impl Suppressions {
    pub fn read(path: &Path) -> Result<Self> {
        let name = printable::name(path);
        let mut text = Vec::new();
        let read = open_regular(path)
            .and_then(|file| file.take(MAX_SUPPRESSION_BYTES + 1).read_to_end(&mut text));
        read.map_err(system(&name, "name a file of lines leak:PATTERN"))?;
        if text.len() as u64 > MAX_SUPPRESSION_BYTES {
            return Err(LiveError::LongSuppressions(path.to_owned()));
        }
        let (list, bad) = Self::parse(&String::from_utf8_lossy(&text));
        if let Some(first) = bad.first() {
            let lines = counted(bad.len() as u64, "such line");
            losses::warn(&format!(
                "{name}: line {first}: not leak:PATTERN; {lines} left out"
            ));
        }
        Ok(list)
    }

    /// Also returns the numbers, from 1, of the lines that are no suppressions.
    fn parse(text: &str) -> (Self, Vec<usize>) {
        let (mut list, mut bad) = (Vec::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let pattern = line.strip_prefix("leak:").filter(|text| !text.is_empty());
            match pattern.and_then(|pattern| Suppression::new(pattern).ok()) {
                Some(suppression) => list.push(suppression),
                None => bad.push(number),
            }
        }
        (Self(list), bad)
    }

    /// The index of the first suppression that matches one of the names.
    pub fn find<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Option<usize> {
        self.0.iter().position(|suppression| {
            let mut names = names.clone();
            names.any(|name| !name.is_empty() && suppression.regex.is_match(name))
        })
    }
}

impl Suppression {
    /// `*` matches anything; `^` and `$` anchor the pattern.
    fn new(pattern: &str) -> std::result::Result<Self, regex::Error> {
        let (anchor, rest) = match pattern.strip_prefix('^') {
            Some(rest) => ("^", rest),
            None => ("", pattern),
        };
        let (body, end) = match rest.split_once('$') {
            Some((body, _)) => (body, "$"),
            None => (rest, ""),
        };
        let parts: Vec<String> = body.split('*').map(regex::escape).collect();
        Ok(Self {
            pattern: pattern.to_owned(),
            regex: Regex::new(&format!("(?s){anchor}{}{end}", parts.join(".*")))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_the_library() {
        let matches = |pattern: &str, name: &str| {
            let (list, _) = Suppressions::parse(&format!("leak:{pattern}"));
            list.find([name].into_iter()).is_some()
        };
        let name = "(anonymous namespace)::direct()";
        for pattern in [
            "direct",
            "*",
            "^(anonymous",
            "::direct()$",
            "^(*()$",
            "a*e*s*e",
            "^*d",
        ] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [
            "^direct",
            "direct$",
            "direct*anonymous",
            "^$",
            ".",
            "#d",
            "[a-z]",
        ] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        assert!(!matches("*", ""));
    }

    #[test]
    fn other_lines_are_reported() {
        let (list, bad) = Suppressions::parse("# no\n\n  leak:a \r\nrace:b\nleak:\nleak:c");
        assert_eq!(list.0.len(), 2);
        assert_eq!(bad, [4, 5]);
        assert_eq!(list.find(["xcx"].into_iter()), Some(1));
    }
}
