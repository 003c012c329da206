//! A list of rows, one of which is selected, by keys and by the mouse. The selection stays with its row.

use crossterm::event::KeyCode;

use super::page::Drawn;

#[derive(Debug)]
pub struct List<K> {
    /// None: the first.
    selected: Option<K>,
    /// Where it was drawn last.
    pub drawn: Drawn,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self {
            selected: None,
            drawn: Drawn::default(),
        }
    }
}

impl<K: Copy + PartialEq> List<K> {
    /// Where the selected row is among these.
    pub fn position(&self, rows: &[K]) -> usize {
        let selected = self.selected;
        let found = selected.and_then(|key| rows.iter().position(|row| *row == key));
        found.unwrap_or(0)
    }

    /// `None` if there is no row.
    pub fn selected(&self, rows: &[K]) -> Option<K> {
        rows.get(self.position(rows)).copied()
    }

    /// The last row, beyond the end.
    pub fn select(&mut self, at: usize, rows: &[K]) {
        let last = rows.len().saturating_sub(1);
        self.selected = rows.get(at.min(last)).copied().filter(|_| at > 0);
    }

    /// Does nothing if the key is not for moving.
    pub fn press(&mut self, code: KeyCode, rows: &[K]) {
        if let Some(to) = self.drawn.moved(code, self.position(rows)) {
            self.select(to, rows);
        }
    }

    /// Selects the row at this line; returns it if it is selected already.
    pub fn click(&mut self, line: u16, rows: &[K]) -> Option<K> {
        let at = self.drawn.row(line)?;
        let row = *rows.get(at)?;
        if at == self.position(rows) {
            return Some(row);
        }
        self.select(at, rows);
        None
    }

    pub fn wheel(&mut self, by: isize, rows: &[K]) {
        let at = self.drawn.wheel(by, self.position(rows), rows.len());
        self.select(at, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_stays_with_its_row_and_the_first_is_the_first_whatever_it_is() {
        let mut list = List::default();
        let rows = [7, 8, 9];
        list.press(KeyCode::Down, &rows);
        assert_eq!(list.selected(&rows), Some(8));
        assert_eq!(list.position(&[9, 7, 8]), 2);
        // It is gone.
        assert_eq!(list.selected(&[9, 7]), Some(9));
        list.press(KeyCode::End, &rows);
        assert_eq!(list.selected(&rows), Some(9));
        list.press(KeyCode::Home, &rows);
        assert_eq!(list.selected(&[1, 7]), Some(1));
        list.press(KeyCode::Down, &[]);
        assert_eq!(list.selected(&[]), None);
    }

    #[test]
    fn a_second_click_returns_the_row() {
        let mut list = List::default();
        list.drawn.height = 2;
        let rows = [7, 8, 9];
        assert_eq!(list.click(2, &rows), None);
        assert_eq!(list.click(2, &rows), Some(8));
        // The third row is not drawn.
        assert_eq!((list.click(3, &rows), list.position(&rows)), (None, 1));
        assert_eq!((list.click(0, &rows), list.position(&rows)), (None, 1));
    }
}
