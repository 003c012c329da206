//! Judges a run by its budget: which limits it broke, and which site broke them.
//!
//! Sites are matched with the recorded ones by function, because file and line move with every change.
//! Time and memory grow with the sites.

use std::collections::BTreeMap;

use super::budget::Budget;
use super::figures::Figure;
use super::limit::Limit;
use super::measure::{Measured, MeasuredSite};

/// A limit that the run is not within.
#[derive(Debug)]
pub struct Breach<'a> {
    pub figure: Figure,
    /// The cap's function, if it is a site's limit.
    pub cap: Option<&'a str>,
    pub limit: Limit,
    pub found: u64,
    pub culprit: Option<Culprit<'a>>,
}

/// The site whose figure grew most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Culprit<'a> {
    pub site: &'a MeasuredSite,
    /// The figure that is compared: bytes stand for the peak.
    pub figure: Figure,
    /// Sum over all lines of its function.
    pub found: u64,
    /// `None`: the budget has no recorded sites to compare with.
    pub recorded: Option<u64>,
}

impl Breach<'_> {
    /// How far the run is above the budget's value.
    pub fn over(&self) -> i128 {
        i128::from(self.found) - i128::from(self.limit.value)
    }
}

/// All broken limits in the order of the figures, those of the whole run before those of sites.
pub fn judge<'a>(budget: &'a Budget, measured: &'a Measured) -> Vec<Breach<'a>> {
    let mut breaches = Vec::new();
    for (&figure, &limit) in &budget.limits {
        let found = measured.figures.get(figure);
        if !limit.allows(found) {
            let culprit = culprit(figure, &budget.recorded, measured.sites.iter());
            breaches.push(Breach {
                figure,
                cap: None,
                limit,
                found,
                culprit,
            });
        }
    }
    for cap in &budget.caps {
        for (&figure, &limit) in &cap.limits {
            let found = cap.found(figure, &measured.sites);
            if !limit.allows(found) {
                let named = measured.sites.iter().filter(|site| cap.names(site));
                breaches.push(Breach {
                    figure,
                    cap: Some(&cap.function),
                    limit,
                    found,
                    culprit: culprit(figure, &budget.recorded, named),
                });
            }
        }
    }
    breaches
}

fn by_function<'a>(
    sites: impl Iterator<Item = &'a MeasuredSite>,
) -> BTreeMap<&'a str, Vec<&'a MeasuredSite>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for site in sites {
        let group: &mut Vec<_> = groups.entry(&*site.function).or_default();
        group.push(site);
    }
    groups
}

/// The site to name for a figure: the new line of the function that grew most. Counters do not show a
/// site's share of the peak; its total bytes stand for it.
fn culprit<'a>(
    figure: Figure,
    recorded: &'a [MeasuredSite],
    sites: impl Iterator<Item = &'a MeasuredSite>,
) -> Option<Culprit<'a>> {
    let figure = match figure {
        Figure::PeakBytes => Figure::TotalBytes,
        figure => figure,
    };
    let sum = |sites: &[&MeasuredSite]| {
        let values = sites.iter().map(|site| site.figures.get(figure));
        values.fold(0, u64::saturating_add)
    };
    let before = by_function(recorded.iter());
    let groups = by_function(sites);
    let grown = groups.iter().map(|(function, group)| {
        let old = before.get(function).map_or(&[][..], Vec::as_slice);
        let growth = i128::from(sum(group)) - i128::from(sum(old));
        (growth, group, old)
    });
    let (growth, group, old) = grown.max_by_key(|(growth, ..)| *growth)?;
    if growth <= 0 {
        return None;
    }
    Some(Culprit {
        site: newest(figure, group, old)?,
        figure,
        found: sum(group),
        recorded: (!recorded.is_empty()).then(|| sum(old)),
    })
}

