//! All figures of each stack, as JSON in a format of its own: described in `docs/reference/exports.md`.

use std::io::{self, Write};

use larder_base::printable::{escape, name};
use serde::Serialize;

use super::Export;
use super::table::Table;
use crate::reading::family::Counters;
use crate::reading::losses;
use crate::reading::resolve::ChainFrame;
use crate::reading::stacks::StackRow;
use crate::symbols::hex;

#[derive(Serialize)]
struct File<'a> {
    larder: &'static str,
    trace: String,
    command: String,
    counters: &'a Counters,
    complete: bool,
    messages: Vec<String>,
    frames: Vec<Frame>,
    stacks: Vec<Stack>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    function: Option<String>,
    symbol: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    module: String,
    build_id: String,
    address: u64,
    inlined: bool,
}

#[derive(Serialize)]
struct Stack {
    pid: u32,
    call: &'static str,
    /// Indices of frames, innermost first.
    site: Option<usize>,
    frames: Vec<usize>,
    truncated: bool,
    calls: u64,
    bytes: u64,
    tiny: u64,
    peak_bytes: u64,
    peak_blocks: u64,
    live_bytes: u64,
    live_blocks: u64,
    temporary: u64,
    temporary_bytes: u64,
    max_bytes: u64,
    max_blocks: u64,
    lifetime_ns: u64,
}

pub fn write(export: &Export, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Table::new();
    let stacks = export
        .rows()
        .iter()
        .map(|row| stack(export, row, &mut frames))
        .collect();
    let file = File {
        larder: env!("CARGO_PKG_VERSION"),
        trace: name(&export.trace),
        command: export.command(),
        counters: &export.analysis.counters,
        complete: losses::summary(&export.analysis).is_none(),
        messages: losses::details(&export.analysis),
        frames: frames.into_values(),
        stacks,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

fn stack(export: &Export, row: &StackRow, frames: &mut Table<Frame>) -> Stack {
    let (sums, life) = (&row.sums, &row.life);
    let image = export.analysis.images.get(row.image);
    Stack {
        pid: image.map_or(0, |image| image.process.pid),
        call: row.call,
        site: row.site().map(|site| frames.number(frame(site))),
        frames: row.functions().map(|f| frames.number(frame(f))).collect(),
        truncated: row.truncated,
        calls: sums.calls,
        bytes: sums.bytes,
        tiny: sums.tiny,
        peak_bytes: sums.peak_bytes,
        peak_blocks: sums.peak_blocks,
        live_bytes: sums.live_bytes,
        live_blocks: sums.live_blocks,
        temporary: life.temporary,
        temporary_bytes: life.temporary_bytes,
        max_bytes: life.max_bytes,
        max_blocks: life.max_blocks,
        lifetime_ns: life.lifetime_ns,
    }
}

fn frame(frame: &ChainFrame) -> Frame {
    let source = &frame.source;
    let shown = |text: &str| escape(text).into_owned();
    Frame {
        function: source.function.as_ref().map(|f| shown(&f.name)),
        symbol: source.function.as_ref().map(|f| shown(&f.symbol)),
        file: source.file.as_deref().map(shown),
        line: source.line,
        module: frame.module.path.clone(),
        build_id: hex(&frame.module.build_id),
        address: frame.address,
        inlined: source.inlined,
    }
}
