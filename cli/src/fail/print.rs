//! The output of `--fail-each`, as text and as JSON.

use std::io::{self, Write};

use larder_base::number::{counted, grouped};
use larder_base::printable::escape;
use serde_json::json;

use super::args::FailPlan;
use super::each::{BadRuns, Outcome, signal_name};
use super::experiment::{Ended, words};
use super::log::FailedCall;

/// `malloc(40)`.
pub fn call(failed: &FailedCall) -> String {
    format!("{}({})", failed.call, failed.size)
}

fn ended(ended: &Ended) -> String {
    match ended {
        Ended::Code(code) => format!("exit code {code}"),
        Ended::Signal(signal) => signal_name(*signal),
        Ended::Hang => "hang".to_owned(),
        Ended::Report(line) => escape(line).into_owned(),
    }
}

/// The command that repeats the first of the runs.
fn repeat(plan: &FailPlan, runs: &BadRuns) -> String {
    let number = runs.numbers.first().copied().unwrap_or_default();
    let own = if plan.on_larder { "" } else { " --no-larder" };
    format!(
        "larder run --fail-nth {number}{own} -- {}",
        words(&plan.command)
    )
}

pub fn text(plan: &FailPlan, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let bad = outcome.bad_runs();
    writeln!(
        out,
        "{}: {}; {}, one failing in each: {} ended well, {} badly",
        words(&plan.command[..1]),
        counted(outcome.calls, "allocation"),
        counted(outcome.made, "run"),
        grouped(outcome.made - bad),
        grouped(bad)
    )?;
    if let Some((_, seed)) = plan.sample {
        writeln!(out, "chosen by --seed {seed}")?;
    }
    if outcome.not_reached > 0 {
        writeln!(
            out,
            "{} ended before the call that was to fail: the command differs from run to run",
            counted(outcome.not_reached, "run")
        )?;
    }
    for runs in &outcome.bad {
        let times = match runs.numbers.len() {
            1 => String::new(),
            several => format!(", {} runs", grouped(several as u64)),
        };
        let what = runs.call.as_ref().map(call).unwrap_or_default();
        writeln!(out, "\n{}{times}  {what}", ended(&runs.ended))?;
        writeln!(out, "    {}", runs.site.line)?;
        if !runs.site.through.is_empty() {
            writeln!(out, "    through {}", runs.site.through.join(" → "))?;
        }
        if !runs.site.callers.is_empty() {
            writeln!(out, "    ← {}", runs.site.callers.join(" ← "))?;
        }
        writeln!(out, "    {}", repeat(plan, runs))?;
    }
    if outcome.interrupted {
        let left = outcome.planned.saturating_sub(outcome.made);
        writeln!(out, "\ninterrupted: {} not made", counted(left, "run"))?;
    }
    Ok(())
}

pub fn as_json(plan: &FailPlan, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let command: Vec<_> = plan
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let bad: Vec<_> = outcome
        .bad
        .iter()
        .map(|runs| {
            let signal = match &runs.ended {
                Ended::Signal(signal) => Some(*signal),
                _ => None,
            };
            json!({
                "ended": ended(&runs.ended),
                "signal": signal,
                "calls": runs.numbers,
                "call": runs.call.as_ref().map(|call| call.call),
                "bytes": runs.call.as_ref().map(|call| call.size),
                "site": runs.site.line,
                "stack": runs.site.stack,
                "repeat": repeat(plan, runs),
            })
        })
        .collect();
    let object = json!({
        "command": command,
        "allocations": outcome.calls,
        "exit_code": outcome.code,
        "runs": outcome.made,
        "seed": plan.sample.map(|(_, seed)| seed),
        "ended_well": outcome.made - outcome.bad_runs(),
        "ended_badly": outcome.bad_runs(),
        "not_reached": outcome.not_reached,
        "interrupted": outcome.interrupted,
        "bad": bad,
    });
    writeln!(out, "{object:#}")
}