/// The heaviest line of a function whose figure equals that of no recorded line.
fn newest<'a>(
    figure: Figure,
    now: &[&'a MeasuredSite],
    old: &[&MeasuredSite],
) -> Option<&'a MeasuredSite> {
    let mut left: Vec<u64> = old.iter().map(|site| site.figures.get(figure)).collect();
    let is_new = |site: &&&MeasuredSite| {
        let same = left
            .iter()
            .position(|value| *value == site.figures.get(figure));
        same.map(|at| left.swap_remove(at)).is_none()
    };
    let new: Vec<_> = now.iter().filter(is_new).copied().collect();
    let among = if new.is_empty() { now } else { &new[..] };
    among
        .iter()
        .copied()
        .max_by_key(|site| site.figures.get(figure))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::figures::Figures;
    use super::*;

    fn site(function: &str, file: &str, line: u32, calls: u64) -> MeasuredSite {
        let mut figures = Figures::default();
        figures.set(Figure::Allocations, calls);
        figures.set(Figure::TotalBytes, calls * 10);
        MeasuredSite {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
            figures,
            callers: String::new(),
        }
    }

    fn measured(sites: Vec<MeasuredSite>) -> Measured {
        let mut figures = Figures::default();
        let calls = sites.iter().map(|s| s.figures.get(Figure::Allocations));
        figures.set(Figure::Allocations, calls.sum());
        Measured {
            figures,
            sites,
            wrappers: Default::default(),
            times: None,
            varied: BTreeMap::new(),
            runs: 1,
        }
    }

    const BUDGET: &str = r#"
[limits]
allocations = 149
[[site]]
function = "pars*"
file = "src/parse.c"
calls = "<= 100"
[[recorded]]
function = "parse"
file = "/old/src/parse.c"
line = 10
calls = 100
bytes = 1000
[[recorded]]
function = "print"
file = "print.c"
line = 5
calls = 49
bytes = 490
"#;

    /// The limit, by how much, and of the culprit its line, its function's figure and the recorded one.
    type Judged = (String, i128, Option<(u32, u64, Option<u64>)>);

    fn judged(sites: Vec<MeasuredSite>) -> Vec<Judged> {
        let budget = Budget::parse(Path::new("b"), BUDGET).expect("a budget");
        let measured = measured(sites);
        judge(&budget, &measured)
            .iter()
            .map(|breach| {
                let culprit = breach.culprit.map(|c| (c.site.line, c.found, c.recorded));
                let what = breach.cap.unwrap_or(breach.figure.key()).to_owned();
                (what, breach.over(), culprit)
            })
            .collect()
    }

    #[test]
    fn a_run_with_the_recorded_counts_is_within_after_lines_moved() {
        let sites = vec![
            site("parse", "src/parse.c", 90, 100),
            site("print", "lib/output.c", 1, 49),
        ];
        assert_eq!(judged(sites), []);
    }

    #[test]
    fn the_line_that_is_new_in_the_function_that_grew_is_named() {
        let sites = vec![
            site("parse", "src/parse.c", 12, 100),
            site("parse", "src/parse.c", 20, 21),
            site("print", "print.c", 5, 49),
        ];
        let culprit = Some((20, 121, Some(100)));
        assert_eq!(
            judged(sites),
            [
                ("allocations".to_owned(), 21, culprit),
                ("pars*".to_owned(), 21, culprit)
            ]
        );
    }

    #[test]
    fn a_new_function_is_named_before_a_heavy_old_one() {
        let sites = vec![
            site("parse", "src/parse.c", 10, 100),
            site("print", "print.c", 5, 49),
            site("cache", "cache.c", 7, 3),
        ];
        let named = judged(sites);
        assert_eq!(
            named,
            [("allocations".to_owned(), 3, Some((7, 3, Some(0))))]
        );
    }

    #[test]
    fn less_than_an_exact_limit_names_no_culprit() {
        let sites = vec![site("parse", "src/parse.c", 10, 100)];
        assert_eq!(judged(sites), [("allocations".to_owned(), -49, None)]);
    }
}
