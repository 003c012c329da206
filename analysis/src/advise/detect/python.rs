//! Findings at lines of Python: their cures in Python's words. Where objects lie is the interpreter's choice, so most
//! cures of native code have no words there.
//!
//! Invariant: a finding is trusted only if its line, read as text, has what the pattern would come from. Whether an
//! object is of the type that the cure is for, the cure asks.

use crate::advise::element::Types;
use crate::advise::facts::ImageFacts;
use crate::advise::finding::{Confidence, Finding, Pattern};
use crate::advise::sizes::Sizes;
use crate::reading::resolve::Language;

/// What is gathered piece by piece is at the end larger than at first by this factor.
const GATHERED: u64 = 8;

const NONE: &str = "no change of this line is known: the interpreter decides where objects lie";
const GENERATOR: &str = "pass the generator itself, without the brackets: no list is made";
const ITERATED: &str = "if the list is iterated over once, use a generator expression, with () in place of []: no \
                        list is made";
const APPENDED: &str = "if its length is known before, make the list at once, [None] * n, and assign by index; if it is \
                        iterated over once, yield the elements from a generator: no list is made";
const JOINED: &str = "each += of a text or bytes copies what was gathered: keep the pieces in a list and join() it once, \
                      or extend a bytearray";
const UNPACKED: &str =
    "read the fields where they are, without a slice: struct.unpack_from(format, data, offset)";
const VIEWED: &str =
    "if this slices bytes or a bytearray, slice a memoryview of it: that copies nothing";
const FILLED: &str = "make one bytearray outside of the loop, unless each is kept, and fill it again: readinto() or \
                      recv_into(), and a memoryview for a part of it";
const SHARED: &str = "share one: sys.intern() for texts, functools.lru_cache for a function that makes equal values again";
const BOUNDED: &str = "bound it: functools.lru_cache with a maxsize, collections.deque with a maxlen, weak references, or \
                       remove what is finished; if it is kept on purpose, this is what it costs";
const DROPPED: &str = "drop the last reference (del, clear(), weakref for a back reference), or leave it if it is kept on \
                       purpose until the end";

/// Rewords the cures of lines of Python, and trusts those of which the line has a sign. What the interpreter does by
/// itself nobody changes.
pub fn reword(image: &ImageFacts, types: &Types<'_>, findings: &mut [Finding]) {
    for finding in findings {
        let Some(frame) = image.sites[finding.site].site_frame() else {
            continue;
        };
        match frame.module.language {
            Language::Native => {}
            Language::Interpreter => finding.confidence = Confidence::Low,
            Language::Python => {
                finding.keeper = None;
                let line = types.line(frame).unwrap_or_default();
                let mut sizes = Sizes::default();
                for part in &finding.parts {
                    sizes.merge(&image.sites[part.origin].facts.buffers.largest);
                }
                let gathered = sizes.largest() >= GATHERED.saturating_mul(sizes.smallest().max(1));
                (finding.cure, finding.confidence) = match cure(finding.pattern, &line, gathered) {
                    Some((cure, None)) => (cure.into(), finding.confidence),
                    Some((cure, Some(confidence))) => (cure.into(), confidence),
                    None => (NONE.into(), Confidence::Low),
                };
            }
        }
    }
}

/// The cure, and how sure it is; `None`: as sure as the finding. `gathered`: sizes differ much.
fn cure(
    pattern: Pattern,
    line: &str,
    gathered: bool,
) -> Option<(&'static str, Option<Confidence>)> {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    let found = match pattern {
        Pattern::Duplicates => return Some((SHARED, None)),
        Pattern::Growing => return Some((BOUNDED, None)),
        Pattern::Leak => return Some((DROPPED, None)),
        Pattern::Reserve | Pattern::GrowByFactor => match line {
            _ if has(&["sum([", "any([", "all([", "max([", "min(["]) => GENERATOR,
            _ if has(&["["]) && has(&[" for "]) => ITERATED,
            _ if has(&[".append("]) => APPENDED,
            _ if pattern == Pattern::GrowByFactor && gathered && has(&["+="]) => JOINED,
            _ => return None,
        },
        Pattern::Reuse | Pattern::Stack | Pattern::Arena | Pattern::Copied => match line {
            _ if gathered && has(&["+="]) => JOINED,
            _ if has(&["unpack("]) && has_slice(line) => UNPACKED,
            _ if has_slice(line) => VIEWED,
            _ if has(&["bytearray(", ".read(", ".recv("]) => FILLED,
            _ => return None,
        },
        _ => return None,
    };
    Some((found, Some(Confidence::Medium)))
}

/// Whether brackets have a colon that is no dict's or lambda's.
fn has_slice(line: &str) -> bool {
    let mut open = Vec::new();
    line.char_indices().any(|(at, character)| {
        match character {
            '[' | '(' | '{' => open.push((character, at)),
            ']' | ')' | '}' => drop(open.pop()),
            ':' => {
                let inner = open.last().filter(|(bracket, _)| *bracket == '[');
                return inner.is_some_and(|(_, from)| !line[*from..at].contains("lambda"));
            }
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pattern: Pattern, line: &str) -> Option<&'static str> {
        cure(pattern, line, true).map(|(cure, _)| cure)
    }

    #[test]
    fn a_cure_follows_from_the_pattern_and_the_line() {
        for (pattern, line, expected) in [
            (Pattern::Reserve, "return sum([i for i in rows])", GENERATOR),
            (
                Pattern::Reserve,
                "names = [row.name for row in rows]",
                ITERATED,
            ),
            (Pattern::Reserve, "out.append(row)", APPENDED),
            (Pattern::Reuse, "text += piece", JOINED),
            (Pattern::GrowByFactor, "text += piece", JOINED),
            (
                Pattern::Reuse,
                "struct.unpack('<I', data[at:at + 4])",
                UNPACKED,
            ),
            (Pattern::Copied, "part = data[at:]", VIEWED),
            (Pattern::Reuse, "block = file.read(65536)", FILLED),
            (Pattern::Duplicates, "", SHARED),
            (Pattern::Growing, "", BOUNDED),
            (Pattern::Leak, "", DROPPED),
        ] {
            assert_eq!(words(pattern, line), Some(expected), "{line}");
        }
        for (pattern, line) in [
            (Pattern::Reserve, "seen.add(row)"),
            (Pattern::Reuse, "return json.loads(text)"),
            (Pattern::Array, "out.append(row)"),
            (Pattern::Embed, "data[1:2]"),
            (Pattern::Reuse, ""),
        ] {
            assert_eq!(words(pattern, line), None, "{line}");
        }
        assert_eq!(cure(Pattern::Reuse, "count += len(f())", false), None);
    }

    #[test]
    fn a_slice_is_no_dict_and_no_lambda() {
        for line in ["a[1:]", "f(a[:n])", "a[b[0]:c]", "x = {1: a[2:3]}"] {
            assert!(has_slice(line), "{line}");
        }
        for line in [
            "{1: 2}",
            "[lambda: 1]",
            "for x in [1]:",
            "a[{1: 2}[x]]",
            "x: int = a[1]",
            "]:[",
        ] {
            assert!(!has_slice(line), "{line}");
        }
    }
}
