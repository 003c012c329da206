//! Draws live bytes over time: the sites that hold most, stacked, and the others on top.
//!
//! Size: `SITES` + 1 outlines of up to two points a column, whatever the trace.

use larder_base::number::{bytes, counted, duration};
use larder_base::svg::{Anchor, Svg};

use crate::reading::naming::{site_name, site_place};
use crate::reading::timeline::Timeline;

/// Sites drawn separately.
pub const SITES: usize = 10;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 990.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 320.0;
const LEGEND: f64 = 362.0;
const LEGEND_STEP: f64 = 18.0;
/// Characters of a name in the legend.
const NAME_CHARS: usize = 110;

const CLASS: &str = "timeline";
/// Shared by the page and by the drawing alone.
pub const STYLE: &str = include_str!("timeline.css");

/// A file of its own.
pub fn standalone(timeline: &Timeline, trace: &str) -> String {
    let label = format!("Live bytes over time, {trace}");
    drawing(timeline).alone(CLASS, STYLE, &label)
}

/// Converts columns and bytes to pixels.
struct Scale {
    columns: f64,
    bytes: f64,
}

impl Scale {
    fn x(&self, column: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * column as f64 / self.columns
    }

    fn y(&self, bytes: u64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * bytes as f64 / self.bytes
    }
}

fn drawing(timeline: &Timeline) -> Svg {
    let rows = timeline.sites.len() + usize::from(timeline.other_sites > 0);
    let mut svg = Svg::new(WIDTH, LEGEND + LEGEND_STEP * rows as f64);
    let scale = Scale {
        columns: timeline.totals.len().max(1) as f64,
        bytes: timeline.peak_bytes.max(1) as f64,
    };
    draw_axes(&mut svg, timeline, &scale);
    let mut base = vec![0u64; timeline.totals.len()];
    for (index, (id, _, columns)) in timeline.sites.iter().enumerate() {
        let site = timeline.table.get(*id);
        let top: Vec<u64> = base
            .iter()
            .zip(columns)
            .map(|(a, b)| a.saturating_add(*b))
            .collect();
        let most = columns.iter().copied().max().unwrap_or(0);
        let label = format!("{}, {}", site_name(site), site_place(site));
        let class = format!("t{index}");
        svg.path(&outline(&scale, &base, &top), &class, &label);
        draw_legend(&mut svg, index, &class, &label, most);
        base = top;
    }
    if timeline.other_sites > 0 {
        let rest = timeline.totals.iter().zip(&base);
        let most = rest.map(|(total, base)| total.saturating_sub(*base)).max();
        let label = counted(timeline.other_sites as u64, "other site");
        svg.path(&outline(&scale, &base, &timeline.totals), "rest", &label);
        let row = timeline.sites.len();
        draw_legend(&mut svg, row, "rest", &label, most.unwrap_or(0));
    }
    draw_peak(&mut svg, timeline, &scale);
    svg
}

fn draw_axes(svg: &mut Svg, timeline: &Timeline, scale: &Scale) {
    let step = byte_step(timeline.peak_bytes);
    let mut at = 0u64;
    while at <= timeline.peak_bytes {
        let y = scale.y(at);
        svg.line((LEFT, y), (RIGHT, y), "");
        svg.text((LEFT - 6.0, y + 4.0), Anchor::End, "", &bytes(at));
        at = at.saturating_add(step);
        if at == u64::MAX {
            break;
        }
    }
    let columns = timeline.totals.len();
    for quarter in 0..=4 {
        let column = columns * quarter / 4;
        let time = moment(timeline, column);
        let anchor = match quarter {
            0 => Anchor::Start,
            4 => Anchor::End,
            _ => Anchor::Middle,
        };
        svg.text((scale.x(column), BOTTOM + 18.0), anchor, "", &time);
    }
}

/// When a column begins.
fn moment(timeline: &Timeline, column: usize) -> String {
    match timeline.column_ns {
        Some(column_ns) => duration((column as f64 * column_ns) as u64),
        None => counted(
            timeline.column_events.saturating_mul(column as u64),
            "event",
        ),
    }
}

/// The area between two step lines, as a path.
fn outline(scale: &Scale, base: &[u64], top: &[u64]) -> String {
    let start = scale.y(base.first().copied().unwrap_or(0));
    let mut path = format!("M{:.1} {start:.1}", scale.x(0));
    let count = top.len();
    for column in 0..count {
        if column == 0 || top[column] != top[column - 1] {
            path += &format!("H{:.1}V{:.1}", scale.x(column), scale.y(top[column]));
        }
    }
    path += &format!("H{:.1}", scale.x(count));
    for column in (0..count).rev() {
        if column + 1 == count || base[column] != base[column + 1] {
            let (x, y) = (scale.x(column + 1), scale.y(base[column]));
            path += &format!("H{x:.1}V{y:.1}");
        }
    }
    path + "Z"
}

fn draw_legend(svg: &mut Svg, row: usize, class: &str, label: &str, most: u64) {
    let y = LEGEND + LEGEND_STEP * row as f64;
    let mut name: String = label.chars().take(NAME_CHARS).collect();
    if name.len() < label.len() {
        name.push('…');
    }
    svg.rectangle((LEFT, y - 10.0), (11.0, 11.0), class);
    let text = format!("{name}, up to {}", bytes(most));
    svg.text((LEFT + 18.0, y), Anchor::Start, "", &text);
}

fn draw_peak(svg: &mut Svg, timeline: &Timeline, scale: &Scale) {
    let mut totals = timeline.totals.iter();
    let Some(column) = totals.position(|total| *total == timeline.peak_bytes) else {
        return;
    };
    let x = scale.x(column);
    let anchor = match x > WIDTH / 2.0 {
        true => Anchor::End,
        false => Anchor::Start,
    };
    let time = moment(timeline, column);
    svg.line((x, TOP - 8.0), (x, BOTTOM), "peak");
    let text = format!("peak {} at {time}", bytes(timeline.peak_bytes));
    svg.text((x, TOP - 10.0), anchor, "", &text);
}

/// A round distance of grid lines, up to five of which fit below `most`.
fn byte_step(most: u64) -> u64 {
    let mut step = 1u64;
    loop {
        for factor in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            let found = step.saturating_mul(factor);
            if most / found < 5 {
                return found;
            }
        }
        step = step.saturating_mul(1024);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_cross_any_height() {
        for most in [0, 1, 4, 5, 1000, 160_385, 1 << 40, u64::MAX] {
            let step = byte_step(most);
            assert!(most / step < 5, "{most}: {step}");
        }
    }
}
