//! Which part of the model is shown, and what keys change there. Does not depend on the terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use larder_analysis::reading::sites::SiteId;

use super::columns::Column;
use super::model::{Model, SiteRow};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Sites,
    Threads,
    Help,
    /// Of a site.
    Stacks(SiteId),
}

/// What the loop has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Quit,
    /// Take a snapshot, and count growth from it.
    Mark,
    /// Suspend, like a job of the shell.
    Suspend,
    /// Redraw the whole screen.
    Redraw,
}

#[derive(Debug)]
pub struct View {
    pub page: Page,
    pub sort: Column,
    pub reversed: bool,
    pub filter: String,
    /// Keys go into the filter.
    pub is_typing: bool,
    pub is_paused: bool,
    /// None: the first.
    selected: Option<SiteId>,
    /// The first line that is shown of a page other than the sites.
    pub scroll: usize,
    /// Rows that were shown last.
    pub height: usize,
}

impl View {
    pub fn new(sort: Column, filter: &str, threads: bool) -> Self {
        Self {
            page: if threads { Page::Threads } else { Page::Sites },
            sort,
            reversed: false,
            filter: filter.to_owned(),
            is_typing: false,
            is_paused: false,
            selected: None,
            scroll: 0,
            height: 1,
        }
    }

    /// Those that pass the filter, in order.
    pub fn rows<'a>(&self, model: &'a Model) -> Vec<&'a SiteRow> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let sites = model.sites.iter();
        let mut rows: Vec<&SiteRow> = sites
            .filter(|site| has(&site.name) || has(&site.place))
            .collect();
        self.sort.sort(&mut rows);
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// Where the selected site is.
    pub fn position(&self, rows: &[&SiteRow]) -> usize {
        let selected = self.selected;
        let found = selected.and_then(|id| rows.iter().position(|row| row.id == id));
        found.unwrap_or(0)
    }

    pub fn press(&mut self, key: KeyEvent, model: &Model) -> Wish {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let code = match key.code {
            KeyCode::Char('c') if control => return Wish::Quit,
            KeyCode::Char('z') if control => return Wish::Suspend,
            KeyCode::Char('l') if control => return Wish::Redraw,
            // A line feed: what is typed ahead of the screen ends so.
            KeyCode::Char('j') if control => KeyCode::Enter,
            KeyCode::Char(_) if control => return Wish::Nothing,
            code => code,
        };
        if self.is_typing {
            self.type_filter(code, model);
            return Wish::Nothing;
        }
        match code {
            KeyCode::Char('q') | KeyCode::F(10) => return Wish::Quit,
            KeyCode::Char('r') => return Wish::Mark,
            KeyCode::Char(' ' | 'p' | 'Z') => self.is_paused = !self.is_paused,
            KeyCode::Char('/' | '\\') | KeyCode::F(3 | 4) => {
                (self.page, self.is_typing) = (Page::Sites, true);
            }
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.turn_to(Page::Help),
            KeyCode::Char('t' | 'H') => self.turn_to(Page::Threads),
            KeyCode::Char('>') | KeyCode::F(6) => self.sort = self.sort.beside(1),
            KeyCode::Char('<') => self.sort = self.sort.beside(Column::ALL.len() - 1),
            KeyCode::Char('M') => self.sort = Column::InUse,
            KeyCode::Char('G') => self.sort = Column::Growth,
            KeyCode::Char('P') => self.sort = Column::Rate,
            KeyCode::Char('N') => self.sort = Column::Site,
            KeyCode::Char('I') => self.reversed = !self.reversed,
            KeyCode::Enter => {
                let rows = self.rows(model);
                match (self.page, rows.get(self.position(&rows))) {
                    (Page::Sites, Some(row)) => self.turn_to(Page::Stacks(row.id)),
                    (Page::Sites, None) => {}
                    _ => self.page = Page::Sites,
                }
            }
            KeyCode::Esc if self.page == Page::Sites => self.filter.clear(),
            KeyCode::Esc => self.page = Page::Sites,
            code => self.go(code, model),
        }
        Wish::Nothing
    }

    /// To a page, or from it to the sites.
    fn turn_to(&mut self, page: Page) {
        self.page = if self.page == page { Page::Sites } else { page };
        self.scroll = 0;
    }

    fn type_filter(&mut self, code: KeyCode, model: &Model) {
        match code {
            KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter | KeyCode::F(4) => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            code => self.go(code, model),
        }
    }

    fn go(&mut self, code: KeyCode, model: &Model) {
        let rows = self.rows(model);
        let on_sites = self.page == Page::Sites;
        let at = if on_sites {
            self.position(&rows)
        } else {
            self.scroll
        };
        let to = match code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::PageUp => at.saturating_sub(self.height),
            KeyCode::PageDown => at + self.height,
            KeyCode::Home => 0,
            // Drawing knows where the end of other pages is.
            KeyCode::End => usize::MAX,
            _ => return,
        };
        if on_sites {
            let last = rows.len().saturating_sub(1);
            self.selected = rows.get(to.min(last)).map(|row| row.id).filter(|_| to > 0);
        } else {
            self.scroll = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{model, site};
    use super::*;

    fn press(view: &mut View, model: &Model, keys: &[KeyCode]) -> Wish {
        let mut wish = Wish::Nothing;
        for code in keys {
            wish = view.press(KeyEvent::from(*code), model);
        }
        wish
    }

    fn type_in(view: &mut View, model: &Model, text: &str) {
        let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
        press(view, model, &codes);
    }

    fn three() -> Model {
        model(vec![
            site(1, "parse", 3e6, 5e5),
            site(2, "cache_insert", 9e6, 1e5),
            site(3, "read_line", 6e6, 0.0),
        ])
    }

    fn names(view: &View, model: &Model) -> Vec<String> {
        let rows = view.rows(model);
        rows.iter().map(|row| row.name.clone()).collect()
    }

    #[test]
    fn keys_end_mark_suspend_and_pause() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        assert_eq!(press(&mut view, &model, &[KeyCode::Char('q')]), Wish::Quit);
        assert_eq!(press(&mut view, &model, &[KeyCode::F(10)]), Wish::Quit);
        assert_eq!(press(&mut view, &model, &[KeyCode::Char('r')]), Wish::Mark);
        for (c, wish) in [('c', Wish::Quit), ('z', Wish::Suspend), ('l', Wish::Redraw)] {
            let key = KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
            assert_eq!(view.press(key, &model), wish);
        }
        press(&mut view, &model, &[KeyCode::Char(' ')]);
        assert!(view.is_paused);
        press(&mut view, &model, &[KeyCode::Char('Z')]);
        assert!(!view.is_paused);
    }

    #[test]
    fn the_selection_stays_with_its_site() {
        let (mut view, mut model) = (View::new(Column::InUse, "", false), three());
        press(&mut view, &model, &[KeyCode::Down, KeyCode::Down]);
        assert_eq!(view.position(&view.rows(&model)), 2);
        model.sites[0].in_use = 1e9;
        assert_eq!(view.position(&view.rows(&model)), 0);
        press(&mut view, &model, &[KeyCode::End]);
        assert_eq!(view.position(&view.rows(&model)), 2);
        press(&mut view, &model, &[KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(view.position(&view.rows(&model)), 2);
        // The first, if its site is gone.
        model.sites.retain(|site| site.name != "read_line");
        assert_eq!(view.position(&view.rows(&model)), 0);
        model.sites.clear();
        press(
            &mut view,
            &model,
            &[KeyCode::End, KeyCode::Up, KeyCode::Enter],
        );
        assert_eq!(view.page, Page::Sites);
    }

    #[test]
    fn columns_are_chosen_and_turned_around() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        assert_eq!(names(&view, &model), ["cache_insert", "read_line", "parse"]);
        press(&mut view, &model, &[KeyCode::F(6)]);
        assert_eq!(names(&view, &model), ["parse", "cache_insert", "read_line"]);
        press(&mut view, &model, &[KeyCode::Char('I')]);
        assert_eq!(names(&view, &model), ["read_line", "cache_insert", "parse"]);
        press(&mut view, &model, &[KeyCode::Char('<'), KeyCode::Char('<')]);
        assert_eq!(view.sort, Column::Site);
        for (c, column) in [
            ('M', Column::InUse),
            ('G', Column::Growth),
            ('P', Column::Rate),
            ('N', Column::Site),
        ] {
            press(&mut view, &model, &[KeyCode::Char(c)]);
            assert_eq!(view.sort, column);
        }
    }

    #[test]
    fn a_filter_is_typed_kept_and_dropped() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        type_in(&mut view, &model, "/READqx");
        assert!(view.is_typing && view.filter == "READqx");
        press(
            &mut view,
            &model,
            &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Enter],
        );
        assert_eq!(names(&view, &model), ["read_line"]);
        press(&mut view, &model, &[KeyCode::Esc]);
        assert_eq!(names(&view, &model).len(), 3);
        press(&mut view, &model, &[KeyCode::F(4)]);
        type_in(&mut view, &model, "src/parse.c:1");
        assert_eq!(names(&view, &model), ["parse"]);
        press(&mut view, &model, &[KeyCode::Esc]);
        assert!(!view.is_typing && view.filter.is_empty());
        // Other keys still move; a line feed is Enter.
        type_in(&mut view, &model, "\\r");
        press(&mut view, &model, &[KeyCode::Down]);
        assert_eq!(view.position(&view.rows(&model)), 1);
        view.press(
            KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL),
            &model,
        );
        assert!(!view.is_typing && view.filter == "r");
    }

    #[test]
    fn pages_are_turned_to_and_back() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        press(&mut view, &model, &[KeyCode::Down, KeyCode::Enter]);
        assert_eq!(view.page, Page::Stacks(SiteId(3)));
        press(&mut view, &model, &[KeyCode::Esc, KeyCode::Char('H')]);
        assert_eq!(view.page, Page::Threads);
        press(&mut view, &model, &[KeyCode::Down, KeyCode::Char('?')]);
        assert_eq!((view.page, view.scroll), (Page::Help, 0));
        press(&mut view, &model, &[KeyCode::F(1)]);
        assert_eq!(view.page, Page::Sites);
    }
}
