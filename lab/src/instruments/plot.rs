//! Plots as SVG that needs nothing but itself: lines over two axes, and grids of coloured cells.
//! Colours are of the Okabe–Ito palette, which the colour-blind can tell apart.

use std::fmt::Write;

const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c00",
];
const FONT: &str = "font-family=\"system-ui, sans-serif\" font-size=\"12\"";

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
    /// In order of x; positive where the axis is logarithmic.
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
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

fn text_at(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

fn open(svg: &mut String, width: f64, height: f64, title: &str) {
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" {FONT}>\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>",
        escape(title)
    );
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>",
        escape(title)
    );
}

/// Lines over two axes, with a legend at the right.
pub fn lines(title: &str, x_axis: &Axis, y_axis: &Axis, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let x_span = Span::new(x_axis.scale, all().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
    let y_span = Span::new(y_axis.scale, all().map(|(_, y)| y), HEIGHT - BOTTOM, TOP);
    let mut svg = String::new();
    open(&mut svg, WIDTH, HEIGHT, title);
    for tick in x_span.ticks() {
        let x = x_span.place(tick);
        rule(&mut svg, (x, TOP), (x, HEIGHT - BOTTOM));
        text_at(
            &mut svg,
            x,
            HEIGHT - BOTTOM + 18.0,
            "middle",
            &tick_label(tick),
        );
    }
    for tick in y_span.ticks() {
        let y = y_span.place(tick);
        rule(&mut svg, (LEFT, y), (WIDTH - RIGHT, y));
        text_at(&mut svg, LEFT - 8.0, y + 4.0, "end", &tick_label(tick));
    }
    text_at(
        &mut svg,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 14.0,
        "middle",
        x_axis.label,
    );
    let _ = writeln!(
        svg,
        "<text transform=\"translate(20 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(y_axis.label)
    );
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, line, index, &x_span, &y_span);
    }
    svg.push_str("</svg>\n");
    svg
}

fn rule(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
    );
}

fn draw(svg: &mut String, line: &Line, index: usize, x_span: &Span, y_span: &Span) {
    let colour = COLOURS[index % COLOURS.len()];
    // A second round through the colours is dashed.
    let dash = if index < COLOURS.len() {
        ""
    } else {
        " stroke-dasharray=\"5 3\""
    };
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|(x, y)| (x_span.place(*x), y_span.place(*y)))
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    let points: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
        points.join(" ")
    );
    for ((x, y), (_, value)) in places.iter().zip(&line.points) {
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {value:.4}</title></circle>",
            escape(&line.name)
        );
    }
    let y = TOP + 8.0 + index as f64 * 18.0;
    let x = WIDTH - RIGHT + 16.0;
    let _ = writeln!(
        svg,
        "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\"{dash}/>",
        x + 20.0
    );
    text_at(svg, x + 26.0, y + 4.0, "start", &line.name);
}

/// A grid of ratios: 1 is white, better is blue, worse is orange, by the logarithm.
#[derive(Debug)]
pub struct HeatMap {
    pub name: String,
    /// By row, then column; None where there is no figure.
    pub cells: Vec<Vec<Option<f64>>>,
}

const CELL_WIDTH: f64 = 46.0;
const CELL_HEIGHT: f64 = 24.0;
/// A ratio of this and more has the full colour.
const FULL_RATIO: f64 = 8.0;

/// One map beneath the other, on the same columns and rows.
pub fn heat_maps(title: &str, columns: &[String], rows: &[String], maps: &[HeatMap]) -> String {
    let map_height = CELL_HEIGHT * (rows.len() + 2) as f64 + 14.0;
    let width = (LEFT + 20.0 + CELL_WIDTH * columns.len() as f64).max(560.0);
    let mut svg = String::new();
    open(&mut svg, width, TOP + map_height * maps.len() as f64, title);
    for (index, map) in maps.iter().enumerate() {
        let top = TOP + map_height * index as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
            top + 14.0,
            escape(&map.name)
        );
        for (column, label) in columns.iter().enumerate() {
            let x = LEFT + (column as f64 + 0.5) * CELL_WIDTH;
            text_at(&mut svg, x, top + CELL_HEIGHT + 12.0, "middle", label);
        }
        for (row, cells) in map.cells.iter().enumerate() {
            let y = top + CELL_HEIGHT * (row as f64 + 1.0) + 18.0;
            let label = rows.get(row).map_or("", String::as_str);
            text_at(&mut svg, LEFT - 8.0, y + 16.0, "end", label);
            for (column, ratio) in cells.iter().enumerate() {
                let x = LEFT + column as f64 * CELL_WIDTH;
                cell(&mut svg, x, y, *ratio);
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn cell(svg: &mut String, x: f64, y: f64, ratio: Option<f64>) {
    let colour = ratio.map_or("#eee".to_owned(), shade);
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{CELL_WIDTH}\" height=\"{CELL_HEIGHT}\" fill=\"{colour}\" stroke=\"white\"/>"
    );
    let text = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    text_at(svg, x + CELL_WIDTH / 2.0, y + 16.0, "middle", &text);
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
