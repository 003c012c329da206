//! Plots as self-contained SVG: lines over two axes, and grids of coloured cells.

use larder_base::number::shortest;
use larder_base::svg::{Anchor, COLOURS, Svg};

const STYLE: &str = "\
.plot { font: 12px system-ui, sans-serif; }
.plot .title { font-size: 15px; }
.plot .name { font-weight: bold; }
.plot .rule { stroke: #ddd; }
.plot .cell { fill: none; stroke: white; }
.plot polyline { fill: none; stroke-width: 2; }
.plot .key { stroke-width: 3; }
.plot .dashed { stroke-dasharray: 5 3; }
";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

#[derive(Debug)]
pub struct Axis {
    pub label: &'static str,
    pub scale: Scale,
}

#[derive(Debug)]
pub struct Line {
    pub name: String,
    /// In order of x; positive if the axis is logarithmic.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;

/// Values to places along an axis.
struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Span {
    /// Logarithmic spans end at powers of ten, linear ones begin at zero.
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Span {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        match scale {
            Scale::Linear => {
                let step = tick_step(high.max(f64::MIN_POSITIVE));
                (low, high) = (0.0, (high / step).ceil().max(1.0) * step);
            }
            Scale::Logarithmic => {
                (low, high) = (low.log10().floor(), high.log10().ceil());
                high = high.max(low + 1.0);
            }
        }
        Span {
            scale,
            low,
            high,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.log10(),
        };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = tick_step(self.high);
                let count = (self.high / step).round() as usize;
                (0..=count).map(|index| index as f64 * step).collect()
            }
            Scale::Logarithmic => {
                let powers = self.low.round() as i32..=self.high.round() as i32;
                powers.map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten: about five ticks up to `high`.
fn tick_step(high: f64) -> f64 {
    let raw = high / 5.0;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| raw <= factor * power);
    factor.unwrap_or(10.0) * power
}

/// 1500 as 1.5k, 5e7 as 50M.
fn tick_label(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", shortest(value, 3))
}

/// The style's name of a series.
fn series(index: usize) -> String {
    // A second round through the colours is dashed.
    let dashed = if index < COLOURS.len() { "" } else { " dashed" };
    format!("s{}{dashed}", index % COLOURS.len())
}

fn titled(width: f64, height: f64, title: &str) -> Svg {
    let mut svg = Svg::new(width, height);
    svg.cell((0.0, 0.0), (width, height), "white");
    svg.text((LEFT, 24.0), Anchor::Start, "title", title);
    svg
}

fn finished(svg: Svg, title: &str) -> String {
    let colours = COLOURS.iter().enumerate();
    let series = colours.map(|(index, colour)| {
        format!(
            ".plot .s{index} {{ stroke: {colour}; }}\n.plot circle.s{index} {{ fill: {colour}; stroke: none; }}\n"
        )
    });
    svg.alone(
        "plot",
        &(STYLE.to_owned() + &series.collect::<String>()),
        title,
    )
}

/// Lines over two axes, with a legend at the right.
pub fn lines(title: &str, x_axis: &Axis, y_axis: &Axis, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let x_span = Span::new(x_axis.scale, all().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
    let y_span = Span::new(y_axis.scale, all().map(|(_, y)| y), HEIGHT - BOTTOM, TOP);
    let mut svg = titled(WIDTH, HEIGHT, title);
    for tick in x_span.ticks() {
        let x = x_span.place(tick);
        svg.line((x, TOP), (x, HEIGHT - BOTTOM), "rule");
        let below = (x, HEIGHT - BOTTOM + 18.0);
        svg.text(below, Anchor::Middle, "", &tick_label(tick));
    }
    for tick in y_span.ticks() {
        let y = y_span.place(tick);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), "rule");
        svg.text((LEFT - 8.0, y + 4.0), Anchor::End, "", &tick_label(tick));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg.text((middle, HEIGHT - 14.0), Anchor::Middle, "", x_axis.label);
    svg.text_upwards((20.0, (TOP + HEIGHT - BOTTOM) / 2.0), y_axis.label);
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, line, index, &x_span, &y_span);
    }
    finished(svg, title)
}

fn draw(svg: &mut Svg, line: &Line, index: usize, x_span: &Span, y_span: &Span) {
    let series = series(index);
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|(x, y)| (x_span.place(*x), y_span.place(*y)))
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    svg.polyline(&places, &series);
    for (place, (_, value)) in places.iter().zip(&line.points) {
        let hint = format!("{}: {value:.4}", line.name);
        svg.dot(*place, 3.0, &series, &hint);
    }
    let y = TOP + 8.0 + index as f64 * 18.0;
    let x = WIDTH - RIGHT + 16.0;
    svg.line((x, y), (x + 20.0, y), &format!("key {series}"));
    svg.text((x + 26.0, y + 4.0), Anchor::Start, "", &line.name);
}

/// A grid of ratios: 1 is white, better is blue, worse is orange, by the logarithm.
#[derive(Debug)]
pub struct HeatMap {
    pub name: String,
    /// By row, then column; None if there is no figure.
    pub cells: Vec<Vec<Option<f64>>>,
}

