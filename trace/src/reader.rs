//! Reads a trace: `Trace` is a file and its index, `Events` the calls of all threads in order of time.
//!
//! Memory: the index takes a few dozen bytes a chunk; `Events` holds one decompressed chunk for each active
//! thread, and the distinct stacks, but not the calls.

mod counters;
mod events;
mod index;
mod map;
mod marks;
mod numbered;
mod stacks;
mod stream;

pub use counters::{Counted, Counter, Counters, Totals};
pub use events::{Action, Event, Events};
pub use marks::MarkId;
pub use stacks::{Frame, FrameId, StackId, StackTable};

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Damage, TraceError};
use crate::layout::{
    self, ClockKind, EndState, FileHeader, Form, HEADER_BYTES, HeaderFault, Slot, StopReason,
};
use crate::lost::Lost;
use crate::modules::Module;
use crate::process::ProcessInfo;
use crate::symbols::Symbols;
use index::Index;

/// An open trace file: everything except its calls.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    file: File,
    length: u64,
    clock: Clock,
    noted_ticks: u64,
    losses: Losses,
    sampling: Sampling,
    index: Index,
    process: ProcessInfo,
    asked: u32,
    form: Form,
    has_times: bool,
}

/// The recorder's own counts of what it did not record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls after the recording stopped; `ProcessInfo::stop` has the reason.
    pub after_stop: u64,
    /// Calls by signal handlers that interrupted the recorder.
    pub reentrant: u64,
    /// Calls by a `vfork` child, which shares its parent's memory.
    pub vfork: u64,
    /// Calls that are recorded, but whose stack does not reach the thread's first function.
    pub truncated_stacks: u64,
    /// Children of fork that could not make a trace file of their own.
    pub unrecorded_children: u64,
}

/// How processor time was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Samples a second of processor time that were asked for; 0: none.
    pub rate_hz: u64,
    /// The process's processor time when the recorder read it last.
    pub cpu_ns: u64,
    /// Of this, what the recorder knows to be in no sample.
    pub lost_ns: u64,
}

impl Losses {
    /// Calls that are not in the trace.
    pub fn calls(&self) -> u64 {
        self.after_stop
            .saturating_add(self.reentrant)
            .saturating_add(self.vfork)
    }
}

/// Turns the ticks of a trace into nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    pub start_ticks: u64,
    /// `CLOCK_MONOTONIC` at `start_ticks`: comparable between the files of one trace.
    pub start_monotonic_ns: u64,
    pub ns_per_tick: f64,
}

impl Clock {
    fn new(header: &FileHeader, last_ticks: u64, last_ns: u64) -> Self {
        let nominal = (1u64 << header.shift) as f64;
        let ticks = last_ticks.saturating_sub(header.start_ticks);
        let ns = last_ns.saturating_sub(header.start_monotonic_ns);
        let ns_per_tick = match header.clock {
            ClockKind::Monotonic => nominal,
            ClockKind::Tsc if ticks > 0 && ns > 0 => ns as f64 / ticks as f64,
            // Ended before the clocks were read a second time: the rate is unknown.
            ClockKind::Tsc => nominal / 2.0,
        };
        Clock {
            start_ticks: header.start_ticks,
            start_monotonic_ns: header.start_monotonic_ns,
            ns_per_tick,
        }
    }

    /// Nanoseconds since the recording of the process image started.
    pub fn since_start_ns(&self, ticks: u64) -> u64 {
        (ticks.saturating_sub(self.start_ticks) as f64 * self.ns_per_tick) as u64
    }

    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub fn monotonic_ns(&self, ticks: u64) -> u64 {
        self.start_monotonic_ns
            .saturating_add(self.since_start_ns(ticks))
    }
}

