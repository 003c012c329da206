//! Which part of the trace is shown, and what keys and the mouse change there.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use crossterm::event::KeyCode;
use larder_analysis::calls::Direction;
use larder_analysis::reading::sites::SiteId;
use larder_analysis::reading::subject::Subject;
use ratatui::Frame;

use super::args::ViewPlan;
use super::branches::Branches;
use super::columns::{self, Column};
use super::draw::{HELP, draw};
use super::findings::Findings;
use super::model::{Model, SiteRow, Text};
use crate::terminal::filter::Filter;
use crate::terminal::list::List;
use crate::terminal::page::Drawn;
use crate::terminal::screen::{News, Shown, TICK};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Sites,
    Stacks,
    /// Callers or callees.
    Tree,
    Findings,
    Finding,
    Help,
}

pub struct Explorer {
    subject: Subject,
    pub model: Model,
    pub page: Page,
    pub sort: Column,
    pub reversed: bool,
    pub filter: Filter,
    pub sites: List<SiteId>,
    /// The last one.
    pub branches: Option<Branches>,
    pub findings: Findings,
    pub finding: List<usize>,
    /// The page of text that is shown, and where it was drawn last.
    pub text: Text,
    pub drawn: Drawn,
    /// The screen's, when it was drawn last.
    pub width: u16,
}

impl Explorer {
    pub fn new(plan: ViewPlan, model: Model) -> Self {
        Self {
            subject: plan.subject,
            model,
            page: Page::Sites,
            sort: plan.sort,
            reversed: false,
            filter: Filter::new(&plan.filter),
            sites: List::default(),
            branches: None,
            findings: Findings::default(),
            finding: List::default(),
            text: Text::default(),
            drawn: Drawn::default(),
            width: 0,
        }
    }

    /// Those that pass the filter, in order.
    pub fn rows(&self) -> Vec<&SiteRow> {
        let mut rows = self
            .filter
            .passing(&self.model.sites, |site| [&site.name, &site.place]);
        self.sort.sort(&mut rows);
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    pub fn ids(&self) -> Vec<SiteId> {
        self.rows().iter().map(|row| row.id).collect()
    }

    pub fn finding_rows(&self) -> Vec<usize> {
        (0..self.findings.found().len()).collect()
    }

    /// To a page of text, at its beginning.
    fn show(&mut self, page: Page, text: Text) {
        (self.page, self.text, self.drawn.first) = (page, text, 0);
    }

    fn show_stacks(&mut self, id: SiteId) {
        let text = self.model.stacks_of(id, self.sort);
        self.show(Page::Stacks, text);
    }

    fn show_finding(&mut self, at: usize) {
        if let Some(found) = self.findings.found().get(at).cloned() {
            self.show(Page::Finding, found);
        }
    }

    /// Of the function that is selected in a tree, else of the selected site's.
    fn show_tree(&mut self, direction: Direction) {
        let root = match (self.page, &self.branches) {
            (Page::Tree, Some(branches)) => branches.selected(),
            _ => {
                let site = self.sites.selected(&self.ids());
                site.and_then(|id| self.model.function(id))
            }
        };
        if let Some(root) = root {
            let tree = self.model.tree(root, direction);
            self.branches = Some(Branches::new(root, tree));
            self.page = Page::Tree;
        }
    }

    fn enter(&mut self) {
        match self.page {
            Page::Sites => {
                if let Some(id) = self.sites.selected(&self.ids()) {
                    self.show_stacks(id);
                }
            }
            Page::Tree => self.branches.iter_mut().for_each(Branches::turn),
            Page::Findings => {
                if let Some(at) = self.finding.selected(&self.finding_rows()) {
                    self.show_finding(at);
                }
            }
            Page::Stacks | Page::Finding | Page::Help => self.back(),
        }
    }

    fn back(&mut self) {
        match self.page {
            Page::Sites => self.filter = Filter::default(),
            Page::Finding => self.page = Page::Findings,
            _ => self.page = Page::Sites,
        }
    }

    fn go(&mut self, code: KeyCode) {
        match (self.page, &mut self.branches) {
            (Page::Sites, _) => {
                let rows = self.ids();
                self.sites.press(code, &rows);
            }
            (Page::Findings, _) => {
                let rows = self.finding_rows();
                self.finding.press(code, &rows);
            }
            (Page::Tree, Some(branches)) => match code {
                KeyCode::Char(' ') => branches.turn(),
                KeyCode::Right | KeyCode::Char('+') => branches.open(),
                KeyCode::Left | KeyCode::Char('-') => branches.close(),
                code => {
                    let rows = branches.nodes();
                    branches.list.press(code, &rows);
                }
            },
            _ => {
                let moved = self.drawn.moved(code, self.drawn.first);
                // Drawing knows where the end is.
                self.drawn.first = moved.unwrap_or(self.drawn.first);
            }
        }
    }

    fn sort_by(&mut self, column: Column) {
        (self.sort, self.page) = (column, Page::Sites);
    }
}

impl Shown for Explorer {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        draw(frame, self);
    }

