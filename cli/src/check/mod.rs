//! `larder check`: is a run within its budget?
//!
//! ```text
//! budget (TOML) ─────────────┐
//! measure (runs, or a trace) ┴─> verdict ─> print
//!                            └─> budget::updated (--update)
//! ```

pub mod args;
mod budget;
pub mod figures;
mod limit;
mod measure;
mod print;
mod verdict;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use larder_analysis::reading::resolve::Wrappers;
use larder_analysis::reading::subject::Subject;
use larder_base::failure::{Failure, Result};
use larder_base::format::Format;
use larder_base::output::{self, Content};
use larder_base::path::quoted;
use larder_base::printable;

use crate::history::store;
use crate::record::RecordPlan;
use args::CheckPlan;
use budget::Budget;
use measure::Measured;

const EXCEEDED: u8 = 1;
const COMMAND_FAILED: u8 = 2;

/// Judges, or updates the budget; the exit code.
pub fn check(plan: &CheckPlan) -> Result<u8> {
    let text = budget::read_text(&plan.budget)?;
    if text.is_none() && !plan.update {
        return Err(Failure::failed(format!(
            "{}: there is no budget yet: make it with `larder check --update -- COMMAND`",
            printable::name(&plan.budget)
        )));
    }
    let budget = Budget::parse(&plan.budget, text.as_deref().unwrap_or_default())?;
    let measured = match measure(plan, &budget)? {
        Ok(measured) => measured,
        Err(end) => {
            report(&[format!("the command failed ({end}); nothing was judged")]);
            return Ok(COMMAND_FAILED);
        }
    };
    for (figure, (low, high)) in &measured.varied {
        let (figure, runs) = (figure.key(), measured.runs);
        report(&[format!(
            "warning: {figure} differs between {runs} runs: {low} to {high}; the lowest counts"
        )]);
    }
    let name = name(plan, &budget);
    let breaches = verdict::judge(&budget, &measured);
    let within = breaches.is_empty() || plan.update;
    if let Some(keep) = &plan.keep {
        store::keep(
            keep,
            &name,
            within,
            &measured.figures,
            measured.times.map(|t| (t.wall, t.cpu)),
        )?;
    }
    if plan.update {
        let new = budget::updated(&plan.budget, text.as_deref(), &measured)?;
        budget::write(&plan.budget, &new)?;
        let file = printable::name(&plan.budget);
        report(&[format!("wrote {file}: {}", print::figures(&measured))]);
        return Ok(0);
    }
    match plan.format {
        Format::Json => print_json(&print::json(&name, &measured, &breaches))?,
        _ if within => report(&[format!(
            "{}: within budget: {}",
            printable::escape(&name),
            print::figures(&measured)
        )]),
        _ => report(&print::exceeded(
            &name,
            &breaches,
            &measured.wrappers,
            &update_command(plan),
        )),
    }
    Ok(if within { 0 } else { EXCEEDED })
}

/// The figures of the run, or how the command failed.
fn measure(plan: &CheckPlan, budget: &Budget) -> Result<std::result::Result<Measured, String>> {
    if let (Some(trace), true) = (&plan.trace, plan.command.is_empty()) {
        let subject = Subject {
            trace: trace.clone(),
            pid: None,
            wrappers: Vec::new(),
            charging: plan.charging.clone(),
        };
        return Measured::of_trace(&subject).map(Ok);
    }
    let command = match plan.command.is_empty() {
        true => budget.command.iter().map(OsString::from).collect(),
        false => plan.command.clone(),
    };
    if command.is_empty() {
        return Err(Failure::failed(format!(
            "no command: give one after --, or a trace, or put command = [\"…\"] into {}",
            printable::name(&plan.budget)
        )));
    }
    let plan_of_run = RecordPlan {
        no_larder: true,
        aggregate: true,
        command,
        stdout: plan.format.stdout_of_command(None),
        ..RecordPlan::default()
    };
    let measured = Measured::of_runs(&plan_of_run, &plan.charging, plan.runs)?;
    Ok(measured.map_err(measure::describe_end))
}

/// The budget's own, else its file's; of a `larder.toml` its folder's.
fn name(plan: &CheckPlan, budget: &Budget) -> String {
    if let Some(name) = &budget.name {
        return name.clone();
    }
    let folder = std::path::absolute(&plan.budget).ok();
    let folder = folder.as_deref().and_then(Path::parent);
    let name = match plan.budget.file_stem() {
        Some(stem) if stem != "larder" => Some(stem),
        stem => folder.and_then(Path::file_name).or(stem),
    };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// What accepts the run as the new budget.
fn update_command(plan: &CheckPlan) -> String {
    let mut words = vec!["larder check --update".to_owned()];
    if plan.budget != Path::new("larder.toml") {
        words.push(format!("--budget {}", quoted(&plan.budget)));
    }
    // The update has to charge the same sites.
    let skips = plan.charging.skips.iter();
    words.extend(skips.map(|skip| format!("--skip {}", quoted(Path::new(skip)))));
    if plan.charging.wrappers == Wrappers::Charged {
        words.push("--no-wrappers".to_owned());
    }
    if let Some(trace) = &plan.trace {
        words.push(quoted(trace));
    }
    if !plan.command.is_empty() {
        words.push("--".to_owned());
        words.extend(plan.command.iter().map(|word| quoted(Path::new(word))));
    }
    words.join(" ")
}

/// A closed stderr is no error: the exit code has the result.
fn report(lines: &[String]) {
    let mut out = io::stderr().lock();
    for (index, line) in lines.iter().enumerate() {
        let prefix = if index == 0 { "larder: " } else { "" };
        let _ = writeln!(out, "{prefix}{line}");
    }
}

fn print_json(document: &serde_json::Value) -> Result<()> {
    let text = document.to_string();
    output::write(None, Content::Text, |out| {
        writeln!(out, "{}", printable::escape_json(&text))
    })
}
