//! pprof's profile: a gzipped protocol buffer, by the public profile.proto.
//!
//! Addresses are relative to each module's file, independent of the loader, so a mapping begins at 0
//! and processes share their locations. The mappings' flags mark what is resolved already; pprof
//! resolves the rest if it finds the file.

use std::io::{self, Write};
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use larder_base::printable::escape;
use prost::Message;
use rustc_hash::FxHashMap;

use super::table::Table;
use super::{Weighed, names};
use crate::reading::measure::Measure;
use crate::reading::resolve::{ChainFrame, ModuleLabel};
use crate::reading::stacks::StackRow;
use crate::symbols::hex;

/// The sample types with the names of pprof's own heap profiles, and more.
const SAMPLE_TYPES: [(Measure, &str, &str); 11] = [
    (Measure::Calls, "alloc_objects", "count"),
    (Measure::Bytes, "alloc_space", "bytes"),
    (Measure::LiveBlocks, "inuse_objects", "count"),
    (Measure::LiveBytes, "inuse_space", "bytes"),
    (Measure::Peak, "peak_space", "bytes"),
    (Measure::Temporary, "temporary_objects", "count"),
    (Measure::CopiedBytes, "copied_space", "bytes"),
    (Measure::Copies, "copies", "count"),
    (Measure::SystemTime, "system_time", "nanoseconds"),
    (Measure::SystemCalls, "system_calls", "count"),
    (Measure::ProcessorTime, "cpu", "nanoseconds"),
];

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// In this and the messages below, texts are indices into the string table.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
    #[prost(int64, tag = "3")]
    number: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    /// The innermost inlined function first.
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The parts of a profile other than its samples.
pub struct About {
    /// The path of the program's own module, printable.
    pub program: Option<String>,
    /// By image.
    pub pids: Vec<u32>,
    /// Nanoseconds since 1970, or 0 if not known; likewise the duration.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Mean bytes between samples.
    pub period: u64,
    pub comments: Vec<String>,
}

pub fn write(weighed: &Weighed<'_>, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let profile = Builder::new().build(weighed, about);
    let mut out = GzEncoder::new(out, Compression::default());
    out.write_all(&profile.encode_to_vec())?;
    out.finish().map(drop)
}

struct Builder {
    profile: Profile,
    strings: Table<String>,
    mappings: FxHashMap<*const ModuleLabel, u64>,
    /// Keyed by mapping, address, and the number of functions shown.
    locations: FxHashMap<(u64, u64, usize), u64>,
    functions: Table<Function>,
}

impl Builder {
    fn new() -> Self {
        let mut strings = Table::new();
        // The format requires "" as number 0.
        strings.number(String::new());
        Self {
            profile: Profile::default(),
            strings,
            mappings: FxHashMap::default(),
            locations: FxHashMap::default(),
            functions: Table::new(),
        }
    }

    fn build(mut self, weighed: &Weighed<'_>, about: &About) -> Profile {
        let has = |(measure, ..): &(Measure, _, _)| weighed.measures.contains(measure);
        let types: Vec<_> = SAMPLE_TYPES.into_iter().filter(has).collect();
        for (measure, kind, unit) in &types {
            let value_type = self.value_type(kind, unit);
            self.profile.sample_type.push(value_type);
            if *measure == weighed.measure {
                self.profile.default_sample_type = value_type.kind;
            }
        }
        self.profile.period_type = Some(self.value_type("space", "bytes"));
        self.profile.period = clamp(about.period);
        self.program_first(weighed, about);
        for row in weighed.rows {
            let values: Vec<u64> = types.iter().map(|(measure, ..)| measure.of(row)).collect();
            if values.iter().any(|value| *value > 0) {
                let pid = about.pids.get(row.image).copied().unwrap_or(0);
                let sample = self.sample(row, pid, &values);
                self.profile.sample.push(sample);
            }
        }
        self.profile.time_nanos = clamp(about.start_ns);
        self.profile.duration_nanos = clamp(about.duration_ns);
        let own = format!("larder {}", env!("CARGO_PKG_VERSION"));
        for comment in std::iter::once(&own).chain(&about.comments) {
            let comment = self.text(comment);
            self.profile.comment.push(comment);
        }
        let functions = self.functions.into_values().into_iter();
        self.profile.function = functions
            .zip(1..)
            .map(|(function, id)| Function { id, ..function })
            .collect();
        self.profile.string_table = self.strings.into_values();
        self.profile
    }

