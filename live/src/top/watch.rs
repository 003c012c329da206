//! Takes snapshots of one process: reads it, names its sites, and computes what changed.
//!
//! The time of a snapshot grows with the heap and with the sites' stacks (see `process`); symbols are
//! loaded once. Memory grows with the stacks of two snapshots, and with the symbols.

use std::slice;
use std::time::{Duration, Instant};

use larder_analysis::reading::naming;
use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::sites::SiteId;
use larder_base::number::counted;
use larder_base::order;

use super::model::{self, Counters, Model};
use crate::process::{Obstacle, Process};
use crate::profile::{HeapProfile, Profiled, with_modules};
use crate::stats::Snapshot;
use crate::terminal::page;
use crate::terminal::table::size;

/// Of a site, shown with Enter.
const MOST_STACKS: usize = 20;
const TRIES: usize = 3;
const WAIT: Duration = Duration::from_millis(100);

pub struct Watch {
    process: Process,
    profiled: Profiled,
    began: Instant,
    /// Where growth is counted from; none: from the next snapshot.
    mark: Option<(Instant, HeapProfile)>,
    last: Option<(Instant, Counters)>,
}

impl Watch {
    pub fn open(id: u32, charging: &Charging) -> Result<Self, Obstacle> {
        Ok(Self {
            process: Process::open(id)?,
            profiled: Profiled::charging(charging.clone()),
            began: Instant::now(),
            mark: None,
            last: None,
        })
    }

    /// Tries again if the process changed while it was read. If that does not help, exec may have made
    /// another program of it: opens it anew, and counts from there.
    pub fn read(&mut self) -> Result<Model, Obstacle> {
        for _ in 0..TRIES {
            match self.read_once() {
                Err(Obstacle::Unsound(_)) => {}
                done => return done,
            }
        }
        let mut done = self.read_as_another();
        for _ in 1..TRIES {
            // It may still load its libraries.
            if !matches!(done, Err(Obstacle::NotLarder | Obstacle::Unsound(_))) {
                break;
            }
            std::thread::sleep(WAIT);
            done = self.read_as_another();
        }
        done
    }

    fn read_as_another(&mut self) -> Result<Model, Obstacle> {
        self.process = Process::open(self.process.id())?;
        (self.mark, self.last) = (None, None);
        self.read_once()
    }

    fn read_once(&mut self) -> Result<Model, Obstacle> {
        let at = Instant::now();
        let seen = self.process.profile()?;
        let snapshot = Snapshot::beside(&self.process, &seen)?;
        let left_out = seen.unsound;
        let profile = with_modules(&self.process, seen)?;
        let (marked, base) = self.mark.get_or_insert_with(|| (at, profile.clone()));
        let since_mark = at.duration_since(*marked);
        self.profiled
            .read_again(slice::from_ref(&profile), Some(slice::from_ref(base)));
        let now = Counters::of(&self.profiled, &snapshot);
        let last = self.last.as_ref();
        let before =
            last.map(|(last, counters)| (counters, at.duration_since(*last).as_secs_f64()));
        let model = Model {
            watched: at.duration_since(self.began),
            since_mark,
            total: model::total(&self.profiled, before, &now),
            sites: model::sites(&self.profiled, before, &now),
            threads: model::threads(&snapshot, before),
            snapshot,
            left_out,
        };
        self.last = Some((at, now));
        Ok(model)
    }

    /// Growth is counted from the next snapshot on.
    pub fn mark(&mut self) {
        self.mark = None;
    }

    /// The stacks of a site as printable lines, in descending order of what they hold.
    pub fn stacks(&self, id: SiteId) -> Vec<String> {
        let Some(site) = self.profiled.sites.iter().find(|site| site.id() == id) else {
            return Vec::new();
        };
        let rows = site.rows.iter().filter_map(|i| self.profiled.rows.get(*i));
        let mut rows: Vec<_> = rows.collect();
        order::sort_by(&mut rows, |a, b| {
            b.figures.in_use.bytes.total_cmp(&a.figures.in_use.bytes)
        });
        let mut lines = Vec::new();
        for row in rows.iter().take(MOST_STACKS) {
            let figures = &row.figures;
            lines.push(format!(
                "{} in use in {} ({})",
                size(figures.in_use.bytes),
                counted(figures.in_use.objects.round() as u64, "object"),
                counted(figures.spread.samples.round() as u64, "sample"),
            ));
            lines.extend(page::lines(|out| naming::print_stack(&row.stack(), out)));
            if row.truncated {
                lines.push("          (cut off: the stack is deeper)".to_owned());
            }
        }
        if rows.len() > MOST_STACKS {
            lines.push(format!("{} more stacks", rows.len() - MOST_STACKS));
        }
        lines
    }
}
