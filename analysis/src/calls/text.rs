//! Callers and callees as text. Names are escaped.

use std::io::{self, Write};

use larder_base::number::{bytes, counted, duration, percent, percent_of, rounded};
use larder_base::order;
use larder_base::style::{FAINT, FUNCTION, HEADING};

use super::graph::Graph;
use super::tree::{Step, Sums};
use super::{CallsPlan, Direction};
use crate::reading::Analysis;
use crate::reading::naming;

/// Names of the functions in the heading.
const NAMES_SHOWN: usize = 3;

/// The columns that are shown: those for which the root has a figure.
#[derive(Clone, Copy)]
struct Columns {
    cpu: bool,
    calls: bool,
    bytes: bool,
}

pub fn print(
    plan: &CallsPlan,
    graph: &Graph,
    analysis: &Analysis,
    out: &mut dyn Write,
) -> io::Result<()> {
    let root = graph.tree.root();
    let columns = Columns {
        cpu: root.samples > 0,
        calls: root.calls > 0.0,
        bytes: root.bytes > 0.0,
    };
    let title = match plan.direction {
        Direction::Callers => "Callers of",
        Direction::Callees => "Callees of",
    };
    let mut measures = Vec::new();
    if columns.cpu {
        measures.push(format!(
            "{} in {}",
            duration(root.cpu_ns),
            counted(root.samples, "sample")
        ));
    }
    if columns.calls {
        measures.push(counted(root.calls.round() as u64, "recorded call"));
    }
    if columns.bytes {
        measures.push(bytes(root.bytes as u64));
    }
    let names = named(graph);
    writeln!(
        out,
        "{HEADING}{title} {names}{HEADING:#} ({})",
        measures.join(", ")
    )?;
    print_heading(columns, out)?;
    print_below(plan, graph, columns, out)?;
    naming::print_problems(&analysis.resolver, out)
}

fn named(graph: &Graph) -> String {
    let mut names: Vec<&str> = graph
        .named()
        .map(|id| &*graph.functions.get(id).name)
        .collect();
    order::sort_by(&mut names, Ord::cmp);
    names.dedup();
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let shown = names[..names.len() - more].join(", ");
    match more {
        0 => shown,
        _ => format!("{shown} and {more} more"),
    }
}

fn print_heading(columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{FAINT}")?;
    if columns.cpu {
        write!(out, "{:>7} {:>9}", "share", "time")?;
    }
    if columns.calls {
        write!(out, "{:>8} {:>13}", "share", "calls")?;
    }
    if columns.bytes {
        write!(out, "{:>8} {:>10}", "share", "bytes")?;
    }
    writeln!(out, "  function{FAINT:#}")
}

/// Depth first, without recursion.
fn print_below(
    plan: &CallsPlan,
    graph: &Graph,
    columns: Columns,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut waiting = vec![(0, graph.tree.below(0).into_iter())];
    let mut printed = vec![0];
    while let Some((level, steps)) = waiting.last_mut() {
        let level = *level;
        let next = steps.next();
        let rest = steps.len();
        let count = printed.last_mut().map_or(0, |count: &mut usize| {
            *count += 1;
            *count
        });
        match next {
            Some((at, step, sums)) if count <= plan.top => {
                print_step(plan, graph, columns, level, (step, sums), out)?;
                waiting.push((level + 1, graph.tree.below(at).into_iter()));
                printed.push(0);
            }
            next => {
                if next.is_some() {
                    let indent = indent(columns, level);
                    writeln!(out, "{indent}{FAINT}and {} more{FAINT:#}", rest + 1)?;
                }
                waiting.pop();
                printed.pop();
            }
        }
    }
    Ok(())
}

fn indent(columns: Columns, level: usize) -> String {
    let width = usize::from(columns.cpu) * 17
        + usize::from(columns.calls) * 22
        + usize::from(columns.bytes) * 19;
    " ".repeat(width + 2 + 2 * level)
}

fn print_step(
    plan: &CallsPlan,
    graph: &Graph,
    columns: Columns,
    level: usize,
    (step, sums): (Step, &Sums),
    out: &mut dyn Write,
) -> io::Result<()> {
    let root = graph.tree.root();
    if columns.cpu {
        let part = percent(sums.cpu_ns, root.cpu_ns);
        let time = match sums.cpu_ns {
            0 => "0".to_owned(),
            ns => duration(ns),
        };
        write!(out, "{part:>5.1} % {time:>9}")?;
    }
    if columns.calls {
        let part = percent_of(sums.calls, root.calls);
        write!(out, "{part:>6.1} % {:>13}", rounded(sums.calls))?;
    }
    if columns.bytes {
        let part = percent_of(sums.bytes, root.bytes);
        let moved = match sums.bytes as u64 {
            0 => "0".to_owned(),
            moved => bytes(moved),
        };
        write!(out, "{part:>6.1} % {moved:>10}")?;
    }
    let indent = "  ".repeat(level + 1);
    match (step, plan.direction) {
        (Step::Function(id), _) => {
            let function = graph.functions.get(id);
            let module = function.module.as_ref();
            let module = module.map_or(String::new(), |module| format!("  in {}", module.name));
            let name = &function.name;
            writeln!(
                out,
                "{indent}{FUNCTION}{name}{FUNCTION:#}{FAINT}{module}{FAINT:#}"
            )
        }
        (Step::End, Direction::Callers) => writeln!(out, "{indent}[no caller]"),
        (Step::End, Direction::Callees) => writeln!(out, "{indent}[its own code]"),
    }
}
