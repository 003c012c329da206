//! A function through which most of a program allocates hides who asked: it should be named with
//! `--skip`, so that its callers are charged.

use std::collections::HashMap;
use std::collections::HashSet;
use std::rc::Rc;

use super::facts::ImageFacts;
use crate::analysis::naming::shown;
use crate::analysis::number::percent;

type Callers = HashSet<Option<Rc<str>>>;

/// In percent of all calls.
const SHARE: f64 = 20.0;
const FEWEST_CALLERS: usize = 8;

/// The option that would help, if there is such a function.
pub fn hint(image: &ImageFacts) -> Option<String> {
    let mut by_function: HashMap<Rc<str>, (u64, Callers)> = HashMap::new();
    for site in &image.sites {
        let functions = site.functions();
        let Some(index) = site.site else { continue };
        let name = |index: usize| {
            let function = functions.get(index)?.source.function.as_ref()?;
            Some(function.name.clone())
        };
        if let Some(function) = name(index) {
            let (calls, callers) = by_function.entry(function).or_default();
            *calls += site.sums.calls;
            callers.insert(name(index + 1));
        }
    }
    let (name, (calls, callers)) = by_function
        .iter()
        .max_by_key(|(name, (calls, _))| (*calls, (*name).clone()))?;
    let share = percent(*calls, image.allocations);
    (share >= SHARE && callers.len() >= FEWEST_CALLERS).then(|| {
        format!(
            "{share:.0} % of the calls come through {name}, from {} functions: --skip '{name}' \
             charges them",
            callers.len(),
            name = shown(name),
        )
    })
}
