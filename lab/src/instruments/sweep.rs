//! `larder sweep`: the time of a malloc and free from 50 B to 50 MB, with the block untouched, and with a
//! write to each of its pages.

use std::collections::BTreeMap;

use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::statistics::median;
use serde_json::json;

use super::output::{self, Output, Report, Table};
use super::plot::{self, Axis, Line, Scale};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::subject::{self, Field};
use crate::bench::allocators::Allocator;

const PROGRAM: &str = "bench_sweep";
const MODES: [&str; 2] = ["untouched", "touched"];
/// Arguments of a warm-up run.
const TRIAL_SCALE: f64 = 0.001;

#[derive(Debug)]
pub struct SweepPlan {
    /// In bytes, ascending.
    pub sizes: Vec<usize>,
    pub rounds: u32,
    pub scale: f64,
    pub field: Field,
    pub output: Output,
}

/// ns a pair, a value a round. Indexed by mode, size, allocator.
type Samples = BTreeMap<(usize, usize, usize), Vec<f64>>;

pub fn run(plan: &SweepPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let programs = Programs::find(&[PROGRAM], plan.field.run_limit_seconds)?;
    let (allocators, notes) = plan.field.find()?;
    for allocator in &allocators {
        let trial = Trial {
            allocator,
            size: 50,
            mode: MODES[0],
        };
        subject::check_loaded(
            &programs,
            allocator,
            &trial.words().each_ref().map(String::as_str),
        )?;
    }
    let samples = measure(plan, &programs, &allocators)?;
    let medians = samples
        .iter()
        .filter_map(|(key, values)| Some((*key, median(values)?)))
        .collect();
    report(plan, allocators, notes, &samples, &medians).publish(&plan.output, &machine)
}

struct Trial<'a> {
    allocator: &'a Allocator,
    size: usize,
    mode: &'static str,
}

impl Trial<'_> {
    fn words(&self) -> [String; 3] {
        [
            PROGRAM.to_owned(),
            self.size.to_string(),
            self.mode.to_owned(),
        ]
    }

    fn run(&self, programs: &Programs, scale: f64) -> Result<f64> {
        let launch = Launch::new(&self.words(), Some(self.allocator)).scaled(scale);
        let printed = programs.run(&launch)?;
        Ok(programs::number(&printed, "ns_per_operation", PROGRAM)?)
    }
}

fn measure(plan: &SweepPlan, programs: &Programs, allocators: &[Allocator]) -> Result<Samples> {
    let mut cells: Vec<(usize, usize, usize)> = (0..MODES.len())
        .flat_map(|mode| (0..plan.sizes.len()).map(move |size| (mode, size)))
        .flat_map(|(mode, size)| (0..allocators.len()).map(move |index| (mode, size, index)))
        .collect();
    let progress = Progress::new(cells.len() * plan.rounds as usize);
    let mut samples = Samples::new();
    for _ in 0..plan.rounds {
        fastrand::shuffle(&mut cells);
        for &(mode, size, index) in &cells {
            let trial = Trial {
                allocator: &allocators[index],
                size: plan.sizes[size],
                mode: MODES[mode],
            };
            progress.begin(&format!(
                "{} {}",
                trial.allocator.name,
                output::size(trial.size)
            ));
            let ns = trial.run(programs, plan.scale.max(TRIAL_SCALE))?;
            samples.entry((mode, size, index)).or_default().push(ns);
            progress.end_step();
        }
    }
    Ok(samples)
}

type Medians = BTreeMap<(usize, usize, usize), f64>;

fn report(
    plan: &SweepPlan,
    allocators: Vec<Allocator>,
    notes: Vec<String>,
    samples: &Samples,
    medians: &Medians,
) -> Report {
    let tables = (0..MODES.len())
        .map(|mode| table(plan, &allocators, mode, medians))
        .collect();
    let plots = (0..MODES.len())
        .map(|mode| draw(plan, &allocators, mode, medians))
        .collect();
    let figures: Vec<_> = samples
        .iter()
        .map(|(key @ (mode, size, index), values)| {
            json!({
                "mode": MODES[*mode],
                "size_bytes": plan.sizes[*size],
                "allocator": allocators[*index].name,
                "median_ns": medians[key],
                "ns": values,
            })
        })
        .collect();
    Report {
        name: "sweep",
        title: "A malloc and free by size",
        method: format!(
            "Time of `free(malloc(size))` in steady state, median of {} interleaved rounds, a fresh \
             process each;",
            plan.rounds
        ),
        tables,
        notes,
        plots,
        data: json!({"rounds": plan.rounds, "scale": plan.scale, "figures": figures}),
        allocators,
    }
}

fn table(plan: &SweepPlan, allocators: &[Allocator], mode: usize, medians: &Medians) -> Table {
    let caption = match MODES[mode] {
        "touched" => "ns a pair, each page written to",
        _ => "ns a pair, untouched",
    };
    let header = ["size".to_owned()].into_iter();
    let mut table = Table::new(
        caption,
        header.chain(allocators.iter().map(|a| a.name.clone())),
    );
    let row = |size: usize| (0..allocators.len()).map(move |index| (mode, size, index));
    for (size, bytes) in plan.sizes.iter().enumerate() {
        let cells =
            row(size).map(|key| output::optional(medians.get(&key).copied(), output::figure));
        table.push([output::size(*bytes)].into_iter().chain(cells));
    }
    let last = plan.sizes.len() - 1;
    if last > 0 {
        let ratios = row(last).zip(row(0)).map(|(largest, smallest)| {
            output::optional(ratio(medians, largest, smallest), output::figure)
        });
        let label = format!(
            "{} / {}",
            output::size(plan.sizes[last]),
            output::size(plan.sizes[0])
        );
        table.push([label].into_iter().chain(ratios));
    }
    table
}

fn ratio(medians: &Medians, a: (usize, usize, usize), b: (usize, usize, usize)) -> Option<f64> {
    Some(medians.get(&a)? / medians.get(&b)?)
}

fn draw(
    plan: &SweepPlan,
    allocators: &[Allocator],
    mode: usize,
    medians: &Medians,
) -> (String, String) {
    let lines: Vec<Line> = allocators
        .iter()
        .enumerate()
        .map(|(index, allocator)| Line {
            name: allocator.name.clone(),
            points: plan
                .sizes
                .iter()
                .enumerate()
                .filter_map(|(size, bytes)| {
                    Some((*bytes as f64, *medians.get(&(mode, size, index))?))
                })
                .collect(),
        })
        .collect();
    let x = Axis {
        label: "bytes",
        scale: Scale::Logarithmic,
    };
    let y = Axis {
        label: "ns a pair of malloc and free",
        scale: Scale::Logarithmic,
    };
    let title = format!("free(malloc(size)), {}", MODES[mode]);
    (
        format!("sweep-{}.svg", MODES[mode]),
        plot::lines(&title, &x, &y, &lines),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_is_the_growth() {
        let plan = SweepPlan {
            sizes: vec![50, 5_000],
            rounds: 1,
            scale: 1.0,
            field: Field::default(),
            output: Output::default(),
        };
        let allocators = [Allocator {
            name: "a".to_owned(),
            ..Allocator::default()
        }];
        let medians = Medians::from([((0, 0, 0), 8.0), ((0, 1, 0), 20.0)]);
        let table = table(&plan, &allocators, 0, &medians);
        assert_eq!(table.rows[0], ["50 B", "8.00"]);
        assert_eq!(table.rows[2], ["5 kB / 50 B", "2.50"]);
        let (name, svg) = draw(&plan, &allocators, 0, &medians);
        assert_eq!(name, "sweep-untouched.svg");
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
