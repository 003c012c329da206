//! The JSON of valgrind's DHAT, version 2, for its viewer dh_view.html. Times are in microseconds where
//! DHAT counts instructions. Reads and writes of blocks are not known.

use std::collections::BTreeMap;
use std::io::{self, Write};

use larder_base::printable::escape;
use serde::Serialize;

use super::table::Table;
use super::{Export, names};
use crate::reading::resolve::ChainFrame;
use crate::reading::stacks::StackRow;

/// The viewer highlights blocks with a shorter mean lifetime.
const SHORT_LIVED_US: u64 = 10;

/// The viewer's own names.
#[derive(Serialize)]
#[allow(non_snake_case, reason = "the format's names")]
struct File {
    dhatFileVersion: u32,
    mode: &'static str,
    verb: &'static str,
    /// Block lifetimes are known; accesses are not.
    bklt: bool,
    bkacc: bool,
    /// The unit of time, and a million of it.
    tu: &'static str,
    Mtu: &'static str,
    tuth: u64,
    cmd: String,
    pid: u32,
    /// At the global maximum, and at the end.
    tg: u64,
    te: u64,
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

/// A program point: bytes and blocks in total, at the point's own maximum, at the program's, and
/// at the end; the total of the lifetimes; and the stack, innermost frame first.
#[derive(Default, Serialize)]
struct Point {
    tb: u64,
    tbk: u64,
    tl: u64,
    mb: u64,
    mbk: u64,
    gb: u64,
    gbk: u64,
    eb: u64,
    ebk: u64,
    fs: Vec<usize>,
}

impl Point {
    /// Of another process image.
    fn add(&mut self, row: &StackRow) {
        let (sums, life) = (&row.sums, &row.life);
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.tb, sums.bytes);
        add(&mut self.tbk, sums.calls);
        add(&mut self.tl, life.lifetime_ns / 1000);
        if life.max_bytes >= self.mb {
            (self.mb, self.mbk) = (life.max_bytes, life.max_blocks);
        }
        add(&mut self.gb, sums.peak_bytes);
        add(&mut self.gbk, sums.peak_blocks);
        add(&mut self.eb, sums.live_bytes);
        add(&mut self.ebk, sums.live_blocks);
    }
}

pub fn write(export: &Export, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Table::new();
    frames.number("[root]".to_owned());
    // The viewer requires each stack once.
    let mut points: BTreeMap<Vec<usize>, Point> = BTreeMap::new();
    for row in export.rows() {
        let mut stack = vec![frames.number(row.call.to_owned())];
        stack.extend(row.functions().map(|frame| frames.number(text(frame))));
        points.entry(stack).or_default().add(row);
    }
    let file = File {
        dhatFileVersion: 2,
        mode: "larder",
        verb: "Allocated",
        bklt: true,
        bkacc: false,
        tu: "µs",
        Mtu: "s",
        tuth: SHORT_LIVED_US,
        cmd: export.command(),
        pid: export.analysis.images.first().map_or(0, |i| i.process.pid),
        tg: export.stacks.peak_at_ns / 1000,
        te: export.stacks.duration_ns / 1000,
        pps: points
            .into_iter()
            .map(|(fs, point)| Point { fs, ..point })
            .collect(),
        ftbl: frames.into_values(),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

fn text(frame: &ChainFrame) -> String {
    let name = names::function(frame);
    let place = match (&frame.source.file, frame.source.line) {
        (Some(file), Some(line)) => format!("{}:{line}", escape(file)),
        _ => format!("in {}", frame.module.path),
    };
    format!("{:#X}: {name} ({place})", frame.address)
}
