//! What the trace has beside allocations: tables of copies, system calls and processor time, and measures of
//! the flame graph. A trace that has none of one has no table of it.
//!
//! Memory: by the distinct stacks of all process images, like that of the stacks that allocate.

use larder_base::number::{bytes, counted, grouped, percent, percent_of};
use serde_json::{Value, json};

use super::tree::{Kept, Shown, Tree};
use crate::reading::naming::{site_name, site_place};
use crate::reading::observe::Both;
use crate::reading::sites::SortKey;
use crate::report::callers::{Callers, Kind, Sum};
use crate::report::syscalls::text::time_of;
use crate::report::syscalls::{Needless, Results};
use crate::report::{Copied, Copies, Cpu, Samples, SystemCalls, time};

/// Rows of a table.
const ROWS: usize = 25;

/// Observes all of them.
pub type Called = Both<Both<Copies, SystemCalls>, Both<Cpu, Samples>>;

/// In a section of the page.
#[derive(Default)]
pub struct Table {
    /// Of the section.
    id: &'static str,
    /// None of the first in a section.
    title: Option<String>,
    notes: Vec<String>,
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

struct Row {
    cells: Vec<String>,
    name: String,
    place: String,
    /// The node of its heaviest stack.
    node: Option<usize>,
}

impl Table {
    /// The nodes of the stacks.
    pub fn nodes(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().filter_map(|row| row.node)
    }

    pub fn json(&self, kept: &Kept<'_>, shown: &mut Shown) -> Value {
        let rows = self.rows.iter().map(|row| {
            let [name, place] = [&row.name, &row.place].map(|text| shown.names.of(text));
            let node = row.node.map(|node| kept.node(node));
            json!({ "cells": row.cells, "name": name, "place": place, "node": node })
        });
        json!({
            "rows": rows.collect::<Vec<_>>(),
            "id": self.id,
            "title": self.title,
            "notes": self.notes,
            "columns": self.columns,
        })
    }
}

pub fn observer() -> Called {
    Both(
        Both(Copies::with_stacks(), SystemCalls::with_stacks()),
        Both(Cpu::default(), Samples::default()),
    )
}

/// Adds the measures that the trace has to the tree.
pub fn measure(called: &Called, tree: &mut Tree) {
    let Both(Both(copies, calls), Both(_, samples)) = called;
    let all = [
        ("bytes copied", &copies.callers.sites, SortKey::Bytes),
        (
            "time within system calls",
            &calls.callers.sites,
            SortKey::Time,
        ),
        ("processor time", &samples.sites, SortKey::Time),
    ];
    for (title, sites, key) in all.into_iter().filter(|(_, sites, _)| !sites.is_empty()) {
        tree.measure(title, sites, key);
    }
}

pub fn tables(called: &Called, tree: &mut Tree) -> Vec<Table> {
    let Both(Both(copies, calls), Both(cpu, _)) = called;
    let needless = Needless::ALL.map(|kind| of_needless(calls, kind, tree));
    let tables = [of_copies(copies, tree), of_calls(calls, tree)];
    let tables = tables.into_iter().chain(needless);
    let tables = tables.chain([of_functions(cpu)]);
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn of_copies(copies: &Copies, tree: &mut Tree) -> Table {
    let cells = |copied: &Copied| {
        let [all, calls] = [copied.bytes, copied.calls].map(|sum| sum.round() as u64);
        vec![grouped(all), grouped(calls), bytes(all / calls.max(1))]
    };
    let mut table = Table {
        id: "copies",
        columns: vec!["share", "bytes", "calls", "a call"],
        ..callers(&copies.callers, |copied| copied.bytes, cells, tree)
    };
    if copies.rate > 0 {
        let rate = bytes(copies.rate);
        let note = format!("Estimated from samples, one in {rate} on average.");
        table.notes.push(note);
    }
    table
}

fn of_calls(calls: &SystemCalls, tree: &mut Tree) -> Table {
    let cells = |results: &Results| {
        let errors = results.needless(Needless::Failed);
        let [calls, bytes, errors] = [results.calls, results.bytes, errors].map(grouped);
        vec![calls, time_of(results), bytes, errors]
    };
    Table {
        id: "syscalls",
        columns: vec!["share", "calls", "time within", "bytes", "errors"],
        ..callers(&calls.callers, Results::calls, cells, tree)
    }
}

fn of_needless(calls: &SystemCalls, kind: Needless, tree: &mut Tree) -> Table {
    let cells = |results: &Results| {
        let [calls, of] = [results.needless(kind), results.calls].map(grouped);
        vec![calls, of, time_of(results)]
    };
    let weight = |results: &Results| results.needless(kind) as f64;
    Table {
        id: "syscalls",
        title: Some(kind.title()),
        columns: vec!["share", "calls", "of its", "their time"],
        ..callers(&calls.callers, weight, cells, tree)
    }
}

/// The rows of the lines with the most of a weight, and how many lines have any.
fn callers<K: Kind, S: Sum>(
    callers: &Callers<K, S>,
    weight: impl Fn(&S) -> f64,
    cells: impl Fn(&S) -> Vec<String>,
    tree: &mut Tree,
) -> Table {
    let ranked = callers.ranked(&weight);
    let all = ranked.iter().map(|caller| weight(&caller.sum)).sum();
    let shown = ranked.iter().take(ROWS).map(|caller| {
        let site = callers.site(caller);
        let share = format!("{:.1} %", percent_of(weight(&caller.sum), all));
        Row {
            cells: [vec![share], cells(&caller.sum)].concat(),
            name: format!("{} by {}", caller.kind.text(), site_name(site)),
            place: site_place(site),
            node: site.heaviest(SortKey::Calls).map(|stack| tree.add(stack)),
        }
    });
    Table {
        rows: shown.collect(),
        notes: vec![scope(ranked.len(), "caller")],
        ..Table::default()
    }
}

/// Those with the most time of their own.
fn of_functions(cpu: &Cpu) -> Table {
    let functions = cpu.rows();
    let shown = functions.iter().take(ROWS).map(|row| {
        let share = |ns| format!("{:.1} %", percent(ns, cpu.all.ns));
        let (own, total) = (share(row.own.ns), share(row.total.ns));
        let module = row.function.module.as_ref();
        Row {
            cells: vec![own, total, time(row.own.ns), grouped(row.own.samples)],
            name: row.function.name.clone(),
            place: module.map_or(String::new(), |module| format!("in {}", module.name)),
            node: None,
        }
    });
    let scope = scope(functions.len(), "function");
    let samples = counted(cpu.all.samples, "sample");
    Table {
        id: "cpu",
        columns: vec!["self", "total", "self time", "samples"],
        rows: shown.collect(),
        notes: vec![format!("{scope}, {} in {samples}", time(cpu.all.ns))],
        ..Table::default()
    }
}

/// How many are shown.
fn scope(all: usize, noun: &str) -> String {
    let count = counted(all as u64, noun);
    match all > ROWS {
        true => format!("{ROWS} of {count}"),
        false => count,
    }
}
