//! How a program's sites grow with its work, from traces with inputs of growing size.
//!
//! A site's exponent is the slope of log(value) over log(work), by least squares: 1 is linear growth, 2
//! quadratic. Of estimates from samples only what exceeds linear growth by more than chance is superlinear.

use larder_base::failure::Result;
use larder_base::order;
use larder_base::statistics::median;

use super::DiffPlan;
use super::figures::{CHANCE, Figure};
use super::matching::match_sites;
use super::side::{KnownSite, Side};
use super::stacks::{StackChange, StackChanges};
use super::work::{self, GROWS, Quantity, WorkRequest};
use crate::error::AnalysisError;
use crate::of::Of;
use crate::reading::sites::SortKey;
use crate::reading::work::Work;

/// Above this exponent a site grows faster than the work.
const SUPERLINEAR: f64 = 1.2;
/// A value that exceeds linear growth by less than this is chance: in calls or blocks, in bytes.
const LEAST_EXCESS: u64 = 16;
const LEAST_EXCESS_BYTES: u64 = 4096;

/// The source of the amounts of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkSource {
    Given,
    /// Counted in the traces; `chosen`: by the tool, not by the user.
    Measured {
        quantity: Quantity,
        chosen: bool,
    },
    /// The median growth of this many sites, those that grow.
    Estimated(usize),
}

/// A site and its figures.
pub struct SiteGrowth<'a> {
    /// The site in the trace of the largest input that has it.
    pub site: &'a KnownSite<'a>,
    /// The same in the first trace and in the last.
    ends: [Option<&'a KnownSite<'a>>; 2],
    /// The stack that changed most from the first trace to the last; computed only for sites that are
    /// shown.
    pub stack: Option<StackChange<'a>>,
    /// One a trace.
    pub values: Vec<Figure>,
    /// `None`: the site has calls in one trace only.
    pub exponent: Option<f64>,
    pub superlinear: bool,
}

pub struct Growth<'a> {
    /// One number a trace.
    pub work: Vec<f64>,
    pub source: WorkSource,
    /// The fastest first.
    pub sites: Vec<SiteGrowth<'a>>,
}

impl SiteGrowth<'_> {
    fn last(&self) -> u64 {
        self.values.last().map_or(0, |last| last.value)
    }
}

impl<'a> Growth<'a> {
    /// `allocating`: the sites that allocate of each side, from which the work is estimated. `works`: one a side.
    pub fn of(
        sides: &'a [Side<'a>],
        allocating: &[Side<'_>],
        works: &[Work],
        plan: &DiffPlan,
    ) -> Result<Self> {
        let mut sites = gather(sides, plan.sort);
        let estimate = || match plan.of {
            Of::Allocations => estimate(&sites),
            _ => estimate(&gather(allocating, SortKey::Calls)),
        };
        let measured = |work, quantity, chosen| (work, WorkSource::Measured { quantity, chosen });
        let (work, source) = match &plan.work {
            Some(WorkRequest::Given(work)) => (work.clone(), WorkSource::Given),
            Some(WorkRequest::Measured(quantity)) => {
                let work = work::measure(works, sides, quantity)?;
                measured(work, quantity.clone(), false)
            }
            Some(WorkRequest::Estimated) => estimate()?,
            None => match work::find(works) {
                Some((work, quantity)) => measured(work, quantity, true),
                None => estimate()?,
            },
        };
        for site in &mut sites {
            site.exponent = exponent(&work, &site.values);
            site.superlinear = site.exponent.is_some_and(|exponent| exponent > SUPERLINEAR)
                && exceeds(&work, &site.values, plan.sort);
        }
        order::sort_by(&mut sites, |a, b| {
            let rank =
                |site: &SiteGrowth<'_>| (site.superlinear, site.exponent.unwrap_or(f64::MIN));
            let (a_rank, b_rank) = (rank(a), rank(b));
            b_rank
                .0
                .cmp(&a_rank.0)
                .then(b_rank.1.total_cmp(&a_rank.1))
                .then_with(|| b.last().cmp(&a.last()))
        });
        find_stacks(&mut sites, sides, plan);
        Ok(Self {
            work,
            source,
            sites,
        })
    }

    pub fn superlinear(&self) -> usize {
        self.sites.iter().filter(|site| site.superlinear).count()
    }

    /// The sites to show: all, or those that grow faster than the work.
    pub fn shown(&self, all: bool) -> impl Iterator<Item = &SiteGrowth<'a>> {
        let sites = self.sites.iter();
        sites.filter(move |site| all || site.superlinear)
    }
}

fn find_stacks<'a>(sites: &mut [SiteGrowth<'a>], sides: &'a [Side<'a>], plan: &DiffPlan) {
    let (Some(first), Some(last)) = (sides.first(), sides.last()) else {
        return;
    };
    let mut stacks = StackChanges::between(first, last);
    let shown = sites.iter_mut().filter(|site| plan.all || site.superlinear);
    for site in shown.take(plan.top) {
        let [first, last] = site.ends.map(|known| known.map(|known| known.site));
        site.stack = stacks.largest(first, last, &[plan.sort]);
    }
}

