//! Parquet, for DuckDB, ClickHouse, Spark and the like: every call in `events.parquet`, every stack
//! that made one in `stacks.parquet`.
//!
//! Events are written while the trace is read, a row group at a time; stacks at the end. A stack's
//! number stands for the stack and the function of the malloc family that it called.

mod columns;

use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;

use larder_base::failure::Result;
use larder_base::order;
use larder_base::output::{self, OutputError};
use larder_base::printable::escape;
use larder_trace::{Action, Event, Events, StackId, Trace};
use rustc_hash::FxHashMap;

use super::ExportPlan;
use super::table::Table;
use crate::reading::Analysis;
use crate::reading::heap::Block;
use crate::reading::losses;
use crate::reading::observe::{End, Finished, Live, Made, Moment, Observer};
use crate::reading::resolve::ChainFrame;
use crate::reading::stacks::{Birth, StackRow, Stacks};
use columns::{Cell, Columns};

const EVENTS: &str = "
message event {
  required int64 time_ns;
  required int32 pid (INTEGER(32, false));
  required int32 image (INTEGER(32, false));
  required int32 thread (INTEGER(32, false));
  required binary action (STRING);
  required binary call (STRING);
  optional int64 address (INTEGER(64, false));
  optional int64 old_address (INTEGER(64, false));
  optional int64 size;
  optional int64 freed_bytes;
  required int64 stack_id;
}";

const STACKS: &str = "
message stack {
  required int64 stack_id;
  required int32 pid (INTEGER(32, false));
  required int32 image (INTEGER(32, false));
  required binary call (STRING);
  required boolean truncated;
  required int64 site_id;
  optional binary function (STRING);
  optional binary file (STRING);
  optional int32 line;
  optional binary module (STRING);
  required int64 calls;
  required int64 bytes;
  required int64 tiny;
  required int64 peak_bytes;
  required int64 peak_blocks;
  required int64 live_bytes;
  required int64 live_blocks;
  required int64 temporary;
  required int64 temporary_bytes;
  required int64 max_bytes;
  required int64 max_blocks;
  required int64 lifetime_ns;
  required group frames (LIST) {
    repeated group list {
      required group element {
        optional binary function (STRING);
        optional binary file (STRING);
        optional int32 line;
        required binary module (STRING);
        required int64 address (INTEGER(64, false));
        required boolean inlined;
      }
    }
  }
}";

/// Writes both files into a directory, which is made if it does not exist.
pub fn export(plan: &ExportPlan) -> Result<()> {
    let folder = plan.output.as_deref().unwrap_or(Path::new("."));
    let failed = |source: io::Error| OutputError::File {
        path: folder.to_owned(),
        source,
    };
    if !folder.is_dir() {
        fs::create_dir(folder).map_err(failed)?;
    }
    let mut events_file = output::beside(&folder.join("events.parquet")).map_err(failed)?;
    let mut stacks_file = output::beside(&folder.join("stacks.parquet")).map_err(failed)?;
    let columns = Columns::new(EVENTS, events_file.as_file_mut()).map_err(failed)?;
    let mut calls = Calls::new(columns);
    let analysis = Analysis::read(&plan.subject, &mut calls)?;
    losses::warn_without_times(&analysis, "all times are the start's, and lifetimes are 0");
    let (columns, mut stacks) = calls.finish().map_err(failed)?;
    if plan.from_site {
        stacks.iter_mut().for_each(|(_, row)| row.begin_at_site());
    }
    columns.close().map_err(failed)?;
    Columns::new(STACKS, stacks_file.as_file_mut())
        .and_then(|columns| write_stacks(columns, &stacks, &analysis))
        .map_err(failed)?;
    for (file, name) in [
        (events_file, "events.parquet"),
        (stacks_file, "stacks.parquet"),
    ] {
        let kept = file.persist(folder.join(name));
        kept.map_err(|error| failed(error.error))?;
    }
    output::say(folder, "events.parquet, stacks.parquet written");
    Ok(())
}

/// A stack and the function that it called, in one image.
type Caller = (StackId, u8);

