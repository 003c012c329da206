//! Known leaks, in LeakSanitizer's format, `leak:PATTERN` a line, like alloc/leak/suppressions.h. Those of libraries are
//! built in, `suppressions.txt`.

use clap::Args;
use larder_base::printable;
use regex::Regex;

use super::attribute::functions;
use super::chain::Chain;

#[derive(Debug, Default)]
pub struct Suppressions(pub Vec<Suppression>);

#[derive(Debug)]
pub struct Suppression {
    /// The line in the file.
    pub pattern: String,
    regex: Regex,
}

/// Whether the built-in list is used.
#[derive(Debug, Args)]
pub struct RawBuiltIn {
    /// Also report known leaks of well-known libraries
    #[arg(long)]
    pub no_built_in_suppressions: bool,
}

impl RawBuiltIn {
    /// The built-in list, or none.
    pub fn check(&self) -> Suppressions {
        match self.no_built_in_suppressions {
            true => Suppressions::default(),
            false => Suppressions::built_in(),
        }
    }
}

impl Suppression {
    /// What it left out, in the words of the allocator's leak checker.
    pub fn describe(&self, objects: u64, bytes: u64) -> String {
        let pattern = printable::escape(&self.pattern);
        format!("suppressed {bytes} bytes in {objects} objects by leak:{pattern}")
    }
}

impl Suppressions {
    pub fn built_in() -> Self {
        Self::parse(include_str!("suppressions.txt")).0
    }

    /// Also returns the numbers, from 1, of the lines that are no suppressions.
    pub fn parse(text: &str) -> (Self, Vec<usize>) {
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

    /// The index of the first suppression that matches a function on the stack, as shown or as the linker names it, or
    /// the path of its file.
    pub fn find(&self, chain: &Chain) -> Option<usize> {
        let names = functions(chain).flat_map(|frame| {
            let function = frame.source.function.iter();
            let names = function.flat_map(|f| [&*f.name, &*f.symbol, &*f.full]);
            names.chain([&*frame.module.path])
        });
        self.find_name(&names.collect::<Vec<_>>())
    }

    fn find_name(&self, names: &[&str]) -> Option<usize> {
        self.0.iter().position(|suppression| {
            let mut names = names.iter();
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
            list.find_name(&[name]).is_some()
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
        assert_eq!(list.find_name(&["xcx"]), Some(1));
    }

    #[test]
    fn every_built_in_line_is_a_suppression() {
        let (list, bad) = Suppressions::parse(include_str!("suppressions.txt"));
        assert!(!list.0.is_empty() && bad.is_empty(), "{bad:?}");
    }
}
