//! `larder alias`: a stencil over fourteen large arrays, by their padding, and which of them alias.
//!
//! Two arrays alias if their addresses modulo 4 KiB lie within one cache line: an element of one then
//! has the cache set, and the low 12 bits of the address, of the same element of the other.

use std::collections::BTreeMap;

use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::number::rounded;
use larder_base::statistics::median;
use serde_json::{Map, Value, json};

use super::output::{self, Output, Report, Table};
use super::plot::{self, Axis, Line, Scale};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::subject::{self, Field};
use crate::bench::allocators::Allocator;
use crate::error::{self, LabError};

const PROGRAM: &str = "bench_himeno";
const ALIAS_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 64;

#[derive(Debug)]
pub struct AliasPlan {
    /// In bytes, ascending.
    pub paddings: Vec<usize>,
    pub iterations: u32,
    pub rounds: u32,
    pub field: Field,
    pub output: Output,
}

/// One run.
#[derive(Debug)]
struct Sample {
    mflops: f64,
    /// None where the processor does not count them.
    alias_events: Option<f64>,
    pairs: Pairs,
}

/// Pairs of arrays that alias.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pairs {
    all: usize,
    /// Pairs of which one is written to: only there a load can seem to depend on a store.
    stored: usize,
}

/// Indexed by padding and allocator.
type Samples = BTreeMap<(usize, usize), Vec<Sample>>;

pub fn run(plan: &AliasPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let programs = Programs::find(&[PROGRAM], plan.field.run_limit_seconds)?;
    let (allocators, notes) = plan.field.find()?;
    for allocator in &allocators {
        subject::check_loaded(&programs, allocator, &[PROGRAM, "0", "0"])?;
    }
    let samples = measure(plan, &programs, &allocators)?;
    report(plan, allocators, notes, &samples).publish(&plan.output, &machine)
}

fn measure(plan: &AliasPlan, programs: &Programs, allocators: &[Allocator]) -> Result<Samples> {
    let mut cells: Vec<(usize, usize)> = (0..plan.paddings.len())
        .flat_map(|padding| (0..allocators.len()).map(move |index| (padding, index)))
        .collect();
    let progress = Progress::new(cells.len() * plan.rounds as usize);
    let mut samples = Samples::new();
    for _ in 0..plan.rounds {
        fastrand::shuffle(&mut cells);
        for &(padding, index) in &cells {
            let bytes = plan.paddings[padding];
            progress.begin(&format!("{} + {bytes} B", allocators[index].name));
            let words = [
                PROGRAM.to_owned(),
                bytes.to_string(),
                plan.iterations.to_string(),
            ];
            let printed = programs.run(&Launch::new(&words, Some(&allocators[index])))?;
            samples
                .entry((padding, index))
                .or_default()
                .push(Sample::read(&printed)?);
            progress.end_step();
        }
    }
    Ok(samples)
}

impl Sample {
    fn read(printed: &Map<String, Value>) -> error::Result<Sample> {
        let list = |name: &str| -> Option<Vec<u64>> {
            let values = printed.get(name)?.as_array()?;
            values.iter().map(Value::as_u64).collect()
        };
        let (Some(addresses), Some(stored)) = (list("addresses"), list("stored")) else {
            return Err(LabError::NoFigure {
                program: PROGRAM.to_owned(),
                figure: "addresses".to_owned(),
            });
        };
        let stored: Vec<usize> = stored.into_iter().map(|index| index as usize).collect();
        Ok(Sample {
            mflops: programs::number(printed, "mflops", PROGRAM)?,
            alias_events: printed.get("alias_events").and_then(Value::as_f64),
            pairs: Pairs::of(&addresses, &stored),
        })
    }
}

