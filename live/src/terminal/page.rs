//! Pages of rows below a head, of which those that fit are shown: lists, in which one is selected, and text.

use crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};

/// Where a page was drawn last.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// The screen's line with the head of the page; its rows follow.
    pub head: u16,
    /// The number of rows that fit.
    pub height: usize,
    /// The first row that was shown.
    pub first: usize,
}

impl Default for Drawn {
    fn default() -> Self {
        Self {
            head: 0,
            height: 1,
            first: 0,
        }
    }
}

impl Drawn {
    /// The number of the row at a line of the screen; there may be no such row.
    pub fn row(&self, line: u16) -> Option<usize> {
        let below = usize::from(line.checked_sub(self.head)?).checked_sub(1)?;
        (below < self.height).then_some(self.first + below)
    }

    /// Where a key leads from row `at`: `usize::MAX` to the end. `None` if it is not for moving.
    pub fn moved(&self, code: KeyCode, at: usize) -> Option<usize> {
        Some(match code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at.saturating_add(1),
            KeyCode::PageUp => at.saturating_sub(self.height),
            KeyCode::PageDown => at.saturating_add(self.height),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => return None,
        })
    }

    /// Shows row `at` of so many, and as far as that allows the rows that were shown before.
    pub fn show(&mut self, at: usize, rows: usize) {
        let height = self.height.max(1);
        let first = self.first.min(rows.saturating_sub(height));
        self.first = first.clamp((at + 1).saturating_sub(height), at);
    }

    /// Shows rows further down, or up if `by` is below zero. Returns the row that is selected then: `at`, as long as it
    /// is shown.
    pub fn wheel(&mut self, by: isize, at: usize, rows: usize) -> usize {
        let height = self.height.max(1);
        let first = self.first.saturating_add_signed(by);
        self.first = first.min(rows.saturating_sub(height));
        at.clamp(self.first, self.first + height - 1)
    }
}

pub fn head_style() -> Style {
    Style::new().fg(Color::Black).bg(Color::Green)
}

pub fn selected_style() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// The rows of a list that fit, with their styles; one is selected.
pub fn list(
    head: String,
    rows: impl Iterator<Item = (String, Style)>,
    at: usize,
    drawn: &Drawn,
) -> Text<'static> {
    let rows = rows.enumerate().skip(drawn.first).take(drawn.height);
    let rows = rows.map(|(index, (text, style))| match index == at {
        true => Line::styled(text, selected_style()),
        false => Line::styled(text, style),
    });
    std::iter::once(Line::styled(head, head_style()))
        .chain(rows)
        .collect()
}

/// The lines of a text that fit from this one on; at its end, its last ones. Longer lines than the screen's go on
/// below.
pub fn text(head: String, lines: &[String], width: u16, drawn: &mut Drawn) -> Text<'static> {
    let lines: Vec<&str> = lines.iter().flat_map(|line| folded(line, width)).collect();
    drawn.first = drawn.first.min(lines.len().saturating_sub(drawn.height));
    let shown = lines.into_iter().skip(drawn.first).take(drawn.height);
    std::iter::once(Line::styled(head, head_style()))
        .chain(shown.map(|line| Line::from(line.to_owned())))
        .collect()
}

/// A line in pieces of up to this width, which end behind a word unless that is at the beginning of a long one.
fn folded(line: &str, width: u16) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), line);
    // A character has a byte for each column or more.
    while rest.len() > usize::from(width) {
        let mut columns = 0;
        let mut ends = rest.char_indices().skip_while(|(start, c)| {
            columns += Span::raw(&rest[*start..start + c.len_utf8()]).width();
            columns <= usize::from(width.max(2))
        });
        let Some((end, _)) = ends.next() else { break };
        let word = rest[..end].rfind(' ').map(|space| space + 1);
        let end = word.filter(|word| *word > end / 2).unwrap_or(end);
        pieces.push(&rest[..end]);
        rest = &rest[end..];
    }
    pieces.push(rest);
    pieces
}

/// The last line of a screen: keys, and what each does.
pub fn keys(keys: &[(&'static str, &'static str)]) -> Vec<Span<'static>> {
    let spans = keys.iter().flat_map(|(key, what)| {
        let what = Span::styled(format!("{what} "), (Color::Black, Color::Cyan));
        [Span::raw(*key), what]
    });
    spans.collect()
}

/// What a printer for the terminal writes, as lines without colours.
pub fn lines(print: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<String> {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = print(&mut text);
    let text = anstream::adapter::strip_bytes(&text).into_vec();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_behind_words() {
        assert_eq!(folded("", 5), [""]);
        assert_eq!(folded("12345", 5), ["12345"]);
        assert_eq!(folded("  one two three", 9), ["  one ", "two three"]);
        // No word ends in the second half.
        assert_eq!(folded("  > 12345678", 9), ["  > 12345", "678"]);
        // Two columns each.
        assert_eq!(folded("読読読 読", 5), ["読読", "読 読"]);
        assert_eq!(folded("読読", 0), ["読", "読"]);
    }

    #[test]
    fn the_rows_that_are_shown_move_only_for_the_selected_one() {
        let mut drawn = Drawn {
            head: 4,
            height: 10,
            first: 0,
        };
        for (at, rows, first) in [
            (9, 50, 0),
            (10, 50, 1),
            (5, 50, 1),
            (0, 50, 0),
            (49, 50, 40),
            (44, 50, 40),
            // The list has become shorter.
            (3, 4, 0),
        ] {
            drawn.show(at, rows);
            assert_eq!(drawn.first, first, "{at} of {rows}");
        }
        drawn.first = 7;
        assert_eq!((drawn.wheel(3, 8, 50), drawn.first), (10, 10));
        assert_eq!((drawn.wheel(-99, 10, 50), drawn.first), (9, 0));
        assert_eq!((drawn.wheel(99, 9, 50), drawn.first), (40, 40));
        assert_eq!((drawn.wheel(3, 2, 4), drawn.first), (2, 0));
        drawn.first = 7;
        assert_eq!(drawn.row(4), None);
        assert_eq!(drawn.row(5), Some(7));
        assert_eq!(drawn.row(14), Some(16));
        assert_eq!(drawn.row(15), None);
        drawn.height = 0;
        drawn.show(20, 50);
        assert_eq!((drawn.first, drawn.row(5)), (20, None));
    }
}
