//! `larder lab startup`: the cost of a malloc to a program that hardly uses it: the time of `true`, the
//! resident memory of `cat`.

use larder_base::failure::Result;
use larder_base::machine::Machine;
use larder_base::number::rounded;
use larder_base::statistics::{fastest, median};
use serde_json::json;

use super::output::{self, Output, Report, Table};
use super::programs::{self, Launch, Programs};
use super::progress::Progress;
use super::subject::{self, Field};
use crate::bench::GLIBC;
use crate::bench::allocators::Allocator;

const COREUTILS: &str = "coreutils";
/// Number of processes.
const LOOKS_AT_MEMORY: usize = 20;

#[derive(Debug)]
pub struct StartupPlan {
    /// Processes for each allocator and round.
    pub spawns: u32,
    pub rounds: u32,
    pub field: Field,
    pub output: Output,
}

/// The figures of one allocator, a value for each process.
#[derive(Debug, Default)]
struct Samples {
    micros: Vec<f64>,
    resident_kib: Vec<f64>,
    anonymous_kib: Vec<f64>,
}

/// Memory of one process, in KiB.
#[derive(Debug, PartialEq)]
struct Memory {
    resident: f64,
    anonymous: f64,
}

#[derive(Debug)]
struct Figures {
    micros: f64,
    fastest_micros: f64,
    resident_kib: f64,
    anonymous_kib: f64,
}

pub fn run(plan: &StartupPlan) -> Result<()> {
    let machine = Machine::examine();
    plan.output.prepare()?;
    let programs = Programs::find(&[], plan.field.run_limit_seconds)?;
    let (allocators, notes) = plan.field.find()?;
    let samples = measure(plan, &programs, &allocators)?;
    let figures: Vec<Figures> = samples.iter().filter_map(Samples::figures).collect();
    report(plan, allocators, notes, &samples, &figures).publish(&plan.output, &machine)
}

fn measure(
    plan: &StartupPlan,
    programs: &Programs,
    allocators: &[Allocator],
) -> Result<Vec<Samples>> {
    let path = |name| programs::require(name, COREUTILS).map(|path| path.display().to_string());
    let (idle, cat) = (
        [path("true")?],
        [path("cat")?, "/proc/self/smaps".to_owned()],
    );
    for allocator in allocators {
        subject::check_loaded(programs, allocator, &cat.each_ref().map(String::as_str))?;
    }
    let progress = Progress::new(plan.rounds as usize);
    let mut samples: Vec<Samples> = allocators.iter().map(|_| Samples::default()).collect();
    let mut order: Vec<usize> = (0..allocators.len()).collect();
    for _ in 0..plan.rounds {
        progress.begin("true");
        for _ in 0..plan.spawns {
            fastrand::shuffle(&mut order);
            for &index in &order {
                let time = programs.time(&Launch::new(&idle, Some(&allocators[index])))?;
                samples[index].micros.push(time.as_secs_f64() * 1e6);
            }
        }
        progress.begin("cat");
        for &index in order.iter().cycle().take(order.len() * LOOKS_AT_MEMORY) {
            let printed = programs.printed_by(&Launch::new(&cat, Some(&allocators[index])))?;
            let memory = Memory::read(&String::from_utf8_lossy(&printed));
            samples[index].resident_kib.push(memory.resident);
            samples[index].anonymous_kib.push(memory.anonymous);
        }
        progress.end_step();
    }
    Ok(samples)
}

impl Memory {
    /// Parses /proc/PID/smaps.
    fn read(smaps: &str) -> Memory {
        let sum = |name: &str| -> f64 {
            let values = smaps.lines().filter_map(|line| {
                let kib = line.strip_prefix(name)?.strip_suffix("kB")?;
                kib.trim().parse::<f64>().ok()
            });
            values.sum()
        };
        Memory {
            resident: sum("Rss:"),
            anonymous: sum("Anonymous:"),
        }
    }
}

