//! A program's own allocation functions: `--wrapper FUNCTION=KIND[-HEADER]`.
//!
//! With such rules only what passes through one of the functions is counted, as the program sees
//! it: one call of the wrapper is one call of its kind, charged to the wrapper's caller. A wrapper that
//! asks for a header of its own in front of each block has the header's bytes taken off.

use larder_base::failure::{Failure, Result};
use larder_base::printable;

use super::family::Kind;
use super::pattern;

/// What a wrapper's calls are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrapperKind {
    Allocates(Kind),
    Frees,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrapperRule {
    pub function: String,
    pub kind: WrapperKind,
    /// What the wrapper adds to the size its caller asked for.
    pub header_bytes: u64,
}

impl WrapperRule {
    /// Parses `FUNCTION=KIND[-HEADER]`; the last `=` divides, as C++ operators have some.
    pub fn parse(text: &str) -> Result<Self> {
        let shown = printable::escape(text);
        let (function, kind) = text
            .rsplit_once('=')
            .filter(|(function, _)| !function.is_empty())
            .ok_or_else(|| {
                Failure::failed(format!(
                    "--wrapper '{shown}': write FUNCTION=KIND, as in my_malloc=malloc"
                ))
            })?;
        let (kind, header_bytes) = match kind.split_once('-') {
            Some((kind, header)) => (kind, parse_header(header, &shown)?),
            None => (kind, 0),
        };
        let kind = match kind {
            "malloc" => WrapperKind::Allocates(Kind::Malloc),
            "calloc" => WrapperKind::Allocates(Kind::Calloc),
            "realloc" => WrapperKind::Allocates(Kind::Realloc),
            "strdup" => WrapperKind::Allocates(Kind::Strdup),
            "wcsdup" => WrapperKind::Allocates(Kind::Wcsdup),
            "free" => WrapperKind::Frees,
            _ => {
                return Err(Failure::failed(format!(
                    "--wrapper '{shown}': unknown kind: use malloc, calloc, realloc, strdup, \
                     wcsdup or free"
                )));
            }
        };
        Ok(Self {
            function: function.to_owned(),
            kind,
            header_bytes,
        })
    }

    pub fn matches(&self, function: &str) -> bool {
        pattern::matches(&self.function, function)
    }
}

fn parse_header(header: &str, shown: &str) -> Result<u64> {
    header.parse().map_err(|_| {
        Failure::failed(format!(
            "--wrapper '{shown}': after the kind comes the header's size in bytes, as in \
             my_malloc=malloc-16"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_equals_sign_divides() {
        let rule = WrapperRule::parse("Pool::operator===malloc").unwrap();
        assert_eq!(rule.function, "Pool::operator==");
        assert_eq!(rule.kind, WrapperKind::Allocates(Kind::Malloc));
        assert_eq!(
            WrapperRule::parse("my_free=free").unwrap().kind,
            WrapperKind::Frees
        );
        assert_eq!(WrapperRule::parse("m=calloc-16").unwrap().header_bytes, 16);
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in [
            "",
            "f",
            "=malloc",
            "f=",
            "f=mallok",
            "f=malloc-",
            "f=malloc-x",
        ] {
            let failure = WrapperRule::parse(text).unwrap_err();
            assert!(failure.message.contains("--wrapper"), "{failure}");
        }
    }
}