    /// pprof treats the first mapping as the program.
    fn program_first(&mut self, weighed: &Weighed<'_>, about: &About) {
        let is_program = |frame: &&ChainFrame| Some(&frame.module.path) == about.program.as_ref();
        let mut frames = weighed.rows.iter().flat_map(StackRow::functions);
        if let Some(frame) = frames.find(is_program) {
            self.mapping(&frame.module, &[]);
        }
    }

    fn sample(&mut self, row: &StackRow, pid: u32, values: &[u64]) -> Sample {
        let location_id = row
            .locations()
            .map(|frames| self.location(frames))
            .collect();
        let mut label = Vec::new();
        if !row.call.is_empty() {
            label.push(Label {
                key: self.text("call"),
                text: self.text(row.call),
                number: 0,
            });
        }
        label.push(Label {
            key: self.text("pid"),
            text: 0,
            number: i64::from(pid),
        });
        if row.truncated {
            label.push(Label {
                key: self.text("stack"),
                text: self.text("incomplete"),
                number: 0,
            });
        }
        Sample {
            location_id,
            value: values.iter().map(|value| clamp(*value)).collect(),
            label,
        }
    }

    fn location(&mut self, frames: &[ChainFrame]) -> u64 {
        let Some(first) = frames.first() else {
            return 0;
        };
        let mapping_id = self.mapping(&first.module, frames);
        let key = (mapping_id, first.address, frames.len());
        if let Some(id) = self.locations.get(&key) {
            return *id;
        }
        let known = |frame: &&ChainFrame| {
            frames.len() > 1 || frame.source.function.is_some() || frame.source.file.is_some()
        };
        let line = frames.iter().filter(known).map(|f| self.line(f)).collect();
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(key, id);
        self.profile.location.push(Location {
            id,
            mapping_id,
            address: first.address,
            line,
        });
        id
    }

    fn line(&mut self, frame: &ChainFrame) -> Line {
        let symbol = frame.source.function.as_ref().map(|f| escape(&f.symbol));
        let function = Function {
            id: 0,
            name: self.text(&names::function(frame)),
            system_name: self.text(&symbol.unwrap_or_default()),
            filename: self.text(&escape(frame.source.file.as_deref().unwrap_or_default())),
        };
        Line {
            function_id: self.functions.number(function) as u64 + 1,
            line: i64::from(frame.source.line.unwrap_or(0)),
        }
    }

    /// The number of a module's mapping, whose flags are updated with what these frames have.
    fn mapping(&mut self, module: &Rc<ModuleLabel>, frames: &[ChainFrame]) -> u64 {
        let next = self.mappings.len() as u64 + 1;
        let id = *self.mappings.entry(Rc::as_ptr(module)).or_insert(next);
        if id == next {
            let mapping = Mapping {
                id,
                memory_start: 0,
                memory_limit: u64::MAX,
                filename: self.text(&module.path),
                build_id: self.text(&hex(&module.build_id)),
                ..Mapping::default()
            };
            self.profile.mapping.push(mapping);
        }
        if let Some(mapping) = self.profile.mapping.get_mut(id as usize - 1) {
            let any = |has: fn(&ChainFrame) -> bool| frames.iter().any(has);
            mapping.has_functions |= any(|frame| frame.source.function.is_some());
            mapping.has_filenames |= any(|frame| frame.source.file.is_some());
            mapping.has_line_numbers |= any(|frame| frame.source.line.is_some());
            mapping.has_inline_frames = mapping.has_line_numbers;
        }
        id
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.text(kind),
            unit: self.text(unit),
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        self.strings.number(text.to_owned()) as i64
    }
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