impl Pairs {
    fn of(addresses: &[u64], stored: &[usize]) -> Pairs {
        let mut pairs = Pairs { all: 0, stored: 0 };
        for (a, first) in addresses.iter().enumerate() {
            for (b, second) in addresses.iter().enumerate().skip(a + 1) {
                if aliases(*first, *second) {
                    pairs.all += 1;
                    pairs.stored += usize::from(stored.contains(&a) || stored.contains(&b));
                }
            }
        }
        pairs
    }
}

fn aliases(a: u64, b: u64) -> bool {
    let apart = a.wrapping_sub(b) % ALIAS_BYTES;
    apart.min(ALIAS_BYTES - apart) < LINE_BYTES
}

/// The summary of the runs with one padding on one allocator.
#[derive(Clone, Copy, Debug)]
struct Figure {
    mflops: f64,
    alias_events: Option<f64>,
    pairs: Pairs,
}

fn figure(samples: Option<&Vec<Sample>>) -> Option<Figure> {
    let samples = samples?;
    let rates: Vec<f64> = samples.iter().map(|sample| sample.mflops).collect();
    let events: Option<Vec<f64>> = samples.iter().map(|sample| sample.alias_events).collect();
    let most = samples
        .iter()
        .map(|sample| sample.pairs)
        .max_by_key(|pairs| pairs.all)?;
    Some(Figure {
        mflops: median(&rates)?,
        alias_events: events.and_then(|events| median(&events)),
        pairs: most,
    })
}

fn report(
    plan: &AliasPlan,
    allocators: Vec<Allocator>,
    mut notes: Vec<String>,
    samples: &Samples,
) -> Report {
    let figures: BTreeMap<(usize, usize), Figure> = samples
        .iter()
        .filter_map(|(key, list)| Some((*key, figure(Some(list))?)))
        .collect();
    let counted = figures.values().all(|figure| figure.alias_events.is_some());
    notes.push(if counted {
        "Alias events: loads blocked by a store with the same low 12 bits of its address, of the \
         measured sweeps of one run, as the processor counts them."
            .to_owned()
    } else {
        "This processor, or virtual machine, gives no counter of aliasing loads: alias pairs are \
         computed from the arrays' addresses instead (equal modulo 4 KiB within a cache line; of \
         all 91 pairs of arrays / of those with an array that is written to)."
            .to_owned()
    });
    let data: Vec<_> = samples
        .iter()
        .map(|(key @ (padding, index), list)| {
            json!({
                "padding_bytes": plan.paddings[*padding],
                "allocator": allocators[*index].name,
                "median_mflops": figures[key].mflops,
                "mflops": list.iter().map(|sample| sample.mflops).collect::<Vec<_>>(),
                "alias_events": figures[key].alias_events,
                "alias_pairs": figures[key].pairs.all,
                "alias_pairs_with_a_store": figures[key].pairs.stored,
            })
        })
        .collect();
    Report {
        name: "alias",
        title: "A stencil over large arrays by padding",
        method: format!(
            "Jacobi sweeps, 19 points, 14 arrays of 128 × 128 × 256 floats, a malloc each, the i-th \
             shifted by i × padding; median of {} interleaved rounds, a fresh process each;",
            plan.rounds
        ),
        tables: vec![
            summary(plan, &allocators, &figures, counted),
            by_padding(plan, &allocators, &figures),
        ],
        notes,
        plots: vec![("alias.svg".to_owned(), draw(plan, &allocators, &figures))],
        data: json!({"rounds": plan.rounds, "iterations": plan.iterations, "figures": data}),
        allocators,
    }
}

type Figures = BTreeMap<(usize, usize), Figure>;

