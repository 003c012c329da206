//! Exports a profile's stacks in the formats of other tools, and as a flame graph.

use larder_analysis::export::{Weighed, collapsed, pprof, speedscope};
use larder_analysis::flamegraph;
use larder_analysis::reading::heap::Origin;
use larder_analysis::reading::measure::Measure;
use larder_analysis::reading::stacks::StackRow;
use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::output::{self, Content};
use larder_base::printable;

use super::Report;
use super::sites::Row;
use super::text::whole;
use crate::error::LiveError;

/// The measures that a heap profile has.
const MEASURES: [Measure; 5] = [
    Measure::LiveBytes,
    Measure::LiveBlocks,
    Measure::Bytes,
    Measure::Calls,
    Measure::Peak,
];

pub fn export(report: &Report<'_>) -> Result<()> {
    let rows = stack_rows(&report.profiled.rows);
    let weighed = Weighed {
        rows: &rows,
        measures: &MEASURES,
        measure: measure(report),
        name: report.title.clone(),
    };
    let (plan, about) = (report.plan, about(report));
    output::write(
        plan.output.as_deref(),
        plan.format.content(),
        |out| match plan.format {
            Format::Pprof => pprof::write(&weighed, &about, out),
            Format::Speedscope => speedscope::write(&weighed, out),
            _ => collapsed::write(&weighed, out),
        },
    )
}

/// With a base, colours show the growth.
pub fn draw(report: &Report<'_>) -> Result<()> {
    let rows = stack_rows(&report.profiled.rows);
    let measure = measure(report);
    let what = match measure {
        Measure::LiveBytes => "Bytes in use",
        Measure::LiveBlocks => "Objects in use",
        Measure::Bytes => "Bytes allocated so far",
        other => other.title(),
    };
    let title = format!("{what}, {}", report.title);
    let picture = match &report.plan.base {
        None => flamegraph::svg(&rows, measure, &title),
        Some(base) => {
            let title = format!("{title} against {}", printable::name(base));
            let before = stack_rows(&report.profiled.base_rows);
            flamegraph::differential(&before, &rows, measure, &title)
        }
    };
    let Some(picture) = picture else {
        let (title, unit) = (report.title.clone(), measure.unit());
        return Err(LiveError::NothingToDraw { title, unit }.into());
    };
    output::write(report.plan.output.as_deref(), Content::Text, |out| {
        out.write_all(picture.as_bytes())
    })
}

fn measure(report: &Report<'_>) -> Measure {
    report.key().measure().unwrap_or(Measure::LiveBytes)
}

pub fn stack_rows(rows: &[Row]) -> Vec<StackRow> {
    let rows = rows.iter().map(|row| {
        let figures = &row.figures;
        let mut sums = Origin::default();
        sums.calls = whole(figures.allocated.objects);
        sums.bytes = whole(figures.allocated.bytes);
        sums.live_blocks = whole(figures.in_use.objects);
        sums.live_bytes = whole(figures.in_use.bytes);
        sums.peak_bytes = whole(figures.at_peak.bytes);
        sums.peak_blocks = whole(figures.at_peak.objects);
        let mut stack = StackRow::with_sums(row.chain.clone(), row.site, row.profile, sums);
        stack.truncated = row.truncated;
        stack
    });
    rows.collect()
}

fn about(report: &Report<'_>) -> pprof::About {
    let profiles = &report.profiles;
    let interval = |report: &Report<'_>| {
        let total = &report.profiled.total;
        let interval = total.spread.interval(total.in_use.bytes);
        let (low, high) = (whole(interval.low), whole(interval.high));
        format!("95 % of inuse_space: {low} to {high}")
    };
    pprof::About {
        program: profiles.first().and_then(super::program),
        pids: profiles
            .iter()
            .map(|profile| profile.process.unwrap_or(0))
            .collect(),
        start_ns: 0,
        duration_ns: 0,
        period: profiles.first().map_or(1, |profile| profile.mean.max(1)),
        comments: vec![report.title.clone(), interval(report)],
    }
}