/// The figures of every site of any trace.
fn gather<'a>(sides: &'a [Side<'a>], key: SortKey) -> Vec<SiteGrowth<'a>> {
    let mut sites: Vec<SiteGrowth<'a>> = Vec::new();
    let Some((last, earlier)) = sides.split_last() else {
        return sites;
    };
    let new = |site: &'a KnownSite<'a>, index: usize| {
        let mut values = vec![Figure::default(); sides.len()];
        values[index] = site.figure(key);
        let of = |end: usize| (index == end).then_some(site);
        SiteGrowth {
            site,
            ends: [of(0), of(sides.len() - 1)],
            stack: None,
            values,
            exponent: None,
            superlinear: false,
        }
    };
    sites.extend(last.sites.iter().map(|site| new(site, sides.len() - 1)));
    for (index, side) in earlier.iter().enumerate() {
        let mut missing = vec![true; side.sites.len()];
        for found in match_sites(&side.sites, &last.sites) {
            missing[found.before] = false;
            let (before, site) = (&side.sites[found.before], &mut sites[found.after]);
            site.values[index] = before.figure(key);
            if index == 0 {
                site.ends[0] = Some(before);
            }
        }
        let missing = side
            .sites
            .iter()
            .zip(missing)
            .filter(|(_, missing)| *missing);
        sites.extend(missing.map(|(site, _)| new(site, index)));
    }
    sites.retain(|site| site.values.iter().any(|figure| figure.value > 0));
    sites
}

/// The work as the median growth of the sites from trace to trace.
fn estimate(sites: &[SiteGrowth<'_>]) -> Result<(Vec<f64>, WorkSource)> {
    let traces = sites.first().map_or(0, |site| site.values.len());
    let mut growing: Vec<&SiteGrowth<'_>> = sites.iter().collect();
    growing.retain(|site| {
        let first = site.values.first().map_or(0, |first| first.value);
        first > 0 && site.last() as f64 > first as f64 * GROWS
    });
    let work: Vec<f64> = (0..traces)
        .map(|index| {
            let value = |site: &SiteGrowth<'_>, index: usize| site.values[index].value as f64;
            let ratio = |site: &&SiteGrowth<'_>| value(site, index) / value(site, 0);
            let ratios: Vec<f64> = growing.iter().map(ratio).collect();
            median(&ratios).unwrap_or(0.0)
        })
        .collect();
    if growing.is_empty() || !work.is_sorted_by(|a, b| a < b) {
        return Err(AnalysisError::usage(
            "the work cannot be estimated, because no site grows from trace to trace by its allocations: \
             give it, as in --work 1000:10000, with the traces in order of size",
        )
        .into());
    }
    Ok((work, WorkSource::Estimated(growing.len())))
}

/// The slope of log(value) over log(work), of the traces in which the site has any.
fn exponent(work: &[f64], values: &[Figure]) -> Option<f64> {
    let points = work.iter().zip(values).filter(|(_, y)| y.value > 0);
    let points: Vec<(f64, f64)> = points
        .map(|(work, figure)| (work.ln(), (figure.value as f64).ln()))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    Some(covariance / variance)
}

/// Whether the last value is further above linear growth from the first than chance.
fn exceeds(work: &[f64], values: &[Figure], key: SortKey) -> bool {
    let first = values.iter().position(|y| y.value > 0).unwrap_or(0);
    let (Some(last_work), Some(last)) = (work.last(), values.last()) else {
        return false;
    };
    let (first, ratio) = (values[first], last_work / work[first]);
    let excess = last.value as f64 - first.value as f64 * ratio;
    let least = match key {
        SortKey::Calls | SortKey::Tiny | SortKey::Errors => LEAST_EXCESS,
        SortKey::Bytes | SortKey::Peak | SortKey::Live => LEAST_EXCESS_BYTES,
        // Samples, which have a variance.
        SortKey::Time => 0,
    };
    let deviation = (last.variance + first.variance * ratio.powi(2)).sqrt();
    excess >= least as f64 && excess > CHANCE * deviation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9)
    }

    /// Of counts, with this variance for each.
    fn figures(values: &[u64], variance: f64) -> Vec<Figure> {
        let figure = |value: &u64| Figure {
            value: *value,
            variance: variance * *value as f64,
        };
        values.iter().map(figure).collect()
    }

    #[test]
    fn the_exponent_is_that_of_the_power() {
        let exponent = |work: &[f64], values: &[u64]| exponent(work, &figures(values, 0.0));
        assert!(near(exponent(&[10.0, 100.0], &[10, 100]), 1.0));
        assert!(near(exponent(&[10.0, 100.0], &[10, 1000]), 2.0));
        assert!(near(exponent(&[1.0, 2.0, 4.0], &[3, 12, 48]), 2.0));
        assert!(near(exponent(&[1.0, 2.0], &[7, 7]), 0.0));
        // Of three traces the site has calls in two.
        assert!(near(exponent(&[1.0, 2.0, 4.0], &[0, 10, 20]), 1.0));
        assert_eq!(exponent(&[1.0, 2.0], &[0, 5]), None);
    }

    #[test]
    fn a_few_calls_more_are_chance() {
        let work = [10.0, 100.0];
        let exceeds = |values: &[u64], key| exceeds(&work, &figures(values, 0.0), key);
        assert!(!exceeds(&[1, 20], SortKey::Calls));
        assert!(exceeds(&[1, 26], SortKey::Calls));
        assert!(!exceeds(&[1, 26], SortKey::Bytes));
    }

    #[test]
    fn samples_beyond_linear_growth_are_chance_up_to_three_deviations() {
        let exceeds = |values: &[u64]| {
            let figures = figures(values, 1.0);
            exceeds(&[1.0, 2.0], &figures, SortKey::Calls)
        };
        // 200 ± 20 are expected of the last one, which is ± 16.
        assert!(!exceeds(&[100, 270]) && exceeds(&[100, 285]));
        // The same from more samples is beyond it.
        assert!(exceeds(&[1000, 2700]));
    }
}
