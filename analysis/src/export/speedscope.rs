//! speedscope's file format: the frames once, and a sampled profile for each measure.

use std::io::{self, Write};

use larder_base::printable::escape;
use serde::Serialize;

use super::table::Table;
use super::{Weighed, names};
use crate::reading::measure::Measure;

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active_profile: usize,
    shared: Shared,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    /// Outermost first.
    samples: Vec<&'a [usize]>,
    weights: Vec<u64>,
}

pub fn write(weighed: &Weighed<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Table::new();
    let stacks: Vec<Vec<usize>> = weighed
        .rows
        .iter()
        .map(|row| {
            let functions = row.functions().rev();
            functions
                .map(|frame| {
                    frames.number(Frame {
                        name: names::function(frame).into_owned(),
                        file: frame.source.file.as_deref().map(|f| escape(f).into_owned()),
                        line: frame.source.line,
                    })
                })
                .collect()
        })
        .collect();
    let mut measures = weighed.measures.iter();
    let active = measures.position(|measure| *measure == weighed.measure);
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("larder {}", env!("CARGO_PKG_VERSION")),
        name: weighed.name.clone(),
        active_profile: active.unwrap_or(0),
        shared: Shared {
            frames: frames.into_values(),
        },
        profiles: weighed
            .measures
            .iter()
            .map(|measure| profile(weighed, &stacks, *measure))
            .collect(),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

fn profile<'a>(weighed: &Weighed<'_>, stacks: &'a [Vec<usize>], measure: Measure) -> Profile<'a> {
    let rows = weighed.rows.iter().zip(stacks);
    let (weights, samples): (Vec<u64>, Vec<&[usize]>) = rows
        .map(|(row, stack)| (measure.of(row), stack.as_slice()))
        .filter(|(weight, _)| *weight > 0)
        .unzip();
    Profile {
        kind: "sampled",
        name: measure.title(),
        unit: match measure.unit() {
            "bytes" => "bytes",
            _ => "none",
        },
        start: 0,
        end: weights.iter().copied().fold(0, u64::saturating_add),
        samples,
        weights,
    }
}
