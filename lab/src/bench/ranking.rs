//! Summarises the runs: for each metric the medians, each allocator's distance from the best, and the
//! reference's (Larder's) ratio to each peer.
//!
//! Ratios are `reference / peer`, below 1 if the reference needs less. They are paired: one ratio a
//! round, of runs that were neighbours in time, then the median over the rounds. The distance from the
//! best compares medians, because the best differs between workloads.
//!
//! Invariants: distance ≥ 1, and = 1 for the best of a workload. A pair that failed is in no mean.

use fastrand::Rng;
use larder_base::order;
use larder_base::statistics::{
    Estimate, estimate, estimate_mean, fastest, geometric_mean, median, paired_ratios,
};
use serde::Serialize;

use super::figures::{Metric, SHOWN};
use super::results::Results;

/// Everything that the reports show, computed.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub reference: String,
    pub metrics: Vec<MetricSummary>,
    /// Ordered by time and peak memory together, the best first.
    pub ranking: Vec<Rank>,
    pub failures: Vec<FailedPair>,
}

#[derive(Clone, Debug, Serialize)]
pub struct MetricSummary {
    pub metric: Metric,
    pub rows: Vec<Row>,
    /// The reference against each peer over all workloads, the hardest peer first.
    pub means: Vec<PeerMean>,
    /// The peer with the smallest mean distance from the best.
    pub best_single_peer: Option<String>,
}

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub workload: String,
    /// By allocator, in the results' order.
    pub cells: Vec<Option<Cell>>,
    /// Without the reference.
    pub best_peer: Option<String>,
    pub against_best_peer: Option<Estimate>,
}

