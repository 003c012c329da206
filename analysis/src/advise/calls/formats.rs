//! Formats of one conversion, which a plain conversion does without printf: a number, a character or a text, alone
//! or between constant text. What the format says is read from the file that it is a constant of.
//!
//! Memory: by the pairs of stacks and formats. Time: a map look-up a format.

use std::collections::HashMap;

use larder_trace::{Action, Event, StackId};

use super::{Concluded, Conclusion, Figures, Pattern};

/// What one conversion writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    Signed,
    Unsigned,
    Character,
    Text,
}

impl Conversion {
    /// That of a format which has one, without a width, a precision or flags.
    pub fn only(format: &str) -> Option<Conversion> {
        let (_, conversion) = format.split_once('%')?;
        let length = ["hh", "h", "ll", "l", "z", "j", "t"];
        let length = length.iter().find(|word| conversion.starts_with(**word));
        let rest = &conversion[length.map_or(0, |word| word.len())..];
        let mut rest = rest.chars();
        let kind = match (rest.next()?, length) {
            ('d' | 'i', _) => Conversion::Signed,
            ('u', _) => Conversion::Unsigned,
            ('c', None | Some(&"l")) => Conversion::Character,
            ('s', None) => Conversion::Text,
            _ => return None,
        };
        (!rest.as_str().contains('%')).then_some(kind)
    }

    pub fn noun(self) -> &'static str {
        match self {
            Conversion::Signed | Conversion::Unsigned => "one integer",
            Conversion::Character => "one character",
            Conversion::Text => "one text",
        }
    }

    pub fn cure(self) -> &'static str {
        match self {
            Conversion::Signed | Conversion::Unsigned => {
                "write the digits by a plain conversion (std::to_chars in C++), and the constant text around them by \
                 its length"
            }
            Conversion::Character => {
                "put or store the character itself: putc, and of a wide one the bytes, by wctob if it is one byte, \
                 else by wcrtomb"
            }
            Conversion::Text => {
                "copy the text by its length, or pass it to fputs; the constant text around it likewise"
            }
        }
    }
}

#[derive(Default)]
pub struct Formats {
    /// By stack and the address of the format.
    made: HashMap<(StackId, u64), u64>,
}

impl Formats {
    pub fn event(&mut self, event: &Event) {
        if let Action::Copy {
            call,
            source,
            stack,
            rate: 0,
            ..
        } = event.action
            && call.formats()
            // Their format is their caller's.
            && !call.name().starts_with('v')
        {
            *self.made.entry((stack, source)).or_default() += 1;
        }
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        for ((stack, format), calls) in self.made {
            concluded.found.push(Conclusion {
                pattern: Pattern::OneConversion,
                stack,
                other: None,
                format: Some(format),
                figures: Figures {
                    calls,
                    of: calls,
                    ..Figures::default()
                },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_of_one_plain_conversion_is_known() {
        use Conversion::*;
        for (format, wanted) in [
            ("%d", Some(Signed)),
            ("row %zu;\n", Some(Unsigned)),
            ("%hhu", Some(Unsigned)),
            ("%lld", Some(Signed)),
            ("%c", Some(Character)),
            ("%lc", Some(Character)),
            ("name=%s;", Some(Text)),
            ("%ls", None),
            ("%llc", None),
            ("%5d", None),
            ("%-s", None),
            ("%.3s", None),
            ("%x", None),
            ("%g", None),
            ("%n", None),
            ("%d%d", None),
            ("%d%%", None),
            ("%%", None),
            ("%", None),
            ("%l", None),
            ("text", None),
            ("", None),
        ] {
            assert_eq!(Conversion::only(format), wanted, "{format}");
        }
    }
}
