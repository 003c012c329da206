//! Makes names from outside (paths, arguments, symbols, file names in debug information) safe to print:
//! the terminal does not interpret anything in them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Escapes control characters, invisible and direction-changing characters, and backslashes.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        push_escaped(&mut out, c);
    }
    Cow::Owned(out)
}

/// The same for bytes that may not be UTF-8: invalid ones become `\xNN`.
pub fn escape_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped(&mut out, c);
        }
        for byte in chunk.invalid() {
            push_hex(&mut out, *byte);
        }
    }
    out
}

/// A path or an argument, in the form for messages.
pub fn name(text: impl AsRef<OsStr>) -> String {
    escape_bytes(text.as_ref().as_bytes())
}

/// JSON text that escapes, beyond JSON's own rules, what a terminal would interpret.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    let unsafe_char = |c: char| (c.is_control() && c != '\n') || changes_direction(c);
    if !text.chars().any(unsafe_char) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if unsafe_char(c) {
            let _ = write!(out, "\\u{:04x}", c as u32);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a terminal shows the character and does nothing else.
pub fn is_plain(c: char) -> bool {
    !c.is_control() && !changes_direction(c)
}

fn needs_escape(c: char) -> bool {
    c == '\\' || !is_plain(c)
}

/// Characters that reorder or hide the text around them on a terminal.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if c.is_ascii_control() => push_hex(out, c as u8),
        c if needs_escape(c) => {
            let _ = write!(out, "\\u{{{:x}}}", c as u32);
        }
        c => out.push(c),
    }
}

fn push_hex(out: &mut String, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_left_alone() {
        assert_eq!(escape("src/größe.c"), "src/größe.c");
    }

    #[test]
    fn terminal_escapes_are_shown_not_sent() {
        assert_eq!(escape("\u{1b}[2Jevil\u{7}"), "\\x1b[2Jevil\\x07");
        assert_eq!(escape("a\u{9b}31m"), "a\\u{9b}31m");
        assert_eq!(escape("gnp\u{202e}exe"), "gnp\\u{202e}exe");
    }

    #[test]
    fn json_keeps_its_meaning_and_loses_its_controls() {
        assert_eq!(
            escape_json("{\n\"a\": \"\u{9b}1m\u{7f}\"}"),
            "{\n\"a\": \"\\u009b1m\\u007f\"}"
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_become_hex() {
        assert_eq!(escape_bytes(b"a\xff b\n"), "a\\xff b\\n");
    }

    #[test]
    fn a_backslash_cannot_be_mistaken_for_an_escape() {
        assert_eq!(escape("a\\x1b"), "a\\\\x1b");
    }
}