impl Trace {
    /// Opens one `.ltrace` file and indexes its chunks. Damage beyond the header is not an error;
    /// see `damage` and `Events::damage`.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let open_error = |source| TraceError::Open {
            path: path.to_owned(),
            source,
        };
        // Without O_NONBLOCK the open of a FIFO waits for a writer.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(open_error)?;
        let meta = file.metadata().map_err(open_error)?;
        if !meta.is_file() {
            return Err(TraceError::NotAFile {
                path: path.to_owned(),
            });
        }
        let length = meta.len();
        let (header, page) = read_header(path, &file, length)?;
        let mut index = Index::scan(path, &file, length)?;
        let mut process = ProcessInfo::from_header(&header);
        if let Some((executable, argv)) = index.process() {
            process.executable = executable.to_vec();
            process.argv = argv.to_vec();
        }
        let code = |slot| u32::try_from(layout::slot(&page, slot)).unwrap_or(u32::MAX);
        process.end = EndState::from_code(code(Slot::EndState)).unwrap_or(EndState::Running);
        process.stop =
            StopReason::from_code(code(Slot::StopReason)).unwrap_or(StopReason::Internal);
        index.set_peak(layout::slot(&page, Slot::PeakBytes));
        process.stop_errno = layout::slot(&page, Slot::StopErrno) as i32;
        if process.end != EndState::Running && process.stop == StopReason::None {
            index.expect_end(length, layout::slot(&page, Slot::FileEnd));
        }
        Ok(Trace {
            path: path.to_owned(),
            clock: Clock::new(
                &header,
                layout::slot(&page, Slot::LastTicks),
                layout::slot(&page, Slot::LastMonotonicNs),
            ),
            noted_ticks: layout::slot(&page, Slot::LastTicks),
            losses: Losses {
                after_stop: layout::slot(&page, Slot::LostStopped),
                reentrant: layout::slot(&page, Slot::LostReentrant),
                vfork: layout::slot(&page, Slot::LostVfork),
                truncated_stacks: layout::slot(&page, Slot::TruncatedStacks),
                unrecorded_children: layout::slot(&page, Slot::UnrecordedChildren),
            },
            sampling: Sampling {
                rate_hz: layout::slot(&page, Slot::SampleRate),
                cpu_ns: layout::slot(&page, Slot::CpuNs),
                lost_ns: layout::slot(&page, Slot::LostSampleNs),
            },
            file,
            length,
            has_times: index.has_times(),
            index,
            process,
            asked: header.asked,
            form: layout::form(&page),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn process(&self) -> &ProcessInfo {
        &self.process
    }

    /// Of the events: their times are numbers in order if the trace has no times.
    pub fn clock(&self) -> Clock {
        match self.has_times() {
            true => self.clock,
            false => Clock {
                start_ticks: 0,
                ns_per_tick: 0.0,
                ..self.clock
            },
        }
    }

    /// False after `record --no-times`.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// From the recording's start to the time of this event, or, without times, to the last one.
    pub fn duration_ns(&self, last: u64) -> u64 {
        let last = if self.has_times {
            last
        } else {
            self.noted_ticks
        };
        self.clock.since_start_ns(last)
    }

    /// The last time that the recorder has stored, in ticks: of the exit, if it saw one.
    pub fn noted_ticks(&self) -> u64 {
        self.noted_ticks
    }

    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Whether recording all of these was asked for, which `FileHeader` has constants for. False in traces before
    /// version 2.3.
    pub fn asked_for(&self, kinds: u32) -> bool {
        self.asked & kinds == kinds
    }

    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Every load of a module in the program's life; `modules()[id.0]` need not hold, use `module`.
    pub fn modules(&self) -> &[Module] {
        self.index.modules()
    }

    pub fn module(&self, id: crate::ModuleId) -> Option<&Module> {
        self.index.module(id)
    }

    /// The names that the trace itself has for its addresses; they take precedence over any file's.
    pub fn symbols(&self) -> &Symbols {
        self.index.symbols()
    }

    /// Damage that was found when the chunks were indexed.
    pub fn damage(&self) -> &[Damage] {
        self.index.damage()
    }

    /// Calls in the file, by its chunk headers: what a progress bar needs.
    pub fn event_count(&self) -> u64 {
        self.index.event_count()
    }

    /// The counters, if the recorder counted instead of writing each call; then `events` has only the threads,
    /// and `Events::counted` describes each counter.
    pub fn counters(&self) -> Option<&Counters> {
        self.index.counters()
    }

    /// The blocks that were live at the program's end and lost; `None`: they were not checked.
    pub fn lost(&self) -> Option<&Lost> {
        self.index.lost()
    }

    /// The calls of all threads, in order of time.
    pub fn events(&self) -> Events<'_> {
        Events::new(self, StackTable::default())
    }

    /// The same for a second pass, with the stacks of `Events::into_stacks`, which are not looked up again.
    pub fn events_again(&self, stacks: StackTable) -> Events<'_> {
        Events::new(self, stacks.again())
    }
}

fn read_header(
    path: &Path,
    file: &File,
    length: u64,
) -> Result<(FileHeader, [u8; HEADER_BYTES]), TraceError> {
    let path = path.to_owned();
    if length == 0 {
        return Err(TraceError::Empty { path });
    }
    let mut page = [0; HEADER_BYTES];
    let have = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(HEADER_BYTES);
    if let Err(source) = std::os::unix::fs::FileExt::read_exact_at(file, &mut page[..have], 0) {
        return Err(TraceError::Read {
            path,
            offset: 0,
            length: have,
            source,
        });
    }
    let looks_right = page
        .iter()
        .zip(layout::FILE_MAGIC)
        .take(have)
        .all(|(a, b)| *a == b);
    if !looks_right {
        return Err(TraceError::NotATrace { path });
    }
    if have < HEADER_BYTES {
        return Err(TraceError::Short { path, length });
    }
    match FileHeader::decode(&page) {
        Ok(header) => Ok((header, page)),
        Err(HeaderFault::Magic) => Err(TraceError::NotATrace { path }),
        Err(HeaderFault::Version(found)) => Err(TraceError::Version {
            path,
            found,
            known: layout::VERSION_MAJOR,
        }),
        Err(HeaderFault::Field { offset, what }) => Err(TraceError::Header { path, offset, what }),
    }
}

/// The trace files under a path: the path itself if it is a file, else the `.ltrace` files in the
/// folder, ordered by pid and image.
pub fn trace_files(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let open_error = |source| TraceError::Open {
        path: path.to_owned(),
        source,
    };
    if !std::fs::metadata(path).map_err(open_error)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(open_error)? {
        let file = entry.map_err(open_error)?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "ltrace")
        {
            let numbers = file.file_stem().and_then(|stem| {
                let (pid, image) = stem.to_str()?.split_once('-')?;
                Some((pid.parse::<u64>().ok()?, image.parse::<u64>().ok()?))
            });
            found.push((numbers.unwrap_or((u64::MAX, 0)), file));
        }
    }
    if found.is_empty() {
        return Err(TraceError::NoFiles {
            path: path.to_owned(),
        });
    }
    found.sort();
    Ok(found.into_iter().map(|(_, file)| file).collect())
}
