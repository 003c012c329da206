//! Functions whose names are like one that was not found.

use crate::reading::functions::FunctionTable;
use larder_base::order;

const MOST: usize = 3;

/// Those that have the name within theirs, else those that differ in up to three letters, and half of them.
pub fn names(wanted: &str, functions: &FunctionTable) -> Vec<String> {
    let wanted = wanted.replace(['*', '?'], "").to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let most = (wanted.chars().count() / 2).min(3);
    let names = functions.iter().skip(1).map(|(_, function)| &function.name);
    let mut near: Vec<(usize, &String)> = names
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let distance = match lower.contains(&wanted) {
                true => 0,
                false => distance(&wanted, lower.rsplit("::").next()?, most)?,
            };
            Some((distance, name))
        })
        .collect();
    order::sort_by_key(&mut near, |(distance, name)| (*distance, name.len(), *name));
    near.dedup_by_key(|(_, name)| *name);
    near.into_iter()
        .take(MOST)
        .map(|(_, name)| name.clone())
        .collect()
}

/// The letters to be inserted, left out or replaced, if they are not more than `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let apart = a.chars().count().abs_diff(b.chars().count());
    let near = (apart <= most).then(|| strsim::levenshtein(a, b));
    near.filter(|found| *found <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_up_to_a_bound() {
        assert_eq!(distance("parse", "parse", 0), Some(0));
        assert_eq!(distance("prase", "parse", 2), Some(2));
        assert_eq!(distance("parse", "parses", 1), Some(1));
        assert_eq!(distance("parse", "", 5), Some(5));
        assert_eq!(distance("parse", "write", 2), None);
        assert_eq!(distance("parse", "parse_all", 3), None);
    }
}
