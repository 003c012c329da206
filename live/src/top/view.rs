//! Which part of the model is shown, and what keys and the mouse change there. Does not depend on the terminal.

use std::ops::ControlFlow;

use crossterm::event::KeyCode;
use larder_analysis::reading::sites::SiteId;

use super::columns::Column;
use super::model::{Model, SiteRow};
use crate::terminal::filter::Filter;
use crate::terminal::list::List;
use crate::terminal::page::Drawn;
use crate::terminal::table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Sites,
    Threads,
    Help,
    /// Of a site.
    Stacks(SiteId),
}

#[derive(Debug)]
pub struct View {
    pub page: Page,
    pub sort: Column,
    pub reversed: bool,
    pub filter: Filter,
    pub is_paused: bool,
    /// Growth is to be counted from the next snapshot on.
    pub to_mark: bool,
    pub list: List<SiteId>,
    /// Where a page other than the sites was drawn last.
    pub text: Drawn,
}

impl View {
    pub fn new(sort: Column, filter: &str, threads: bool) -> Self {
        Self {
            page: if threads { Page::Threads } else { Page::Sites },
            sort,
            reversed: false,
            filter: Filter::new(filter),
            is_paused: false,
            to_mark: false,
            list: List::default(),
            text: Drawn::default(),
        }
    }