/// One workload on one allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub median: f64,
    pub least: f64,
    /// Its median / the best allocator's median on this workload.
    pub distance: f64,
    /// reference / this one; None for the reference itself.
    pub ratio: Option<Estimate>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PeerMean {
    pub peer: String,
    /// The geometric mean of reference / peer.
    pub mean: Estimate,
    pub workloads: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    pub allocator: String,
    /// By `Metric::ALL`: the geometric mean of the distances from the best.
    pub distances: Vec<Option<f64>>,
    /// The geometric mean of those for time and peak memory.
    pub both: Option<f64>,
    pub failed: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct FailedPair {
    pub workload: String,
    pub allocator: String,
    pub cause: String,
}

impl Summary {
    pub fn of(results: &Results) -> Summary {
        let mut random = Rng::with_seed(results.seed);
        let metrics: Vec<MetricSummary> = Metric::ALL
            .iter()
            .map(|metric| MetricSummary::of(results, *metric, &mut random))
            .collect();
        let failures = failures(results);
        Summary {
            reference: results.reference().to_owned(),
            ranking: rank(results, &metrics, &failures),
            metrics,
            failures,
        }
    }

    /// The columns of the ranking: those shown that any allocator has.
    pub fn ranked_by(&self) -> Vec<Metric> {
        let known = |metric: &Metric| self.ranking.iter().any(|r| r.distance(*metric).is_some());
        SHOWN.into_iter().filter(known).collect()
    }

    /// None if no workload has it.
    pub fn metric(&self, metric: Metric) -> Option<&MetricSummary> {
        let mut tables = self.metrics.iter().filter(|table| !table.rows.is_empty());
        tables.find(|table| table.metric == metric)
    }

    /// Whether the reference failed anywhere.
    pub fn reference_failed(&self) -> bool {
        self.failures.iter().any(|f| f.allocator == self.reference)
    }
}

impl MetricSummary {
    fn of(results: &Results, metric: Metric, random: &mut Rng) -> MetricSummary {
        let mut ratios: Vec<Vec<Vec<f64>>> = vec![Vec::new(); results.allocators.len()];
        let names = results.workloads.iter().map(|subject| &subject.name);
        let rows: Vec<Row> = names
            .filter_map(|workload| Row::of(results, workload, metric, &mut ratios, random))
            .collect();
        let mut means: Vec<PeerMean> = results
            .allocators
            .iter()
            .zip(&ratios)
            .filter_map(|(allocator, ratios)| {
                Some(PeerMean {
                    peer: allocator.name.clone(),
                    mean: estimate_mean(ratios, random)?,
                    workloads: ratios.len(),
                })
            })
            .collect();
        order::sort_by(&mut means, |a, b| b.mean.ratio.total_cmp(&a.mean.ratio));
        let best_single_peer = (0..results.allocators.len())
            .filter(|index| results.allocators[*index].name != results.reference())
            .filter_map(|index| Some((index, mean_distance(&rows, index)?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(index, _)| results.allocators[index].name.clone());
        MetricSummary {
            metric,
            rows,
            means,
            best_single_peer,
        }
    }

    pub fn mean_against(&self, peer: &str) -> Option<&PeerMean> {
        self.means.iter().find(|mean| mean.peer == peer)
    }

    /// The row in which the reference is furthest behind the row's best peer.
    pub fn worst(&self) -> Option<(&Row, Estimate)> {
        let rows = self.rows.iter();
        rows.filter_map(|row| Some((row, row.against_best_peer?)))
            .max_by(|(_, a), (_, b)| a.ratio.total_cmp(&b.ratio))
    }
}

impl Row {
    /// `None`: no allocator has a figure. Appends this workload's ratios to `ratios`, by allocator.
    fn of(
        results: &Results,
        workload: &str,
        metric: Metric,
        ratios: &mut [Vec<Vec<f64>>],
        random: &mut Rng,
    ) -> Option<Row> {
        let reference = results.reference();
        let series: Vec<Vec<Option<f64>>> = results
            .allocators
            .iter()
            .map(|a| results.series(workload, &a.name, metric))
            .collect();
        let own = results.allocators.iter().position(|a| a.name == reference);
        let own = own.map_or(&[][..], |index| &series[index]);
        let medians: Vec<Option<f64>> = series.iter().map(|s| median(&present(s))).collect();
        let best = least(medians.iter().copied().flatten())?;
        let mut cells = Vec::new();
        for (index, allocator) in results.allocators.iter().enumerate() {
            let paired = paired_ratios(own, &series[index]);
            let ratio = (allocator.name != reference)
                .then(|| estimate(&paired, random))
                .flatten();
            if ratio.is_some() {
                ratios[index].push(paired);
            }
            let figures = present(&series[index]);
            cells.push(
                median(&figures)
                    .zip(fastest(&figures))
                    .map(|(median, least)| Cell {
                        median,
                        least,
                        distance: median / best,
                        ratio,
                    }),
            );
        }
        let best_peer = (0..cells.len())
            .filter(|index| results.allocators[*index].name != reference)
            .filter_map(|index| Some((index, cells[index].as_ref()?)))
            .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
        Some(Row {
            workload: workload.to_owned(),
            best_peer: best_peer.map(|(index, _)| results.allocators[index].name.clone()),
            against_best_peer: best_peer.and_then(|(_, cell)| cell.ratio),
            cells,
        })
    }
}

fn present(series: &[Option<f64>]) -> Vec<f64> {
    series.iter().copied().flatten().collect()
}

fn least(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.min_by(f64::total_cmp)
}

/// The means of the allocator at this index, over the workloads that it has figures for.
fn mean_distance(rows: &[Row], index: usize) -> Option<f64> {
    let cells = rows.iter().filter_map(|row| row.cells[index].as_ref());
    let distances: Vec<f64> = cells.map(|cell| cell.distance).collect();
    geometric_mean(&distances)
}

fn rank(results: &Results, metrics: &[MetricSummary], failures: &[FailedPair]) -> Vec<Rank> {
    let place = |metric: Metric| Metric::ALL.iter().position(|m| *m == metric);
    let mut ranking: Vec<Rank> = results
        .allocators
        .iter()
        .enumerate()
        .map(|(index, allocator)| {
            let distances: Vec<Option<f64>> = metrics
                .iter()
                .map(|summary| mean_distance(&summary.rows, index))
                .collect();
            let of = |metric| place(metric).and_then(|place| distances[place]);
            let both = of(Metric::Time)
                .zip(of(Metric::Peak))
                .and_then(|(time, peak)| geometric_mean(&[time, peak]));
            let failed = |pair: &&FailedPair| pair.allocator == allocator.name;
            Rank {
                allocator: allocator.name.clone(),
                both,
                failed: failures.iter().filter(failed).count(),
                distances,
            }
        })
        .collect();
    let last = f64::INFINITY;
    order::sort_by(&mut ranking, |a, b| {
        a.both.unwrap_or(last).total_cmp(&b.both.unwrap_or(last))
    });
    ranking
}

impl Rank {
    pub fn distance(&self, metric: Metric) -> Option<f64> {
        let place = Metric::ALL.iter().position(|m| *m == metric)?;
        *self.distances.get(place)?
    }
}

fn failures(results: &Results) -> Vec<FailedPair> {
    let mut failures = Vec::new();
    for subject in &results.workloads {
        for allocator in &results.allocators {
            if let Some(cause) = results.failure(&subject.name, &allocator.name) {
                failures.push(FailedPair {
                    workload: subject.name.clone(),
                    allocator: allocator.name.clone(),
                    cause: cause.to_owned(),
                });
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-9
    }

    #[test]
    fn ratios_pair_within_rounds() {
        let summary = Summary::of(&example(5));
        let time = summary.metric(Metric::Time).unwrap();
        let ratio = time.rows[0].cells[1].as_ref().unwrap().ratio.unwrap();
        assert!(close(ratio.low, 0.5) && close(ratio.high, 0.5), "{ratio:?}");
        assert!(time.rows[0].cells[0].as_ref().unwrap().ratio.is_none());
    }

    #[test]
    fn a_failed_peer_is_in_no_mean_and_named() {
        let summary = Summary::of(&example(5));
        let time = summary.metric(Metric::Time).unwrap();
        assert!(time.rows[1].cells[2].is_none());
        let peer = time.mean_against("peer").unwrap();
        assert_eq!(peer.workloads, 1);
        assert!(close(peer.mean.ratio, 0.25));
        // 0.5 on one, 3 on the other.
        let glibc = time.mean_against("glibc").unwrap();
        assert_eq!(glibc.workloads, 2);
        assert!(close(glibc.mean.ratio, 1.5f64.sqrt()));
        assert_eq!(summary.failures.len(), 1);
        assert_eq!(summary.failures[0].allocator, "peer");
        assert!(!summary.reference_failed());
    }

    #[test]
    fn the_best_of_a_workload_has_distance_one() {
        let summary = Summary::of(&example(5));
        let time = summary.metric(Metric::Time).unwrap();
        let distance =
            |row: usize, cell: usize| time.rows[row].cells[cell].as_ref().unwrap().distance;
        assert!(close(distance(0, 0), 1.0) && close(distance(0, 1), 2.0));
        assert!(close(distance(1, 0), 3.0) && close(distance(1, 1), 1.0));
        let larder = summary
            .ranking
            .iter()
            .find(|r| r.allocator == "larder")
            .unwrap();
        assert!(close(larder.distance(Metric::Time).unwrap(), 3f64.sqrt()));
        assert!(close(larder.both.unwrap(), 3f64.sqrt()));
        assert_eq!(summary.ranking[0].allocator, "glibc");
    }

    #[test]
    fn the_best_peer_is_not_the_reference() {
        let summary = Summary::of(&example(5));
        let time = summary.metric(Metric::Time).unwrap();
        assert_eq!(time.rows[0].best_peer.as_deref(), Some("glibc"));
        assert!(close(time.rows[0].against_best_peer.unwrap().ratio, 0.5));
        assert_eq!(time.best_single_peer.as_deref(), Some("glibc"));
        let (row, worst) = time.worst().unwrap();
        assert_eq!(row.workload, "crash");
        assert!(close(worst.ratio, 3.0));
    }

    #[test]
    fn a_metric_without_figures_has_no_table() {
        let summary = Summary::of(&example(5));
        assert!(summary.metric(Metric::Idle).is_none());
    }

    #[test]
    fn one_allocator_alone_is_reported_without_peers() {
        let mut results = example(5);
        results.allocators.truncate(1);
        results.runs.retain(|run| run.allocator == "larder");
        let summary = Summary::of(&results);
        let time = summary.metric(Metric::Time).unwrap();
        assert_eq!(time.rows[0].best_peer, None);
        assert!(time.means.is_empty());
    }
}