/// Writes the events as they come, and collects the stacks.
struct Calls<'a> {
    columns: Columns<'a>,
    /// The first failure to write; nothing is written from then on.
    failed: Option<io::Error>,
    stacks: Stacks,
    /// The numbers of the rows in `stacks`, in their order; and the stacks that allocate nothing.
    ids: Vec<i64>,
    silent: Vec<(i64, StackRow)>,
    next_id: i64,
    /// Of the current image.
    callers: FxHashMap<Caller, (i64, &'static str)>,
    pid: u32,
    image: usize,
    start_unix_ns: u64,
    clock: Option<larder_trace::Clock>,
    /// The last call, until all blocks that it freed are known.
    pending: Option<Row>,
}

/// An event's row.
struct Row {
    time_ns: u64,
    thread: u32,
    action: &'static str,
    call: &'static str,
    address: Option<u64>,
    old_address: Option<u64>,
    size: Option<u64>,
    freed_bytes: Option<u64>,
    stack_id: i64,
}

impl<'a> Calls<'a> {
    fn new(columns: Columns<'a>) -> Self {
        Self {
            columns,
            failed: None,
            stacks: Stacks::default(),
            ids: Vec::new(),
            silent: Vec::new(),
            next_id: 0,
            callers: FxHashMap::default(),
            pid: 0,
            image: 0,
            start_unix_ns: 0,
            clock: None,
            pending: None,
        }
    }

    fn caller(&mut self, stack: StackId, code: u8, name: &'static str) -> i64 {
        let next = self.next_id;
        let (id, _) = *self.callers.entry((stack, code)).or_insert((next, name));
        if id == next {
            self.next_id += 1;
        }
        id
    }

    /// The row of a call; `None` for other events.
    fn row(&mut self, event: &Event) -> Option<Row> {
        let known = |address: u64| (address != 0).then_some(address);
        let (action, name, code, stack, address, old_address, size) = match event.action {
            Action::Alloc {
                call,
                address,
                size,
                stack,
                ..
            } => {
                let action = if address == 0 { "failed" } else { "alloc" };
                (
                    action,
                    call.name(),
                    call.code(),
                    stack,
                    address,
                    0,
                    Some(size),
                )
            }
            Action::Free {
                call,
                address,
                stack,
                ..
            } => ("free", call.name(), call.code(), stack, 0, address, None),
            Action::ReallocEnd {
                call,
                old,
                address,
                size,
                stack,
                ..
            } => {
                let action = match (address, size, old) {
                    (0, 0, 1..) => "free",
                    (0, ..) => "failed",
                    _ => "realloc",
                };
                (
                    action,
                    call.name(),
                    call.code(),
                    stack,
                    address,
                    old,
                    Some(size),
                )
            }
            _ => return None,
        };
        let since_start = self
            .clock
            .map_or(0, |clock| clock.since_start_ns(event.time));
        Some(Row {
            time_ns: self.start_unix_ns.saturating_add(since_start),
            thread: event.thread,
            action,
            call: name,
            address: known(address),
            old_address: known(old_address),
            size,
            freed_bytes: None,
            stack_id: self.caller(stack, code, name),
        })
    }

    fn write_pending(&mut self) {
        let (Some(row), None) = (self.pending.take(), &self.failed) else {
            return;
        };
        let call = self.columns.text(row.call);
        let action = self.columns.text(row.action);
        let written = self.columns.row([
            Some(Cell::long(row.time_ns)),
            Some(Cell::number(self.pid)),
            Some(Cell::number(self.image as u32)),
            Some(Cell::number(row.thread)),
            Some(action),
            Some(call),
            row.address.map(Cell::long),
            row.old_address.map(Cell::long),
            row.size.map(Cell::long),
            row.freed_bytes.map(Cell::long),
            Some(Cell::Long(row.stack_id)),
        ]);
        self.failed = written.err();
    }

    fn finish(self) -> io::Result<(Columns<'a>, Vec<(i64, StackRow)>)> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let rows = self.ids.into_iter().zip(self.stacks.rows);
        Ok((self.columns, rows.chain(self.silent).collect()))
    }
}