impl Samples {
    fn figures(&self) -> Option<Figures> {
        Some(Figures {
            micros: median(&self.micros)?,
            fastest_micros: fastest(&self.micros)?,
            resident_kib: median(&self.resident_kib)?,
            anonymous_kib: median(&self.anonymous_kib)?,
        })
    }
}

fn report(
    plan: &StartupPlan,
    allocators: Vec<Allocator>,
    notes: Vec<String>,
    samples: &[Samples],
    figures: &[Figures],
) -> Report {
    let data: Vec<_> = allocators
        .iter()
        .zip(samples)
        .zip(figures)
        .map(|((allocator, samples), figures)| {
            json!({
                "allocator": allocator.name,
                "median_us": figures.micros,
                "us": samples.micros,
                "median_resident_kib": figures.resident_kib,
                "resident_kib": samples.resident_kib,
                "median_anonymous_kib": figures.anonymous_kib,
                "anonymous_kib": samples.anonymous_kib,
            })
        })
        .collect();
    Report {
        name: "startup",
        title: "A program that hardly allocates",
        method: format!(
            "`true`: median and fastest of {} processes; `cat /proc/self/smaps`: median of {}; in {} \
             rounds, interleaved;",
            plan.rounds * plan.spawns,
            plan.rounds as usize * LOOKS_AT_MEMORY,
            plan.rounds
        ),
        tables: vec![table(&allocators, figures)],
        notes,
        plots: Vec::new(),
        data: json!({"rounds": plan.rounds, "spawns": plan.spawns, "figures": data}),
        allocators,
    }
}

fn table(allocators: &[Allocator], figures: &[Figures]) -> Table {
    let header = [
        "allocator",
        "true, µs",
        "fastest",
        "/ glibc",
        "RSS of cat, KiB",
        "+ glibc",
        "anonymous",
        "+ glibc",
    ];
    let mut table = Table::new("Time and memory", header.map(str::to_owned));
    let glibc = allocators.iter().position(|a| a.name == GLIBC);
    let glibc = glibc.map(|index| &figures[index]);
    let over = |value: f64, of: fn(&Figures) -> f64| {
        output::optional(glibc.map(|glibc| value - of(glibc)), rounded)
    };
    for (allocator, figures) in allocators.iter().zip(figures) {
        let ratio = glibc.map(|glibc| figures.micros / glibc.micros);
        table.push([
            allocator.name.clone(),
            rounded(figures.micros),
            rounded(figures.fastest_micros),
            output::optional(ratio, output::figure),
            rounded(figures.resident_kib),
            over(figures.resident_kib, |glibc| glibc.resident_kib),
            rounded(figures.anonymous_kib),
            over(figures.anonymous_kib, |glibc| glibc.anonymous_kib),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(name: &str) -> Allocator {
        Allocator {
            name: name.to_owned(),
            ..Allocator::default()
        }
    }

    const SMAPS: &str = "\
55d0-55e0 r--p 00000000 fe:00 12   /usr/bin/cat
Rss:                   8 kB
Anonymous:             0 kB
7f00-7f10 r-xp 00000000 fe:00 13   /l/a b.so
Rss:                  64 kB
AnonHugePages:      2048 kB
Anonymous:            56 kB
";

    #[test]
    fn memory_is_summed_over_all_mappings() {
        let memory = Memory {
            resident: 72.0,
            anonymous: 56.0,
        };
        assert_eq!(Memory::read(SMAPS), memory);
    }

    #[test]
    fn the_table_has_the_difference_to_glibc() {
        let figures = |micros, resident_kib| Figures {
            micros,
            fastest_micros: micros,
            resident_kib,
            anonymous_kib: 100.0,
        };
        let names = [allocator("larder"), allocator(GLIBC)];
        let both = table(&names, &[figures(909.0, 1500.0), figures(900.0, 1400.0)]);
        assert_eq!(both.rows[0][3..6], ["1.01", "1,500", "100"]);
        let alone = table(&names[..1], &[figures(909.0, 1500.0)]);
        assert_eq!(alone.rows[0][3..6], ["–", "1,500", "–"]);
    }
}
