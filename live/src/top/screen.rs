//! The process on the screen: keys and the mouse change the view, the snapshots of `reader` the model.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use larder_analysis::reading::sites::SiteId;
use larder_base::failure::Result;
use ratatui::Frame;

use super::args::TopPlan;
use super::draw::{Extra, draw};
use super::graph::History;
use super::model::Model;
use super::reader::{Answer, Ask, Reader};
use super::view::{Page, View};
use crate::process::Obstacle;
use crate::terminal::screen::{self, News, Shown, TICK};

/// The longest that a snapshot waits.
const LOOK_TICK: Duration = Duration::from_millis(10);

/// Returns the obstacle if the process has ended, or may not be read any more.
pub fn run(plan: &TopPlan, reader: Reader, model: Model) -> Result<Option<Obstacle>> {
    let mut watched = Watched {
        view: View::new(plan.sort, &plan.filter, plan.threads),
        interval: plan.interval,
        due: Instant::now() + plan.interval,
        trouble: None,
        reader,
        stacks: None,
        history: History::new(),
        model,
        ended: None,
    };
    watched.history.add(&watched.model);
    screen::run(&mut watched, "print tables with -n COUNT")?;
    Ok(watched.ended)
}

struct Watched {
    reader: Reader,
    /// Stacks of the site that was shown last.
    stacks: Option<(SiteId, Vec<String>)>,
    model: Model,
    history: History,
    view: View,
    interval: Duration,
    /// When the next snapshot is due.
    due: Instant,
    /// Why the last snapshot failed.
    trouble: Option<Obstacle>,
    ended: Option<Obstacle>,
}

impl Shown for Watched {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        let stacks = match (&self.stacks, self.view.page) {
            (Some((of, stacks)), Page::Stacks(id)) if *of == id => stacks.as_slice(),
            // The stacks follow.
            _ => &[],
        };
        let trouble = self.trouble.as_ref().map(Obstacle::to_string);
        let extra = Extra {
            stacks,
            trouble: trouble.as_deref(),
            history: &self.history,
        };
        draw(frame, &self.model, &mut self.view, &extra);
    }

    fn press(&mut self, code: KeyCode) -> ControlFlow<()> {
        self.view.press(code, &self.model)
    }

    fn click(&mut self, x: u16, y: u16) {
        self.view.click(x, y, &self.model);
    }

    fn wheel(&mut self, rows: isize) {
        self.view.wheel(rows, &self.model);
    }

    fn news(&mut self) -> io::Result<News> {
        let news = match self.reader.answer()? {
            Some(answer) => self.take_in(answer),
            None => News::Nothing,
        };
        self.ask();
        Ok(news)
    }

    fn wait(&self) -> Duration {
        if self.reader.is_busy {
            return LOOK_TICK;
        }
        if self.view.is_paused {
            return TICK;
        }
        self.due.saturating_duration_since(Instant::now()).min(TICK)
    }
}

impl Watched {
    fn ask(&mut self) {
        if self.reader.is_busy || self.ended.is_some() {
            return;
        }
        let is_due = !self.view.is_paused && Instant::now() >= self.due;
        let snapshot = is_due || self.view.to_mark;
        let shown = match self.view.page {
            Page::Stacks(id) => Some(id),
            _ => None,
        };
        let known = self.stacks.as_ref().map(|(id, _)| *id);
        let stacks = shown.filter(|_| snapshot || shown != known);
        if snapshot || stacks.is_some() {
            let mark = std::mem::take(&mut self.view.to_mark);
            self.reader.ask(Ask {
                snapshot,
                mark,
                stacks,
            });
        }
    }

    /// A snapshot that fails is reported, and the next one is tried.
    fn take_in(&mut self, answer: Answer) -> News {
        self.stacks = answer.stacks.or(self.stacks.take());
        match answer.model {
            None => return News::Changed,
            Some(Ok(model)) => {
                self.history.add(&model);
                (self.model, self.trouble) = (model, None);
            }
            Some(Err(obstacle @ Obstacle::Unsound(_))) => self.trouble = Some(obstacle),
            Some(Err(obstacle)) => {
                self.ended = Some(obstacle);
                return News::Ended;
            }
        }
        // Snapshots take up to half of the time.
        self.due = Instant::now() + self.interval.saturating_sub(answer.took).max(answer.took);
        News::Changed
    }
}
