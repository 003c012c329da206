//! `larder history`: the runs that `check` stored, and where a figure moved.
//!
//! ```text
//! store (SQLite) ─> trend ─> change (which runs) ─> table, page
//!    └── origin: commit and machine of a stored run
//! ```

pub mod args;
mod change;
mod origin;
mod page;
pub mod store;
mod table;
mod trend;

use std::path::Path;

use larder_base::failure::{Failure, Result};
use larder_base::format::Format;
use larder_base::{output, printable};

use args::HistoryPlan;
use trend::Trend;

pub fn history(plan: &HistoryPlan) -> Result<()> {
    let names = store::names(&plan.database)?;
    let wanted = |name: &str| plan.name.as_ref().is_none_or(|wanted| wanted == name);
    let mut trends = Vec::new();
    for (name, _) in names.iter().filter(|(name, _)| wanted(name)) {
        let runs = store::read(&plan.database, name, plan.last)?;
        trends.push(Trend::new(name.clone(), runs));
    }
    if trends.is_empty() {
        return Err(nothing_found(plan, &names));
    }
    if let Some(file) = &plan.html {
        write_page(file, &page::render(&trends))?;
    }
    output::write(None, plan.format.content(), |out| match plan.format {
        Format::Json => output::write_json(&table::json(&trends), out),
        _ => table::print(&trends, out),
    })
}

fn nothing_found(plan: &HistoryPlan, names: &[(String, i64)]) -> Failure {
    const SHOWN: usize = 10;
    let database = printable::name(&plan.database);
    let known: Vec<_> = names.iter().take(SHOWN).map(|(name, _)| name).collect();
    Failure::failed(match (&plan.name, known.as_slice()) {
        (Some(name), [_, ..]) => format!(
            "{database}: no run of '{}': there are {}",
            printable::escape(name),
            known
                .iter()
                .map(|name| printable::escape(name))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        _ => format!("{database}: no run is stored yet: `larder check` stores them"),
    })
}

fn write_page(path: &Path, text: &str) -> Result<()> {
    output::to_file(path, |out| out.write_all(text.as_bytes())).map_err(|error| {
        Failure::failed(format!(
            "{}: cannot be written: {}: name another file with --html",
            printable::name(path),
            larder_base::target::reason(&error)
        ))
    })?;
    output::say_written(path);
    Ok(())
}
