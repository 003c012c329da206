//! The instruments beside `larder bench`: each answers one question about allocators with a program
//! of its own (`docs/how/instruments.md`). Timings are interleaved and medians; counts are exact.
//!
//! An instrument is a plan (`arguments`), runs of programs (`programs`, `callgrind`, `strace`), a
//! computation, and a report (`output`, `plot`), in this order.

pub mod arguments;

mod alias;
pub mod callgrind;
mod counts;
mod disassembly;
mod grid;
mod instructions;
pub mod output;
mod page_map;
pub mod plot;
mod programs;
pub mod progress;
mod recorded;
mod recording;
mod stacks;
mod startup;
mod strace;
mod subject;
mod sweep;
mod traces;

use larder_base::failure::Result;

/// An instrument, with its options.
#[derive(Debug)]
pub enum InstrumentPlan {
    Sweep(sweep::SweepPlan),
    Alias(alias::AliasPlan),
    Grid(grid::GridPlan),
    PageMap(page_map::PageMapPlan),
    Counts(counts::CountsPlan),
    Instructions(instructions::InstructionsPlan),
    Startup(startup::StartupPlan),
    Recording(recording::RecordingPlan),
    Stacks(stacks::StacksPlan),
}

pub fn run(plan: &InstrumentPlan) -> Result<()> {
    match plan {
        InstrumentPlan::Sweep(plan) => sweep::run(plan),
        InstrumentPlan::Alias(plan) => alias::run(plan),
        InstrumentPlan::Grid(plan) => grid::run(plan),
        InstrumentPlan::PageMap(plan) => page_map::run(plan),
        InstrumentPlan::Counts(plan) => counts::run(plan),
        InstrumentPlan::Instructions(plan) => instructions::run(plan),
        InstrumentPlan::Startup(plan) => startup::run(plan),
        InstrumentPlan::Recording(plan) => recording::run(plan),
        InstrumentPlan::Stacks(plan) => stacks::run(plan),
    }
}