    /// Those that pass the filter, in order.
    pub fn rows<'a>(&self, model: &'a Model) -> Vec<&'a SiteRow> {
        let mut rows = self
            .filter
            .passing(&model.sites, |site| [&site.name, &site.place]);
        self.sort.sort(&mut rows);
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    fn ids(&self, model: &Model) -> Vec<SiteId> {
        self.rows(model).iter().map(|row| row.id).collect()
    }

    /// Breaks if that ends the screen.
    pub fn press(&mut self, code: KeyCode, model: &Model) -> ControlFlow<()> {
        if self.filter.is_typing && self.filter.type_in(code) {
            return ControlFlow::Continue(());
        }
        match code {
            _ if self.filter.is_typing => self.go(code, model),
            KeyCode::Char('q') | KeyCode::F(10) => return ControlFlow::Break(()),
            KeyCode::Char('r') => self.to_mark = true,
            KeyCode::Char(' ' | 'p' | 'Z') => self.is_paused = !self.is_paused,
            KeyCode::Char('/' | '\\') | KeyCode::F(3 | 4) => {
                (self.page, self.filter.is_typing) = (Page::Sites, true);
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
                let selected = self.list.selected(&self.ids(model));
                match (self.page, selected) {
                    (Page::Sites, Some(id)) => self.turn_to(Page::Stacks(id)),
                    (Page::Sites, None) => {}
                    _ => self.page = Page::Sites,
                }
            }
            KeyCode::Esc if self.page == Page::Sites => self.filter = Filter::default(),
            KeyCode::Esc => self.page = Page::Sites,
            code => self.go(code, model),
        }
        ControlFlow::Continue(())
    }

    /// On the head of a column: sorts by it, or the other way round if that is so already. On a site: selects it, or
    /// opens it if that is so already.
    pub fn click(&mut self, x: u16, y: u16, model: &Model) {
        if self.page != Page::Sites {
            return;
        }
        if y == self.list.drawn.head {
            match table::column_at(&Column::ALL, Column::width, x) {
                Some(column) if column == self.sort => self.reversed = !self.reversed,
                column => self.sort = column.unwrap_or(self.sort),
            }
            return;
        }
        if let Some(id) = self.list.click(y, &self.ids(model)) {
            self.turn_to(Page::Stacks(id));
        }
    }

    pub fn wheel(&mut self, by: isize, model: &Model) {
        match self.page {
            Page::Sites => self.list.wheel(by, &self.ids(model)),
            _ => self.text.first = self.text.first.saturating_add_signed(by),
        }
    }

    /// To a page, or from it to the sites.
    fn turn_to(&mut self, page: Page) {
        self.page = if self.page == page { Page::Sites } else { page };
        self.text.first = 0;
    }

    fn go(&mut self, code: KeyCode, model: &Model) {
        if self.page == Page::Sites {
            self.list.press(code, &self.ids(model));
        } else if let Some(to) = self.text.moved(code, self.text.first) {
            // Drawing knows where the end is.
            self.text.first = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{model, site};
    use super::*;

    fn press(view: &mut View, model: &Model, keys: &[KeyCode]) -> ControlFlow<()> {
        keys.iter().try_for_each(|code| view.press(*code, model))
    }

    fn type_in(view: &mut View, model: &Model, text: &str) {
        let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
        let _ = press(view, model, &codes);
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
    fn keys_end_mark_and_pause() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        for code in [KeyCode::Char('q'), KeyCode::F(10)] {
            assert!(press(&mut view, &model, &[code]).is_break());
        }
        assert!(press(&mut view, &model, &[KeyCode::Char('r')]).is_continue() && view.to_mark);
        let _ = press(&mut view, &model, &[KeyCode::Char(' ')]);
        assert!(view.is_paused);
        let _ = press(&mut view, &model, &[KeyCode::Char('Z')]);
        assert!(!view.is_paused);
    }

    #[test]
    fn the_selection_stays_with_its_site() {
        let (mut view, mut model) = (View::new(Column::InUse, "", false), three());
        let _ = press(&mut view, &model, &[KeyCode::Down, KeyCode::Down]);
        assert_eq!(view.list.position(&view.ids(&model)), 2);
        model.sites[0].in_use = 1e9;
        assert_eq!(view.list.position(&view.ids(&model)), 0);
        let _ = press(&mut view, &model, &[KeyCode::End]);
        assert_eq!(view.list.position(&view.ids(&model)), 2);
        let _ = press(&mut view, &model, &[KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(view.list.position(&view.ids(&model)), 2);
        // The first, if its site is gone.
        model.sites.retain(|site| site.name != "read_line");
        assert_eq!(view.list.position(&view.ids(&model)), 0);
        model.sites.clear();
        let _ = press(
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
        let _ = press(&mut view, &model, &[KeyCode::F(6)]);
        assert_eq!(names(&view, &model), ["parse", "cache_insert", "read_line"]);
        let _ = press(&mut view, &model, &[KeyCode::Char('I')]);
        assert_eq!(names(&view, &model), ["read_line", "cache_insert", "parse"]);
        let _ = press(&mut view, &model, &[KeyCode::Char('<'), KeyCode::Char('<')]);
        assert_eq!(view.sort, Column::Site);
        for (c, column) in [
            ('M', Column::InUse),
            ('G', Column::Growth),
            ('P', Column::Rate),
            ('N', Column::Site),
        ] {
            let _ = press(&mut view, &model, &[KeyCode::Char(c)]);
            assert_eq!(view.sort, column);
        }
    }

    #[test]
    fn a_filter_is_typed_kept_and_dropped() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        type_in(&mut view, &model, "/READqx");
        assert!(view.filter.is_typing && view.filter.text == "READqx");
        let _ = press(
            &mut view,
            &model,
            &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Enter],
        );
        assert_eq!(names(&view, &model), ["read_line"]);
        let _ = press(&mut view, &model, &[KeyCode::Esc]);
        assert_eq!(names(&view, &model).len(), 3);
        let _ = press(&mut view, &model, &[KeyCode::F(4)]);
        type_in(&mut view, &model, "src/parse.c:1");
        assert_eq!(names(&view, &model), ["parse"]);
        let _ = press(&mut view, &model, &[KeyCode::Esc]);
        assert!(!view.filter.is_typing && view.filter.text.is_empty());
        // Other keys still move.
        type_in(&mut view, &model, "\\r");
        let _ = press(&mut view, &model, &[KeyCode::Down]);
        assert_eq!(view.list.position(&view.ids(&model)), 1);
        let _ = press(&mut view, &model, &[KeyCode::Enter]);
        assert!(!view.filter.is_typing && view.filter.text == "r");
    }

    #[test]
    fn pages_are_turned_to_and_back() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        let _ = press(&mut view, &model, &[KeyCode::Down, KeyCode::Enter]);
        assert_eq!(view.page, Page::Stacks(SiteId(3)));
        let _ = press(&mut view, &model, &[KeyCode::Esc, KeyCode::Char('H')]);
        assert_eq!(view.page, Page::Threads);
        let _ = press(&mut view, &model, &[KeyCode::Down, KeyCode::Char('?')]);
        assert_eq!((view.page, view.text.first), (Page::Help, 0));
        let _ = press(&mut view, &model, &[KeyCode::F(1)]);
        assert_eq!(view.page, Page::Sites);
    }

    #[test]
    fn a_click_sorts_selects_and_opens_and_the_wheel_scrolls() {
        let (mut view, model) = (View::new(Column::InUse, "", false), three());
        view.list.drawn = Drawn {
            head: 9,
            height: 2,
            first: 0,
        };
        view.click(24, 9, &model);
        assert_eq!((view.sort, view.reversed), (Column::Growth, false));
        view.click(24, 9, &model);
        assert_eq!((view.sort, view.reversed), (Column::Growth, true));
        assert_eq!(names(&view, &model), ["read_line", "cache_insert", "parse"]);
        view.click(0, 11, &model);
        assert_eq!(view.list.position(&view.ids(&model)), 1);
        // Neither the third row, which is not drawn, nor what is above the table.
        view.click(0, 12, &model);
        view.click(0, 2, &model);
        assert_eq!(view.list.position(&view.ids(&model)), 1);
        view.wheel(3, &model);
        assert_eq!(
            (view.list.drawn.first, view.list.position(&view.ids(&model))),
            (1, 1)
        );
        view.wheel(-3, &model);
        assert_eq!(
            (view.list.drawn.first, view.list.position(&view.ids(&model))),
            (0, 1)
        );
        view.click(0, 11, &model);
        assert_eq!(view.page, Page::Stacks(SiteId(2)));
        view.wheel(3, &model);
        view.click(0, 10, &model);
        assert_eq!((view.page, view.text.first), (Page::Stacks(SiteId(2)), 3));
    }
}