    fn press(&mut self, code: KeyCode) -> ControlFlow<()> {
        if self.filter.is_typing && self.filter.type_in(code) {
            return ControlFlow::Continue(());
        }
        match code {
            _ if self.filter.is_typing => self.go(code),
            KeyCode::Char('q') | KeyCode::F(10) => return ControlFlow::Break(()),
            KeyCode::Char('/' | '\\') | KeyCode::F(3 | 4) => {
                (self.page, self.filter.is_typing) = (Page::Sites, true);
            }
            KeyCode::Char('?' | 'h') | KeyCode::F(1) if self.page == Page::Help => self.back(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                let help = Text {
                    title: " KEYS AND COLUMNS".to_owned(),
                    lines: HELP.lines().map(str::to_owned).collect(),
                };
                self.show(Page::Help, help);
            }
            KeyCode::Char('f') if self.page == Page::Findings => self.back(),
            KeyCode::Char('f') => {
                self.findings.ask(&self.subject);
                self.page = Page::Findings;
            }
            KeyCode::Char('c') => self.show_tree(Direction::Callers),
            KeyCode::Char('e') => self.show_tree(Direction::Callees),
            KeyCode::Char('>') | KeyCode::F(6) => self.sort_by(self.sort.beside(1)),
            KeyCode::Char('<') => self.sort_by(self.sort.beside(Column::ALL.len() - 1)),
            KeyCode::Char('I') => self.reversed = !self.reversed,
            KeyCode::Enter => self.enter(),
            KeyCode::Esc => self.back(),
            KeyCode::Char(key) => match Column::of_key(key) {
                Some(column) => self.sort_by(column),
                None => self.go(code),
            },
            code => self.go(code),
        }
        ControlFlow::Continue(())
    }

    /// On the head of a column: sorts by it, or the other way round if that is so already. On a row: selects it, or
    /// opens it if that is so already.
    fn click(&mut self, x: u16, y: u16) {
        match (self.page, &mut self.branches) {
            (Page::Sites, _) if y == self.sites.drawn.head => {
                match columns::at(x, self.width, self.sort) {
                    Some(column) if column == self.sort => self.reversed = !self.reversed,
                    column => self.sort = column.unwrap_or(self.sort),
                }
            }
            (Page::Sites, _) => {
                let rows = self.ids();
                if let Some(id) = self.sites.click(y, &rows) {
                    self.show_stacks(id);
                }
            }
            (Page::Findings, _) => {
                let rows = self.finding_rows();
                if let Some(at) = self.finding.click(y, &rows) {
                    self.show_finding(at);
                }
            }
            (Page::Tree, Some(branches)) => {
                let rows = branches.nodes();
                if branches.list.click(y, &rows).is_some() {
                    branches.turn();
                }
            }
            _ => {}
        }
    }

    fn wheel(&mut self, by: isize) {
        match (self.page, &mut self.branches) {
            (Page::Sites, _) => {
                let rows = self.ids();
                self.sites.wheel(by, &rows);
            }
            (Page::Findings, _) => {
                let rows = self.finding_rows();
                self.finding.wheel(by, &rows);
            }
            (Page::Tree, Some(branches)) => {
                let rows = branches.nodes();
                branches.list.wheel(by, &rows);
            }
            _ => self.drawn.first = self.drawn.first.saturating_add_signed(by),
        }
    }

    fn news(&mut self) -> io::Result<News> {
        Ok(match self.findings.look() && self.page == Page::Findings {
            true => News::Changed,
            false => News::Nothing,
        })
    }

    fn wait(&self) -> Duration {
        TICK
    }
}
