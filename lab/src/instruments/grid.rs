//! `larder lab grid`: t-test1's mix by threads and largest size: operations a second, and a second of
//! processor time.

use std::collections::BTreeMap;

use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::order;
use larder_base::statistics::{geometric_mean, median};
use serde_json::json;

use super::output::{self, Output, Report, Table};
use super::plot::{self, HeatMap};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::subject::{self, Field};
use crate::bench::allocators::Allocator;
use crate::bench::{GLIBC, LARDER};

const PROGRAM: &str = "bench_ttest";
/// A cell's share of the workload's usual work.
const CELL_SHARE: f64 = 0.4;
const TRIAL_SCALE: f64 = 0.01;
const METRICS: [Metric; 2] = [
    Metric {
        key: "operations_per_second",
        what: "operations a second",
    },
    Metric {
        key: "operations_per_cpu_second",
        what: "operations a CPU second",
    },
];

struct Metric {
    key: &'static str,
    what: &'static str,
}

#[derive(Debug)]
pub struct GridPlan {
    /// Rising.
    pub threads: Vec<usize>,
    /// The largest of a cell's sizes, in bytes, ascending.
    pub sizes: Vec<usize>,
    pub rounds: u32,
    pub scale: f64,
    pub field: Field,
    pub output: Output,
}

/// Indexed by threads, size, allocator; for each metric a value a round.
type Samples = BTreeMap<(usize, usize, usize), [Vec<f64>; 2]>;
type Medians = BTreeMap<(usize, usize, usize), [f64; 2]>;

pub fn run(plan: &GridPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let programs = Programs::find(&[PROGRAM], plan.field.run_limit_seconds)?;
    let (allocators, notes) = plan.field.find()?;
    for allocator in &allocators {
        subject::check_loaded(&programs, allocator, &[PROGRAM, "1", "64"])?;
    }
    let samples = measure(plan, &programs, &allocators)?;
    let medians = samples
        .iter()
        .filter_map(|(key, [a, b])| Some((*key, [median(a)?, median(b)?])))
        .collect();
    report(plan, allocators, notes, &samples, &medians).publish(&plan.output, &machine)
}

fn measure(plan: &GridPlan, programs: &Programs, allocators: &[Allocator]) -> Result<Samples> {
    let mut cells: Vec<(usize, usize, usize)> = (0..plan.threads.len())
        .flat_map(|threads| (0..plan.sizes.len()).map(move |size| (threads, size)))
        .flat_map(|(threads, size)| (0..allocators.len()).map(move |index| (threads, size, index)))
        .collect();
    let progress = Progress::new(cells.len() * plan.rounds as usize);
    let scale = (plan.scale * CELL_SHARE).max(TRIAL_SCALE);
    let mut samples = Samples::new();
    for _ in 0..plan.rounds {
        fastrand::shuffle(&mut cells);
        for &(threads, size, index) in &cells {
            let (count, bytes) = (plan.threads[threads], plan.sizes[size]);
            progress.begin(&format!("{} {count} × {bytes} B", allocators[index].name));
            let words = [PROGRAM.to_owned(), count.to_string(), bytes.to_string()];
            let launch = Launch::new(&words, Some(&allocators[index])).scaled(scale);
            let printed = programs.run(&launch)?;
            let lists = samples.entry((threads, size, index)).or_default();
            for (list, metric) in lists.iter_mut().zip(&METRICS) {
                list.push(programs::number(&printed, metric.key, PROGRAM)?);
            }
            progress.end_step();
        }
    }
    Ok(samples)
}

/// For each cell, an allocator's rate / another's; None if one is missing.
fn ratios(
    plan: &GridPlan,
    medians: &Medians,
    metric: usize,
    a: usize,
    b: usize,
) -> Vec<Vec<Option<f64>>> {
    let ratio = |threads, size| {
        Some(medians.get(&(threads, size, a))?[metric] / medians.get(&(threads, size, b))?[metric])
    };
    let row = |size| {
        (0..plan.threads.len())
            .map(|threads| ratio(threads, size))
            .collect()
    };
    (0..plan.sizes.len()).map(row).collect()
}

/// The reference: glibc, else the first.
fn reference(allocators: &[Allocator]) -> usize {
    let glibc = allocators
        .iter()
        .position(|allocator| allocator.name == GLIBC);
    glibc.unwrap_or(0)
}

fn report(
    plan: &GridPlan,
    allocators: Vec<Allocator>,
    notes: Vec<String>,
    samples: &Samples,
    medians: &Medians,
) -> Report {
    let base = reference(&allocators);
    let mut tables = vec![summary(plan, &allocators, base, medians)];
    for (metric, description) in METRICS.iter().enumerate() {
        for index in 0..allocators.len() {
            tables.push(rates(
                plan,
                &allocators,
                index,
                metric,
                description.what,
                medians,
            ));
        }
    }
    let data: Vec<_> = samples
        .iter()
        .map(|(key @ (threads, size, index), [rate, cpu_rate])| {
            json!({
                "threads": plan.threads[*threads],
                "largest_bytes": plan.sizes[*size],
                "allocator": allocators[*index].name,
                "median_operations_per_second": medians[key][0],
                "median_operations_per_cpu_second": medians[key][1],
                "operations_per_second": rate,
                "operations_per_cpu_second": cpu_rate,
            })
        })
        .collect();
    let plots = METRICS
        .iter()
        .enumerate()
        .map(|(metric, description)| draw(plan, &allocators, base, metric, description, medians));
    Report {
        name: "grid",
        title: "t-test1's grid",
        method: format!(
            "Threads by largest size; median of {} interleaved rounds, a fresh process each;",
            plan.rounds
        ),
        plots: plots.collect(),
        tables,
        notes,
        data: json!({"rounds": plan.rounds, "scale": plan.scale, "figures": data}),
        allocators,
    }
}