fn summary(plan: &AliasPlan, allocators: &[Allocator], figures: &Figures, counted: bool) -> Table {
    let trouble = if counted {
        "alias events"
    } else {
        "alias pairs"
    };
    let first = plan.paddings.first().copied().unwrap_or(0);
    let header = [
        "allocator".to_owned(),
        format!("MFLOPS, padding {first}"),
        "best padding".to_owned(),
        "MFLOPS there".to_owned(),
        format!("padding {first} / best"),
        format!("{trouble}, padding {first}"),
        "at the best".to_owned(),
    ];
    let mut table = Table::new("Without padding against the best padding", header);
    for (index, allocator) in allocators.iter().enumerate() {
        let all = (0..plan.paddings.len()).filter_map(|p| Some((p, figures.get(&(p, index))?)));
        let best = all.max_by(|a, b| a.1.mflops.total_cmp(&b.1.mflops));
        let (Some(plain), Some((padding, best))) = (figures.get(&(0, index)), best) else {
            continue;
        };
        let show = |figure: &Figure| match figure.alias_events {
            Some(events) if counted => rounded(events),
            _ => format!("{} / {}", figure.pairs.all, figure.pairs.stored),
        };
        table.push([
            allocator.name.clone(),
            rounded(plain.mflops),
            plan.paddings[padding].to_string(),
            rounded(best.mflops),
            output::figure(plain.mflops / best.mflops),
            show(plain),
            show(best),
        ]);
    }
    table
}

fn by_padding(plan: &AliasPlan, allocators: &[Allocator], figures: &Figures) -> Table {
    let header = ["padding, B".to_owned()].into_iter();
    let mut table = Table::new(
        "MFLOPS by padding",
        header.chain(allocators.iter().map(|a| a.name.clone())),
    );
    for (padding, bytes) in plan.paddings.iter().enumerate() {
        let cells = (0..allocators.len()).map(|index| {
            let figure = figures.get(&(padding, index));
            output::optional(figure.map(|figure| figure.mflops), rounded)
        });
        table.push([bytes.to_string()].into_iter().chain(cells));
    }
    table
}

fn draw(plan: &AliasPlan, allocators: &[Allocator], figures: &Figures) -> String {
    let line = |(index, allocator): (usize, &Allocator)| Line {
        name: allocator.name.clone(),
        points: plan
            .paddings
            .iter()
            .enumerate()
            .filter_map(|(padding, bytes)| {
                Some((*bytes as f64, figures.get(&(padding, index))?.mflops))
            })
            .collect(),
    };
    let lines: Vec<Line> = allocators.iter().enumerate().map(line).collect();
    let x = Axis {
        label: "padding, bytes",
        scale: Scale::Linear,
    };
    let y = Axis {
        label: "MFLOPS",
        scale: Scale::Linear,
    };
    plot::lines("A stencil over large arrays by padding", &x, &y, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_alias_within_a_line_of_the_same_page_offset() {
        assert!(aliases(0x10_0010, 0x20_0010));
        assert!(aliases(0x10_0010, 0x20_004f));
        assert!(aliases(0x20_004f, 0x10_0010));
        assert!(!aliases(0x10_0010, 0x20_0050));
        assert!(!aliases(0x10_0000, 0x20_0800));
        assert!(aliases(0x10_0000, 0x20_0fff));
    }

    #[test]
    fn pairs_with_a_store_are_distinguished() {
        let addresses = [0x1000, 0x2000, 0x3800, 0x4800];
        assert_eq!(Pairs::of(&addresses, &[2]), Pairs { all: 2, stored: 1 });
        assert_eq!(
            Pairs::of(&[0x1000; 14], &[10, 13]),
            Pairs {
                all: 91,
                stored: 25
            }
        );
    }

    #[test]
    fn what_the_program_prints_is_read() {
        let text = r#"{"seconds": 1, "mflops": 4000.5, "alias_events": null, "stored": [1], "addresses": [4096, 8192]}"#;
        let sample = Sample::read(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((sample.mflops, sample.alias_events), (4000.5, None));
        assert_eq!(sample.pairs, Pairs { all: 1, stored: 1 });
        let error = Sample::read(&Map::new()).unwrap_err();
        assert!(matches!(error, LabError::NoFigure { .. }), "{error}");
    }
}
