//! `larder lab instructions`: how many instructions a malloc and free execute, by size, on every
//! allocator, in the archives linked in, and in the least that could do the work.
//!
//! A run of 2 N pairs - one of N = N pairs in steady state, without start-up; the loop around them is
//! counted by itself and subtracted. Instructions of the kernel do not count.

use std::collections::BTreeMap;

use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::number::rounded;
use serde_json::json;

use super::callgrind::{self, Detail};
use super::output::{self, Output, Report, Table};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::subject::{self, Field};
use crate::bench::allocators::Allocator;

const LOOP: &str = "bench_pair_loop";
const FLOOR: &str = "bench_pair_floor";
/// Larder linked in, instead of preloaded.
const LINKED: [(&str, &str); 3] = [
    ("larder, static", "bench_pair_loop_static"),
    ("larder, prefixed", "bench_pair_loop_prefixed"),
    ("larder, static inlined", "bench_pair_loop_inline"),
];
const FLOORS: [(&str, &str); 2] = [
    ("list", "thread-local list, inlined"),
    ("bump", "bump allocator, inlined"),
];

#[derive(Debug)]
pub struct InstructionsPlan {
    /// In bytes, ascending.
    pub sizes: Vec<usize>,
    pub pairs: u64,
    pub field: Field,
    pub output: Output,
}

/// A column of the table.
#[derive(Debug)]
struct Contestant {
    name: String,
    program: &'static str,
    allocator: Option<usize>,
}

#[derive(Debug)]
struct Figures {
    /// By the order of FLOORS.
    floors: Vec<f64>,
    /// Indexed by contestant and size.
    pairs: BTreeMap<(usize, usize), f64>,
    failures: Vec<String>,
}

pub fn run(plan: &InstructionsPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    programs::require(callgrind::COMMAND, callgrind::PACKAGE)?;
    let mut needed = vec![LOOP, FLOOR];
    needed.extend(LINKED.map(|(_, program)| program));
    let programs = Programs::find(&needed, plan.field.run_limit_seconds)?;
    let (allocators, notes) = plan.field.find()?;
    for allocator in &allocators {
        subject::check_loaded(&programs, allocator, &[LOOP, "16", "1"])?;
    }
    let contestants = contestants(&allocators);
    let figures = measure(plan, &programs, &allocators, &contestants)?;
    report(plan, allocators, notes, &contestants, &figures).publish(&plan.output, &machine)
}

fn contestants(allocators: &[Allocator]) -> Vec<Contestant> {
    let preloaded = allocators
        .iter()
        .enumerate()
        .map(|(index, allocator)| Contestant {
            name: allocator.name.clone(),
            program: LOOP,
            allocator: Some(index),
        });
    let linked = LINKED.map(|(name, program)| Contestant {
        name: name.to_owned(),
        program,
        allocator: None,
    });
    preloaded.chain(linked).collect()
}

/// Instructions of one iteration of the program's loop; its last argument is their number.
fn per_turn(
    programs: &Programs,
    words: &[String],
    allocator: Option<&Allocator>,
    turns: u64,
) -> Result<f64> {
    let count = |turns: u64| -> Result<f64> {
        let words: Vec<String> = words.iter().cloned().chain([turns.to_string()]).collect();
        let launch = Launch::new(&words, allocator);
        let profile = callgrind::profile(programs, launch, 1, Detail::Total)?;
        Ok(profile.instructions as f64)
    };
    Ok((count(2 * turns)? - count(turns)?) / turns as f64)
}

fn measure(
    plan: &InstructionsPlan,
    programs: &Programs,
    allocators: &[Allocator],
    contestants: &[Contestant],
) -> Result<Figures> {
    let progress = Progress::new(contestants.len() * plan.sizes.len() + FLOORS.len() + 1);
    let floor = |name: &str| {
        progress.begin(name);
        let turn = per_turn(
            programs,
            &[FLOOR, name].map(str::to_owned),
            None,
            plan.pairs,
        );
        progress.end_step();
        turn
    };
    let empty = floor("empty")?;
    let floors = FLOORS
        .iter()
        .map(|(name, _)| Ok(floor(name)? - empty))
        .collect::<Result<_>>()?;
    let mut pairs = BTreeMap::new();
    let mut failures = Vec::new();
    for (index, contestant) in contestants.iter().enumerate() {
        for (size, bytes) in plan.sizes.iter().enumerate() {
            progress.begin(&format!("{} {}", contestant.name, output::size(*bytes)));
            let words = [contestant.program.to_owned(), bytes.to_string()];
            let allocator = contestant.allocator.map(|index| &allocators[index]);
            match per_turn(programs, &words, allocator, plan.pairs) {
                Ok(turn) => {
                    pairs.insert((index, size), turn - empty);
                }
                // An allocator that cannot run under valgrind leaves a gap in the table.
                Err(failure) => failures.push(failure.message),
            }
            progress.end_step();
        }
    }
    Ok(Figures {
        floors,
        pairs,
        failures,
    })
}