const CELL_WIDTH: f64 = 46.0;
const CELL_HEIGHT: f64 = 24.0;
/// A ratio from this on has the full colour.
const FULL_RATIO: f64 = 8.0;

/// Several maps, one beneath the other, with the same columns and rows.
pub fn heat_maps(title: &str, columns: &[String], rows: &[String], maps: &[HeatMap]) -> String {
    let map_height = CELL_HEIGHT * (rows.len() + 2) as f64 + 14.0;
    let width = (LEFT + 20.0 + CELL_WIDTH * columns.len() as f64).max(560.0);
    let mut svg = titled(width, TOP + map_height * maps.len() as f64, title);
    for (index, map) in maps.iter().enumerate() {
        let top = TOP + map_height * index as f64;
        svg.text((LEFT, top + 14.0), Anchor::Start, "name", &map.name);
        for (column, label) in columns.iter().enumerate() {
            let x = LEFT + (column as f64 + 0.5) * CELL_WIDTH;
            let above = (x, top + CELL_HEIGHT + 12.0);
            svg.text(above, Anchor::Middle, "", label);
        }
        for (row, cells) in map.cells.iter().enumerate() {
            let y = top + CELL_HEIGHT * (row as f64 + 1.0) + 18.0;
            let label = rows.get(row).map_or("", String::as_str);
            svg.text((LEFT - 8.0, y + 16.0), Anchor::End, "", label);
            for (column, ratio) in cells.iter().enumerate() {
                let x = LEFT + column as f64 * CELL_WIDTH;
                cell(&mut svg, (x, y), *ratio);
            }
        }
    }
    finished(svg, title)
}

fn cell(svg: &mut Svg, (x, y): (f64, f64), ratio: Option<f64>) {
    let colour = ratio.map_or("#eee".to_owned(), shade);
    let size = (CELL_WIDTH, CELL_HEIGHT);
    svg.cell((x, y), size, &colour);
    svg.rectangle((x, y), size, "cell");
    let text = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let middle = (x + CELL_WIDTH / 2.0, y + 16.0);
    svg.text(middle, Anchor::Middle, "", &text);
}

fn shade(ratio: f64) -> String {
    let strength = (ratio.ln() / FULL_RATIO.ln()).clamp(-1.0, 1.0);
    let full = if strength >= 0.0 {
        [86.0, 180.0, 233.0]
    } else {
        [230.0, 159.0, 0.0]
    };
    let mixed = full.map(|channel| 255.0 + (channel - 255.0) * strength.abs());
    let [red, green, blue] = mixed.map(|channel| channel.round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_spans_end_at_powers_of_ten() {
        let span = Span::new(Scale::Logarithmic, [50.0, 5e7].into_iter(), 0.0, 700.0);
        assert_eq!((span.low, span.high), (1.0, 8.0));
        assert_eq!(span.ticks().len(), 8);
        assert!((span.place(1e4) - 300.0).abs() < 1e-9);
        let one = Span::new(Scale::Logarithmic, [10.0].into_iter(), 0.0, 1.0);
        assert!(one.place(10.0).is_finite());
    }

    #[test]
    fn linear_spans_begin_at_zero_and_hold_the_highest() {
        for high in [0.37, 1.0, 4_389.0, 7e6] {
            let span = Span::new(Scale::Linear, [high].into_iter(), 0.0, 1.0);
            assert!(
                span.low == 0.0 && span.high >= high && span.high <= high * 2.0,
                "{span:?}",
                span = span.high
            );
            assert!((2..=8).contains(&span.ticks().len()), "{:?}", span.ticks());
        }
        let none = Span::new(Scale::Linear, std::iter::empty(), 0.0, 1.0);
        assert!(none.place(1.0).is_finite());
    }

    #[test]
    fn labels_are_short() {
        let labels = [50.0, 1000.0, 1500.0, 5e7, 0.5].map(tick_label);
        assert_eq!(labels, ["50", "1k", "1.5k", "50M", "0.5"]);
    }

    #[test]
    fn names_from_outside_are_escaped() {
        let axis = || Axis {
            label: "x",
            scale: Scale::Linear,
        };
        let line = Line {
            name: "<a&\">".to_owned(),
            points: vec![(1.0, 2.0)],
        };
        let svg = lines("t", &axis(), &axis(), &[line]);
        assert!(
            svg.contains("&lt;a&amp;&quot;&gt;") && !svg.contains("<a&"),
            "{svg}"
        );
    }

    #[test]
    fn better_is_blue_and_worse_is_orange() {
        assert_eq!(shade(1.0), "#ffffff");
        assert_eq!(shade(8.0), shade(100.0));
        assert_eq!(shade(100.0), "#56b4e9");
        assert_eq!(shade(0.0), "#e69f00");
        let map = HeatMap {
            name: "a".to_owned(),
            cells: vec![vec![Some(2.0), None]],
        };
        let svg = heat_maps(
            "t",
            &["1".to_owned(), "2".to_owned()],
            &["64".to_owned()],
            &[map],
        );
        assert!(svg.contains(">2.00<") && svg.contains(">–<"), "{svg}");
    }
}
