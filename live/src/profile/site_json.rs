//! A site as JSON, the same in every command.

use larder_analysis::reading::attribute::functions;
use larder_analysis::reading::excerpt;
use larder_analysis::report::frame_json;
use serde_json::{Value, json};

use super::heap::Figures;
use super::sites::{Profiled, ProfiledSite};

/// Its line, and its heaviest stack.
pub fn place(profiled: &Profiled, site: &ProfiledSite, weigh: impl Fn(&Figures) -> f64) -> Value {
    let named = profiled.named(site);
    let heaviest = profiled.heaviest(site, weigh);
    let frames = heaviest.map(|row| functions(&row.chain).map(frame_json).collect::<Vec<_>>());
    json!({
        "function": named.function.as_deref(),
        "file": named.file.as_deref(),
        "line": named.line,
        "source": excerpt::json(&profiled.resolver, heaviest.map(|row| row.stack()).as_ref()),
        "module": named.module.as_ref().map(|module| &module.path),
        "address": named.address,
        "stacks": site.rows.len(),
        "stack": frames,
        "stack_truncated": heaviest.is_some_and(|row| row.truncated),
    })
}
