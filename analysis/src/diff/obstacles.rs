//! Warnings of what makes matching less certain.

use std::collections::BTreeMap;

use super::side::Side;
use crate::reading::plumbing::ModuleRole;
use crate::symbols::SymbolProblem;

/// What the symbols of a module's sites have.
#[derive(Clone, Copy, Default)]
struct Known {
    names: bool,
    lines: bool,
}

/// One line for each warning.
pub fn obstacles<'s, 'a: 's>(sides: impl IntoIterator<Item = &'s Side<'a>>) -> Vec<String> {
    let sides: Vec<&Side<'_>> = sides.into_iter().collect();
    let mut lines = Vec::new();
    for side in &sides {
        lines.extend(unusable(side));
    }
    let known: Vec<_> = sides.iter().map(|side| modules(side)).collect();
    for (index, (side, modules)) in sides.iter().zip(&known).enumerate() {
        for (module, here) in modules {
            let mut others = known
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let mut elsewhere = |has: fn(&Known) -> bool| {
                others.any(|(_, known)| known.get(module).is_some_and(has))
            };
            let lacks = if !here.names {
                "function names, so its sites are matched by their callers alone"
            } else if !here.lines && elsewhere(|known| known.lines) {
                "source lines, which the other trace has, so its inlined functions are matched by \
                 similarity"
            } else {
                continue;
            };
            lines.push(format!("{module} has no {lacks} (in {})", side.trace));
        }
    }
    lines
}

/// Files whose symbols are not available.
fn unusable(side: &Side<'_>) -> Vec<String> {
    let problems = side.analysis.resolver.problems().into_iter();
    problems
        .filter_map(|found| {
            let why = match found.problem {
                SymbolProblem::NoDebugInfo => return None,
                SymbolProblem::NoFile => "no longer exists",
                SymbolProblem::OtherBuild { .. } => "was replaced since the recording",
            };
            Some(format!(
                "{} {why}, so its functions have no names (in {}): keep each build beside its trace",
                found.path, side.trace
            ))
        })
        .collect()
}

/// The modules with sites, except the system's.
fn modules(side: &Side<'_>) -> BTreeMap<String, Known> {
    let mut modules: BTreeMap<String, Known> = BTreeMap::new();
    for known in &side.sites {
        let role = known.site.module.as_ref().map(|module| module.role);
        if role == Some(ModuleRole::Program) {
            let here = modules.entry(known.module.to_string()).or_default();
            here.names |= known.function.is_some();
            here.lines |= known.site.line.is_some();
        }
    }
    modules
}
