//! The text that rows must contain, and the keys that edit it.

use crossterm::event::KeyCode;
use larder_base::printable::escape;

#[derive(Debug, Default)]
pub struct Filter {
    pub text: String,
    /// Keys go into the text.
    pub is_typing: bool,
}

impl Filter {
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            is_typing: false,
        }
    }

    /// The rows of which one of the texts contains it; case does not matter.
    pub fn passing<'r, R>(&self, rows: &'r [R], texts: impl Fn(&R) -> [&str; 2]) -> Vec<&'r R> {
        let wanted = self.text.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let passes = |row: &&R| wanted.is_empty() || texts(row).into_iter().any(has);
        rows.iter().filter(passes).collect()
    }

    /// A key while it is typed; returns whether the key was for the text.
    pub fn type_in(&mut self, code: KeyCode) -> bool {
        match code {
            KeyCode::Char(c) if !c.is_control() => self.text.push(c),
            KeyCode::Backspace => drop(self.text.pop()),
            KeyCode::Enter | KeyCode::F(4) => self.is_typing = false,
            KeyCode::Esc => *self = Self::default(),
            _ => return false,
        }
        true
    }

    /// The last line while it is typed.
    pub fn prompt(&self) -> String {
        let text = escape(&self.text);
        format!("Filter: {text}_   Enter keeps it, Esc clears it")
    }

    /// Behind the number of rows that pass.
    pub fn describe(&self) -> String {
        match self.text.is_empty() {
            true => String::new(),
            false => format!(" with \u{201c}{}\u{201d}", escape(&self.text)),
        }
    }
}
