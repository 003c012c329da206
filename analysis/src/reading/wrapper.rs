//! A program's own allocation functions: `--wrapper FUNCTION=KIND[-HEADER]`.
//!
//! With such rules only calls through one of the functions are counted, from the program's view: one
//! call of the wrapper is one call of its kind, charged to the wrapper's caller. If the wrapper adds a
//! header to each block, the header's bytes are subtracted.

use larder_base::failure::Fatal;
use larder_base::printable;

use super::family::Kind;
use super::pattern;

/// What is wrong with a rule, whose text it holds.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapperError {
    #[error("--wrapper '{}': write FUNCTION=KIND, as in my_malloc=malloc", printable::escape(.0))]
    Shape(String),
    #[error(
        "--wrapper '{}': unknown kind: use malloc, calloc, realloc, strdup, wcsdup or free",
        printable::escape(.0)
    )]
    Kind(String),
    #[error(
        "--wrapper '{}': after the kind comes the header's size in bytes, as in \
         my_malloc=malloc-16",
        printable::escape(.0)
    )]
    Header(String),
}

impl Fatal for WrapperError {}

/// The kind that a wrapper's calls count as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrapperKind {
    Allocates(Kind),
    Frees,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrapperRule {
    pub function: String,
    pub kind: WrapperKind,
    /// The bytes that the wrapper adds to the requested size.
    pub header_bytes: u64,
}

impl WrapperRule {
    /// Parses `FUNCTION=KIND[-HEADER]`; the last `=` separates, because C++ operators contain some.
    pub fn parse(text: &str) -> Result<Self, WrapperError> {
        let (function, kind) = text
            .rsplit_once('=')
            .filter(|(function, _)| !function.is_empty())
            .ok_or_else(|| WrapperError::Shape(text.to_owned()))?;
        let (kind, header) = match kind.split_once('-') {
            Some((kind, header)) => (kind, header.parse()),
            None => (kind, Ok(0)),
        };
        let header_bytes = header.map_err(|_| WrapperError::Header(text.to_owned()))?;
        let kind = match kind {
            "malloc" => WrapperKind::Allocates(Kind::Malloc),
            "calloc" => WrapperKind::Allocates(Kind::Calloc),
            "realloc" => WrapperKind::Allocates(Kind::Realloc),
            "strdup" => WrapperKind::Allocates(Kind::Strdup),
            "wcsdup" => WrapperKind::Allocates(Kind::Wcsdup),
            "free" => WrapperKind::Frees,
            _ => return Err(WrapperError::Kind(text.to_owned())),
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
        let refused = |text: &str| WrapperRule::parse(text).unwrap_err();
        for text in ["", "f", "=malloc"] {
            assert_eq!(refused(text), WrapperError::Shape(text.to_owned()));
        }
        for text in ["f=", "f=mallok"] {
            assert_eq!(refused(text), WrapperError::Kind(text.to_owned()));
        }
        for text in ["f=malloc-", "f=malloc-x"] {
            assert_eq!(refused(text), WrapperError::Header(text.to_owned()));
        }
    }
}
