//! `larder top`: the heap of a running process, read from outside again and again.
//!
//! ```text
//! live, stats, profile ─> watch ─> model ─┬─> text, json              a table for each interval
//!               reader (a thread) ─> view ─┴─> draw, graph, screen <─ keys, mouse
//! ```
//!
//! Only `watch` reads the process; `screen` uses the terminal by `crate::terminal`.

mod args;
mod columns;
mod draw;
mod graph;
mod json;
mod model;
mod reader;
mod screen;
mod text;
mod view;
mod watch;

use std::io::{self, Write};
use std::time::Instant;

pub use args::{EXAMPLES, RawTop, TopPlan};

use larder_base::error::system;
use larder_base::failure::Result;
use larder_base::output;

use crate::process::Obstacle;
use crate::terminal;
use reader::Reader;
use view::View;
use watch::Watch;

pub fn top(plan: &TopPlan) -> Result<()> {
    let failure = |obstacle: Obstacle| obstacle.failure(plan.process);
    if plan.count.is_some() || plan.json || !terminal::screen::is_there() {
        let mut watch = Watch::open(plan.process, &plan.charging).map_err(failure)?;
        watch.read().map_err(failure)?;
        return tables(plan, &mut watch);
    }
    let started = Reader::start(plan.process, &plan.charging);
    let (reader, first) = started.map_err(system("a thread", "raise ulimit -u"))?;
    match screen::run(plan, reader, first.map_err(failure)?)? {
        None => Ok(()),
        Some(Obstacle::Ended | Obstacle::NoProcess) => {
            // There is nowhere to report a closed stderr.
            let _ = writeln!(io::stderr(), "larder: process {} has ended", plan.process);
            Ok(())
        }
        Some(obstacle) => Err(failure(obstacle)),
    }
}

/// One at the end of each interval. The process's end is no failure, if there was one before.
fn tables(plan: &TopPlan, watch: &mut Watch) -> Result<()> {
    let view = View::new(plan.sort, &plan.filter, plan.threads);
    let mut out = io::stdout().lock();
    let mut printed = 0;
    let mut due = Instant::now();
    while plan.count.is_none_or(|count| printed < count) {
        due = (due + plan.interval).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let model = match watch.read() {
            Ok(model) => model,
            Err(Obstacle::Ended | Obstacle::NoProcess) if printed > 0 => return Ok(()),
            Err(obstacle) => return Err(obstacle.failure(plan.process)),
        };
        let mut text = Vec::new();
        let made = match plan.json {
            true => json::print(&model, plan, &view, &mut text),
            false => text::print(&model, plan, &view, &mut text),
        };
        let written = made
            .and_then(|()| out.write_all(&text))
            .and_then(|()| out.flush());
        if !output::still_read(written)? {
            return Ok(());
        }
        printed = printed.saturating_add(1);
    }
    Ok(())
}