fn report(
    plan: &InstructionsPlan,
    allocators: Vec<Allocator>,
    mut notes: Vec<String>,
    contestants: &[Contestant],
    figures: &Figures,
) -> Report {
    notes.push(
        "What the kernel executes is not counted: where an allocator maps memory for each pair, the \
         sweep shows what that costs. The calls through the program's own table are counted."
            .to_owned(),
    );
    notes.extend(figures.failures.iter().cloned());
    let data: Vec<_> = figures
        .pairs
        .iter()
        .map(|((index, size), count)| {
            json!({
                "allocator": contestants[*index].name,
                "size_bytes": plan.sizes[*size],
                "instructions": count,
            })
        })
        .collect();
    let floors: BTreeMap<&str, f64> = FLOORS
        .iter()
        .map(|(name, _)| *name)
        .zip(figures.floors.iter().copied())
        .collect();
    Report {
        name: "instructions",
        title: "Instructions of a malloc and free",
        method: format!(
            "callgrind, {} pairs against {}, the loop taken off;",
            2 * plan.pairs,
            plan.pairs
        ),
        tables: vec![
            by_size(plan, contestants, figures),
            against_floor(contestants, figures),
        ],
        notes,
        plots: Vec::new(),
        data: json!({"pairs": plan.pairs, "floors": floors, "figures": data}),
        allocators,
    }
}

fn by_size(plan: &InstructionsPlan, contestants: &[Contestant], figures: &Figures) -> Table {
    let header = ["size".to_owned()].into_iter();
    let names = contestants.iter().map(|contestant| contestant.name.clone());
    let mut table = Table::new("Instructions a pair", header.chain(names));
    for (size, bytes) in plan.sizes.iter().enumerate() {
        let cells = (0..contestants.len())
            .map(|index| output::optional(figures.pairs.get(&(index, size)).copied(), count));
        table.push([output::size(*bytes)].into_iter().chain(cells));
    }
    table
}

fn against_floor(contestants: &[Contestant], figures: &Figures) -> Table {
    let header = [
        "smallest size".to_owned(),
        "instructions a pair".to_owned(),
        "/ list".to_owned(),
    ];
    let mut table = Table::new("Against the floor", header);
    let list = figures.floors.first().copied();
    let over_list = |pair: f64| output::optional(list.map(|list| pair / list), output::figure);
    for ((_, what), pair) in FLOORS.iter().zip(&figures.floors) {
        table.push([(*what).to_owned(), count(*pair), over_list(*pair)]);
    }
    for (index, contestant) in contestants.iter().enumerate() {
        if let Some(pair) = figures.pairs.get(&(index, 0)) {
            table.push([contestant.name.clone(), count(*pair), over_list(*pair)]);
        }
    }
    table
}

/// Usually whole; with a tenth if something happens only in some pairs.
fn count(value: f64) -> String {
    if value >= 1000.0 || (value - value.round()).abs() < 0.05 {
        rounded(value)
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_stand_beside_the_preloaded() {
        let allocators = [Allocator {
            name: "a".to_owned(),
            ..Allocator::default()
        }];
        let contestants = contestants(&allocators);
        let figures = Figures {
            floors: vec![6.0, 3.0],
            pairs: BTreeMap::from([((0, 0), 45.0), ((1, 0), 36.2)]),
            failures: Vec::new(),
        };
        let table = against_floor(&contestants, &figures);
        assert_eq!(table.rows[0][1..], ["6", "1.00"]);
        assert_eq!(table.rows[2], ["a", "45", "7.50"]);
        assert_eq!(table.rows[3], ["larder, static", "36.2", "6.03"]);
        assert_eq!(table.rows.len(), 4, "what was not measured has no row");
    }
}
