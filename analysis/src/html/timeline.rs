//! Live bytes over time, drawn: the sites that hold most stacked, the rest on top.
//!
//! Size: `SITES` + 1 outlines of at most two points a column, whatever the trace.

use std::fmt::Write;

use larder_base::number::{counted, duration};
use larder_base::svg::escape;

use crate::reading::naming::{site_name, site_place};
use crate::reading::timeline::Timeline;

/// Sites told apart.
pub const SITES: usize = 10;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 990.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 320.0;
const LEGEND: f64 = 362.0;
const LEGEND_STEP: f64 = 18.0;
/// Of a name in the legend.
const NAME_CHARS: usize = 110;

/// For the page and for the drawing alone.
pub const STYLE: &str = include_str!("timeline.css");

/// A file of its own.
pub fn standalone(timeline: &Timeline, trace: &str) -> String {
    let drawing = draw(timeline, trace);
    let namespace = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
    let body = drawing.replacen("<svg", namespace, 1);
    body.replacen('>', &format!(">\n<style>\n{STYLE}</style>"), 1)
}

/// An element for a page that has `STYLE`.
pub fn draw(timeline: &Timeline, trace: &str) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_drawing(&mut out, timeline, trace);
    out
}

/// From column and bytes to pixels.
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

fn write_drawing(out: &mut String, timeline: &Timeline, trace: &str) -> std::fmt::Result {
    let rows = timeline.sites.len() + usize::from(timeline.other_sites > 0);
    let height = LEGEND + LEGEND_STEP * rows as f64;
    writeln!(
        out,
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Live bytes over time, {}\">",
        escape(trace)
    )?;
    let scale = Scale {
        columns: timeline.totals.len().max(1) as f64,
        bytes: timeline.peak_bytes.max(1) as f64,
    };
    write_axes(out, timeline, &scale)?;
    let mut base = vec![0u64; timeline.totals.len()];
    for (index, (id, columns)) in timeline.sites.iter().enumerate() {
        let site = timeline.table.get(*id);
        let top: Vec<u64> = base
            .iter()
            .zip(columns)
            .map(|(a, b)| a.saturating_add(*b))
            .collect();
        let most = columns.iter().copied().max().unwrap_or(0);
        let label = format!("{}, {}", site_name(site), site_place(site));
        write_layer(out, &scale, (&base, &top), &format!("t{index}"), &label)?;
        write_legend(out, index, &format!("t{index}"), &label, most)?;
        base = top;
    }
    if timeline.other_sites > 0 {
        let rest = timeline.totals.iter().zip(&base);
        let most = rest.map(|(total, base)| total.saturating_sub(*base)).max();
        let label = counted(timeline.other_sites as u64, "other site");
        write_layer(out, &scale, (&base, &timeline.totals), "rest", &label)?;
        write_legend(out, timeline.sites.len(), "rest", &label, most.unwrap_or(0))?;
    }
    write_peak(out, timeline, &scale)?;
    writeln!(out, "</svg>")
}

fn write_axes(out: &mut String, timeline: &Timeline, scale: &Scale) -> std::fmt::Result {
    let step = byte_step(timeline.peak_bytes);
    let mut at = 0u64;
    while at <= timeline.peak_bytes {
        let y = scale.y(at);
        writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            bytes(at)
        )?;
        at = at.saturating_add(step);
        if at == u64::MAX {
            break;
        }
    }
    let columns = timeline.totals.len();
    for quarter in 0..=4 {
        let column = columns * quarter / 4;
        let time = duration((column as f64 * timeline.column_ns) as u64);
        let class = ["start", "middle", "middle", "middle", "end"][quarter];
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"{class}\">{time}</text>",
            scale.x(column),
            BOTTOM + 18.0
        )?;
    }
    Ok(())
}

/// The area between two lines that hold through each column.
fn write_layer(
    out: &mut String,
    scale: &Scale,
    (base, top): (&[u64], &[u64]),
    class: &str,
    label: &str,
) -> std::fmt::Result {
    write!(
        out,
        "<path class=\"{class}\" d=\"M{:.1} {:.1}",
        scale.x(0),
        scale.y(base.first().copied().unwrap_or(0))
    )?;
    let count = top.len();
    for column in 0..count {
        if column == 0 || top[column] != top[column - 1] {
            write!(out, "H{:.1}V{:.1}", scale.x(column), scale.y(top[column]))?;
        }
    }
    write!(out, "H{:.1}", scale.x(count))?;
    for column in (0..count).rev() {
        if column + 1 == count || base[column] != base[column + 1] {
            write!(
                out,
                "H{:.1}V{:.1}",
                scale.x(column + 1),
                scale.y(base[column])
            )?;
        }
    }
    writeln!(out, "Z\"><title>{}</title></path>", escape(label))
}

fn write_legend(
    out: &mut String,
    row: usize,
    class: &str,
    label: &str,
    most: u64,
) -> std::fmt::Result {
    let y = LEGEND + LEGEND_STEP * row as f64;
    let mut name: String = label.chars().take(NAME_CHARS).collect();
    if name.len() < label.len() {
        name.push('…');
    }
    writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"11\" height=\"11\" class=\"{class}\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}, at most {}</text>",
        y - 10.0,
        LEFT + 18.0,
        escape(&name),
        bytes(most)
    )
}

fn write_peak(out: &mut String, timeline: &Timeline, scale: &Scale) -> std::fmt::Result {
    let Some(column) = timeline
        .totals
        .iter()
        .position(|total| *total == timeline.peak_bytes)
    else {
        return Ok(());
    };
    let x = scale.x(column);
    let class = if x > WIDTH / 2.0 { "end" } else { "start" };
    let time = duration((column as f64 * timeline.column_ns) as u64);
    writeln!(
        out,
        "<line class=\"peak\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" class=\"{class}\">peak {} at {time}</text>",
        TOP - 8.0,
        TOP - 10.0,
        bytes(timeline.peak_bytes)
    )
}

/// A round distance of lines, of which at most five fit below `most`.
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

/// With a binary unit and three figures or so.
fn bytes(value: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled < 100.0 && scaled.fract() != 0.0);
    format!("{scaled:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_their_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
    }

    #[test]
    fn a_few_lines_cross_any_height() {
        for most in [0, 1, 4, 5, 1000, 160_385, 1 << 40, u64::MAX] {
            let step = byte_step(most);
            assert!(most / step < 5, "{most}: {step}");
        }
    }
}