impl Observer for Calls<'_> {
    type Note = Birth;

    fn begin_image(&mut self, trace: &Trace) {
        self.pid = trace.process().pid;
        self.start_unix_ns = trace.process().start_wall_ns;
        self.clock = Some(trace.clock());
    }

    fn event(&mut self, event: &Event, events: &Events<'_>) {
        self.stacks.event(event, events);
        if let Some(row) = self.row(event) {
            self.write_pending();
            self.pending = Some(row);
        }
    }

    fn made(&mut self, moment: Moment, made: &Made<'_, Birth>) -> Birth {
        self.stacks.made(moment, made)
    }

    fn ended(&mut self, moment: Moment, address: u64, block: &Block<Birth>, how: End) {
        if let Some(row) = &mut self.pending {
            let freed = row.freed_bytes.unwrap_or(0);
            row.freed_bytes = Some(freed.saturating_add(block.size));
        }
        self.stacks.ended(moment, address, block, how);
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, live: &Live<'_, Birth>) {
        self.write_pending();
        self.stacks.end_image(image, live);
        for source in image.sources {
            let caller = (source.stack, source.call.code());
            let (id, _) = self.callers.remove(&caller).unwrap_or((-1, ""));
            self.ids.push(id);
        }
        let mut silent: Vec<_> = self.callers.drain().collect();
        order::sort_by_key(&mut silent, |(_, (id, _))| *id);
        for ((stack, _), (id, call)) in silent {
            let row = StackRow::without_sums(image, self.image, stack, call);
            self.silent.push((id, row));
        }
        self.image += 1;
    }
}

/// The identity of a site.
type SiteKey = (Option<Rc<str>>, Option<Rc<str>>, Option<u32>, String, u64);

fn site_key(frame: Option<&ChainFrame>) -> Option<SiteKey> {
    let frame = frame?;
    let source = &frame.source;
    Some((
        source
            .function
            .as_ref()
            .map(|function| function.symbol.clone()),
        source.file.clone(),
        source.line,
        frame.module.path.clone(),
        source.line.map_or(frame.address, |_| 0),
    ))
}

fn write_stacks(
    mut columns: Columns<'_>,
    stacks: &[(i64, StackRow)],
    analysis: &Analysis,
) -> io::Result<()> {
    let mut sites = Table::new();
    for (id, row) in stacks {
        let site = row.site();
        let site_id = sites.number(site_key(site)) as i64;
        let image = analysis.images.get(row.image);
        let (sums, life) = (&row.sums, &row.life);
        let [function, file, line, module] = names(site);
        columns.partial_row(
            [
                Some(Cell::Long(*id)),
                Some(Cell::number(image.map_or(0, |image| image.process.pid))),
                Some(Cell::number(row.image as u32)),
                Some(columns::text(row.call)),
                Some(Cell::Flag(row.truncated)),
                Some(Cell::Long(site_id)),
                function,
                file,
                line,
                module,
            ]
            .into_iter()
            .chain(
                [
                    sums.calls,
                    sums.bytes,
                    sums.tiny,
                    sums.peak_bytes,
                    sums.peak_blocks,
                    sums.live_bytes,
                    sums.live_blocks,
                    life.temporary,
                    life.temporary_bytes,
                    life.max_bytes,
                    life.max_blocks,
                    life.lifetime_ns,
                ]
                .map(|value| Some(Cell::long(value))),
            ),
        );
        columns.list(row.functions().map(|frame| {
            let [function, file, line, module] = names(Some(frame));
            [
                function,
                file,
                line,
                module,
                Some(Cell::long(frame.address)),
                Some(Cell::Flag(frame.source.inlined)),
            ]
        }))?;
    }
    columns.close()
}

/// Function, file, line and module.
fn names(frame: Option<&ChainFrame>) -> [Option<Cell>; 4] {
    let source = frame.map(|frame| &frame.source);
    let text = |text: &str| columns::text(&escape(text));
    [
        source.and_then(|s| Some(text(&s.function.as_ref()?.name))),
        source.and_then(|s| Some(text(s.file.as_deref()?))),
        source.and_then(|s| Some(Cell::number(s.line?))),
        frame.map(|frame| columns::text(&frame.module.path)),
    ]
}
