//! Passes over the program's own allocation functions on all sides alike: a wrapper with few callers in
//! one trace and many in another would otherwise make each of its callers new or gone.

use std::rc::Rc;

use super::side::{Aliases, module_name};
use crate::reading::Analysis;
use crate::reading::attribute::attribute;
use crate::reading::resolve::{FunctionKey, ModuleLabel};
use crate::reading::sites::SiteTable;

/// Passes over on each side what was found on any. Functions without names are the same only in the
/// same build. `others`: the sites of each trace that do not allocate.
pub fn share(analyses: &mut [Analysis], others: &mut [Option<SiteTable>], aliases: &Aliases) {
    let found = analyses.iter().flat_map(|a| a.resolver.found_wrappers());
    let found: Vec<(Rc<ModuleLabel>, FunctionKey)> = found.collect();
    for (analysis, others) in analyses.iter_mut().zip(others) {
        let mut new = Vec::new();
        for (module, function) in &found {
            let name = module_name(module, aliases);
            let is_it = |other: &ModuleLabel| match function.has_name() {
                true => module_name(other, aliases) == name,
                false => !other.build_id.is_empty() && other.build_id == module.build_id,
            };
            new.extend(analysis.resolver.in_modules(function, is_it));
        }
        if analysis.resolver.mark_wrappers(new) {
            analysis.charge_again();
            if let Some(sites) = others {
                sites.charge_again(|chain| attribute(chain, &[]).site);
            }
        }
    }
}
