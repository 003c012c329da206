//! The history as a table, and as JSON.

use std::io::{self, Write};

use larder_base::printable::escape;
use larder_base::style::{FAINT, HEADING, WARNING};
use serde_json::{Value, json};

use super::trend::{Series, Trend, commit, describe};
use crate::check::figures::Figure;

pub fn print(trends: &[Trend], out: &mut dyn Write) -> io::Result<()> {
    for (index, trend) in trends.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        print_trend(trend, out)?;
    }
    Ok(())
}

fn print_trend(trend: &Trend, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", escape(&trend.name))?;
    writeln!(
        out,
        "{FAINT}{:<17} {:<11} {:>12} {:>13} {:>15} {:>7} {:>12} {:>9} {:>10} {:>10}{FAINT:#}",
        "when (UTC)",
        "commit",
        "allocations",
        "peak",
        "total",
        "leaked",
        "leaked bytes",
        "tiny",
        "wall",
        "cpu"
    )?;
    for run in &trend.runs {
        let count = |figure| {
            let series = Series::Count(figure);
            series.describe(series.value(run).unwrap_or(0.0))
        };
        let time = |series: Series| match series.value(run) {
            Some(value) => series.describe(value),
            None => "-".to_owned(),
        };
        writeln!(
            out,
            "{:<17} {:<11} {:>12} {:>13} {:>15} {:>7} {:>12} {:>9} {:>10} {:>10}{}",
            escape(&run.at),
            escape(&commit(run)),
            count(Figure::Allocations),
            count(Figure::PeakBytes),
            count(Figure::TotalBytes),
            count(Figure::LeakedBlocks),
            count(Figure::LeakedBytes),
            count(Figure::Tiny),
            time(Series::Wall),
            time(Series::Cpu),
            if run.within { "" } else { "  over budget" }
        )?;
    }
    for moved in &trend.moved {
        if let Some(text) = describe(trend, moved) {
            writeln!(out, "{WARNING}moved at {}{WARNING:#}", escape(&text))?;
        }
    }
    Ok(())
}

pub fn json(trends: &[Trend]) -> Value {
    trends
        .iter()
        .map(|trend| {
            let changes: Vec<Value> = trend
                .moved
                .iter()
                .map(|moved| {
                    json!({
                        "figure": moved.series.key(),
                        "run": trend.runs.get(moved.change.at).map(|run| run.id),
                        "commit": trend.runs.get(moved.change.at).map(|run| &run.commit),
                        "before": moved.change.before,
                        "after": moved.change.after,
                    })
                })
                .collect();
            json!({ "name": trend.name, "runs": trend.runs, "changes": changes })
        })
        .collect()
}
