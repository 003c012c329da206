//! `larder lab page-map`: from an address to its descriptor, by Larder's radix tree of one, two and
//! three levels and by a hash map behind a lock.

use std::collections::BTreeMap;

use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::statistics::median;
use serde_json::json;

use super::output::{self, Output, Report, Table};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;

const PROGRAM: &str = "bench_page_map";
const STRUCTURES: [(&str, &str); 5] = [
    ("radix1", "radix tree, 1 level (36 bits)"),
    ("radix2", "radix tree, 2 levels (48 bits): Larder's"),
    ("radix3", "radix tree, 3 levels (57 bits)"),
    ("hash_mutex", "std::unordered_map, mutex"),
    ("hash_shared", "std::unordered_map, shared mutex"),
];
const KINDS: [(&str, &str); 2] = [("latency_ns", "latency"), ("throughput_ns", "throughput")];
const RUN_LIMIT_SECONDS: u64 = 600;

#[derive(Debug)]
pub struct PageMapPlan {
    pub threads: Vec<usize>,
    pub rounds: u32,
    pub scale: f64,
    pub output: Output,
}

/// Indexed by structure and threads; for each kind a value a round.
type Samples = BTreeMap<(usize, usize), [Vec<f64>; 2]>;

pub fn run(plan: &PageMapPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let programs = Programs::find(&[PROGRAM], RUN_LIMIT_SECONDS)?;
    let samples = measure(plan, &programs)?;
    report(plan, &samples).publish(&plan.output, &machine)
}

fn measure(plan: &PageMapPlan, programs: &Programs) -> Result<Samples> {
    let mut cells: Vec<(usize, usize)> = (0..STRUCTURES.len())
        .flat_map(|structure| (0..plan.threads.len()).map(move |threads| (structure, threads)))
        .collect();
    let progress = Progress::new(cells.len() * plan.rounds as usize);
    let mut samples = Samples::new();
    for _ in 0..plan.rounds {
        fastrand::shuffle(&mut cells);
        for &(structure, threads) in &cells {
            progress.begin(STRUCTURES[structure].1);
            let words = [
                PROGRAM.to_owned(),
                STRUCTURES[structure].0.to_owned(),
                plan.threads[threads].to_string(),
            ];
            let printed = programs.run(&Launch::new(&words, None).scaled(plan.scale))?;
            let lists = samples.entry((structure, threads)).or_default();
            for (list, (key, _)) in lists.iter_mut().zip(KINDS) {
                list.push(programs::number(&printed, key, PROGRAM)?);
            }
            progress.end_step();
        }
    }
    Ok(samples)
}

fn report(plan: &PageMapPlan, samples: &Samples) -> Report {
    let header = plan.threads.iter().flat_map(|threads| {
        let unit = if *threads == 1 { "thread" } else { "threads" };
        KINDS.map(|(_, kind)| format!("{kind}, {threads} {unit}"))
    });
    let header = ["structure".to_owned()].into_iter().chain(header);
    let mut table = Table::new("ns a look-up", header);
    for (structure, (_, what)) in STRUCTURES.iter().enumerate() {
        let cells = (0..plan.threads.len()).flat_map(|threads| {
            let lists = samples.get(&(structure, threads));
            [0, 1].map(|kind| {
                let value = lists.and_then(|lists| median(&lists[kind]));
                output::optional(value, output::figure)
            })
        });
        table.push([(*what).to_owned()].into_iter().chain(cells));
    }
    let data: Vec<_> = samples
        .iter()
        .map(|((structure, threads), [latency, throughput])| {
            json!({
                "structure": STRUCTURES[*structure].0,
                "threads": plan.threads[*threads],
                "median_latency_ns": median(latency),
                "median_throughput_ns": median(throughput),
                "latency_ns": latency,
                "throughput_ns": throughput,
            })
        })
        .collect();
    Report {
        name: "page-map",
        title: "From an address to its descriptor",
        method: format!(
            "Random addresses in a heap of 2 GiB with an entry per 16 KiB; a thread's time, all \
             threads looking up at once; median of {} interleaved rounds;",
            plan.rounds
        ),
        allocators: Vec::new(),
        tables: vec![table],
        notes: vec![
            "Latency: each look-up waits for the previous one. Throughput: they may overlap."
                .to_owned(),
        ],
        plots: Vec::new(),
        data: json!({"rounds": plan.rounds, "scale": plan.scale, "figures": data}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_structure_has_a_row_of_medians() {
        let plan = PageMapPlan {
            threads: vec![1, 2],
            rounds: 3,
            scale: 1.0,
            output: Output {
                directory: None,
                json: false,
            },
        };
        let samples = Samples::from([((1, 0), [vec![3.0, 1.0, 2.0], vec![9.0, 7.0, 8.0]])]);
        let report = report(&plan, &samples);
        assert_eq!(report.tables[0].rows.len(), STRUCTURES.len());
        assert_eq!(report.tables[0].rows[1][1..], ["2.00", "8.00", "–", "–"]);
        assert_eq!(report.tables[0].header[3], "latency, 2 threads");
    }
}