fn summary(plan: &GridPlan, allocators: &[Allocator], base: usize, medians: &Medians) -> Table {
    let against = &allocators[base].name;
    let header = [
        "allocator".to_owned(),
        format!("geometric mean of operations a second / {against}"),
        "a CPU second".to_owned(),
        format!("cells ahead of {against}"),
        "worst cell".to_owned(),
    ];
    let mut table = Table::new("Over the grid", header);
    for (index, allocator) in allocators.iter().enumerate() {
        let all = |metric| -> Vec<f64> {
            ratios(plan, medians, metric, index, base)
                .into_iter()
                .flatten()
                .flatten()
                .collect()
        };
        let [wall, cpu] = [all(0), all(1)];
        let ahead = wall.iter().filter(|ratio| **ratio > 1.0).count();
        let worst = wall.iter().copied().min_by(f64::total_cmp);
        table.push([
            allocator.name.clone(),
            output::optional(geometric_mean(&wall), output::figure),
            output::optional(geometric_mean(&cpu), output::figure),
            format!("{ahead} of {}", wall.len()),
            output::optional(worst, output::figure),
        ]);
    }
    table
}

fn rates(
    plan: &GridPlan,
    allocators: &[Allocator],
    index: usize,
    metric: usize,
    what: &str,
    medians: &Medians,
) -> Table {
    let caption = format!("{}: million {what}", allocators[index].name);
    let columns = plan
        .threads
        .iter()
        .map(|threads| format!("{threads} threads"));
    let mut table = Table::new(&caption, ["largest".to_owned()].into_iter().chain(columns));
    for (size, bytes) in plan.sizes.iter().enumerate() {
        let cells = (0..plan.threads.len()).map(|threads| {
            let rate = medians
                .get(&(threads, size, index))
                .map(|rates| rates[metric] / 1e6);
            output::optional(rate, output::figure)
        });
        table.push([format!("{bytes} B")].into_iter().chain(cells));
    }
    table
}

fn draw(
    plan: &GridPlan,
    allocators: &[Allocator],
    base: usize,
    metric: usize,
    description: &Metric,
    medians: &Medians,
) -> (String, String) {
    let mut order: Vec<usize> = (0..allocators.len())
        .filter(|index| *index != base)
        .collect();
    order::sort_by_key(&mut order, |index| allocators[*index].name != LARDER);
    let maps: Vec<HeatMap> = order
        .into_iter()
        .map(|index| HeatMap {
            name: format!("{} / {}", allocators[index].name, allocators[base].name),
            cells: ratios(plan, medians, metric, index, base),
        })
        .collect();
    let columns: Vec<String> = plan.threads.iter().map(usize::to_string).collect();
    let rows: Vec<String> = plan
        .sizes
        .iter()
        .map(|bytes| format!("{bytes} B"))
        .collect();
    let title = format!(
        "t-test1: {}, by threads (across) and largest size",
        description.what
    );
    let name = format!("grid-{}.svg", description.key.replace('_', "-"));
    (name, plot::heat_maps(&title, &columns, &rows, &maps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Allocator {
        Allocator {
            name: name.to_owned(),
            ..Allocator::default()
        }
    }

    #[test]
    fn the_summary_is_against_glibc() {
        let plan = GridPlan {
            threads: vec![1, 2],
            sizes: vec![64],
            rounds: 1,
            scale: 1.0,
            field: Field::default(),
            output: Output::default(),
        };
        let allocators = [named(LARDER), named(GLIBC)];
        assert_eq!(reference(&allocators), 1);
        let medians = Medians::from([
            ((0, 0, 0), [8.0e6, 4.0e6]),
            ((0, 0, 1), [2.0e6, 2.0e6]),
            ((1, 0, 0), [1.0e6, 1.0e6]),
            ((1, 0, 1), [4.0e6, 2.0e6]),
        ]);
        let table = summary(&plan, &allocators, 1, &medians);
        assert_eq!(table.rows[0], [LARDER, "1.00", "1.00", "1 of 2", "0.25"]);
        let rates = rates(&plan, &allocators, 0, 0, METRICS[0].what, &medians);
        assert_eq!(rates.rows[0], ["64 B", "8.00", "1.00"]);
        let (_, svg) = draw(&plan, &allocators, 1, 0, &METRICS[0], &medians);
        assert!(svg.contains(">4.00<") && svg.contains(">0.25<"), "{svg}");
    }
}
