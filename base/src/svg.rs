//! Drawings as SVG text, and a logarithmic axis for ratios.
//!
//! Colours come from the page's style sheet by class, so that a drawing suits light and dark. Every
//! text from outside is escaped here.

use std::fmt::Write;

/// Text between tags or in a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::printable::escape(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Coordinates are in pixels, from the upper left.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// The colours of series, on white: most of the Okabe–Ito palette, which suits colour-blind readers.
pub const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c00",
];

impl Svg {
    pub fn new(width: f64, height: f64) -> Svg {
        Svg {
            width,
            height,
            body: String::new(),
        }
    }

    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" class=\"{class}\"/>",
            width.max(0.0)
        );
    }

    /// With a tooltip.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str, hint: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"><title>{}</title></circle>",
            escape(hint)
        );
    }

    /// A triangle for a value beyond this side. `side` is -1 or 1.
    pub fn beyond(&mut self, (x, y): (f64, f64), side: f64, class: &str, hint: &str) {
        let (tip, back) = (x + side * 4.0, x - side * 3.0);
        let _ = writeln!(
            self.body,
            "<path d=\"M{tip:.1} {y:.1}L{back:.1} {:.1}L{back:.1} {:.1}Z\" class=\"{class}\"><title>{}</title></path>",
            y - 3.5,
            y + 3.5,
            escape(hint)
        );
    }

    /// A path with SVG's path data `d`.
    pub fn path(&mut self, d: &str, class: &str, hint: &str) {
        let _ = writeln!(
            self.body,
            "<path d=\"{d}\" class=\"{class}\"><title>{}</title></path>",
            escape(hint)
        );
    }

    pub fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let points = points.join(" ");
        let _ = writeln!(
            self.body,
            "<polyline points=\"{points}\" class=\"{class}\"/>"
        );
    }

    /// A label of a vertical axis, which reads upwards.
    pub fn text_upwards(&mut self, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(
            self.body,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(text)
        );
    }

    /// With a fill colour instead of a class.
    pub fn cell(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            escape(text)
        );
    }

    /// For a page, not wider than drawn. `label` is for screen readers.
    pub fn finish(self, label: &str) -> String {
        let attributes = format!("style=\"max-width:{:.0}px\"", self.width);
        self.element(&attributes, label)
    }

    /// A self-contained file.
    pub fn alone(mut self, class: &str, style: &str, label: &str) -> String {
        self.body
            .insert_str(0, &format!("<style>\n{style}</style>\n"));
        let attributes = format!("xmlns=\"http://www.w3.org/2000/svg\" class=\"{class}\"");
        self.element(&attributes, label)
    }

    fn element(self, attributes: &str, label: &str) -> String {
        format!(
            "<svg {attributes} viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.width,
            self.height,
            escape(label),
            self.body
        )
    }
}

/// Maps a ratio to a coordinate by its logarithm.
#[derive(Clone, Copy, Debug)]
pub struct LogAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    /// An axis that holds `values`, and some room, between the coordinates `from` and `to`; it reaches no
    /// further than `bounds`.
    pub fn holding(
        values: impl Iterator<Item = f64>,
        bounds: (f64, f64),
        from: f64,
        to: f64,
    ) -> LogAxis {
        let (mut low, mut high) = (1.0f64, 1.0f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        let room = ((high / low).ln() * 0.06).max(0.03).exp();
        LogAxis {
            low: (low / room).max(bounds.0),
            high: (high * room).min(bounds.1),
            from,
            to,
        }
    }

    /// The coordinate, and on which side the value lies outside: -1, 1, or 0 if it is inside.
    pub fn place(&self, value: f64) -> (f64, f64) {
        let inside = value.clamp(self.low, self.high);
        let share = (inside / self.low).ln() / (self.high / self.low).ln();
        let side = match value {
            value if value < self.low => -1.0,
            value if value > self.high => 1.0,
            _ => 0.0,
        };
        (self.from + share * (self.to - self.from), side)
    }

    pub fn at(&self, value: f64) -> f64 {
        self.place(value).0
    }

    /// Round values, far enough from each other for their labels.
    pub fn ticks(&self) -> Vec<f64> {
        const LEAST_PIXELS: f64 = 30.0;
        const LADDERS: [&[f64]; 5] = [
            &[
                1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0,
                8.0, 9.0, 9.5,
            ],
            &[
                1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0,
            ],
            &[1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            &[1.0, 2.0, 5.0],
        ];
        let on = |ladder: &[f64]| -> Vec<f64> {
            let decades = (-9..=9).map(|decade| 10f64.powi(decade));
            let steps = decades.flat_map(|decade| ladder.iter().map(move |step| step * decade));
            steps
                .filter(|tick| *tick >= self.low && *tick <= self.high)
                .collect()
        };
        let fits = |ticks: &Vec<f64>| {
            let apart = |pair: &[f64]| (self.at(pair[0]) - self.at(pair[1])).abs() >= LEAST_PIXELS;
            ticks.windows(2).all(apart)
        };
        let ladder = LADDERS.iter().map(|ladder| on(ladder)).find(fits);
        ladder.unwrap_or_else(|| on(&[1.0]))
    }
}

/// A tick's label: 0.5, 1, 1.05, 20.
pub fn tick_text(value: f64) -> String {
    crate::number::shortest(value, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_from_outside_is_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((0.0, 0.0), Anchor::Start, "c", "<script>&\"");
        svg.dot((0.0, 0.0), 1.0, "c", "</title>");
        let text = svg.finish("a\"b");
        assert!(text.contains("&lt;script&gt;&amp;&quot;"), "{text}");
        assert!(!text.contains("</title></title>"), "{text}");
        assert!(text.contains("aria-label=\"a&quot;b\""), "{text}");
    }

    #[test]
    fn a_ratio_and_its_inverse_lie_on_both_sides_of_one() {
        let axis = LogAxis::holding([0.25, 4.0].into_iter(), (0.01, 100.0), 0.0, 100.0);
        assert!((axis.at(1.0) - 50.0).abs() < 1e-9);
        assert!((axis.at(2.0) + axis.at(0.5) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_beyond_the_axis_is_at_its_end() {
        let axis = LogAxis::holding([0.001, 300.0].into_iter(), (0.1, 10.0), 0.0, 100.0);
        assert_eq!(axis.place(300.0), (100.0, 1.0));
        assert_eq!(axis.place(0.001), (0.0, -1.0));
        assert_eq!(axis.place(1.0).1, 0.0);
    }

    #[test]
    fn an_axis_of_nothing_and_of_one_value_can_be_drawn() {
        for values in [&[][..], &[1.0], &[f64::NAN]] {
            let axis = LogAxis::holding(values.iter().copied(), (0.1, 10.0), 0.0, 100.0);
            assert!(axis.at(1.0).is_finite());
            assert!(axis.ticks().contains(&1.0));
        }
    }

    #[test]
    fn ticks_are_few_and_inside() {
        for high in [1.01, 1.3, 2.0, 9.0, 40.0, 1e4] {
            let axis = LogAxis::holding([1.0, high].into_iter(), (1e-6, 1e6), 0.0, 600.0);
            let ticks = axis.ticks();
            assert!(!ticks.is_empty() && ticks.len() <= 20, "{high}: {ticks:?}");
            assert!(
                ticks.iter().all(|tick| axis.place(*tick).1 == 0.0),
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn ticks_are_written_short() {
        assert_eq!(tick_text(1.0), "1");
        assert_eq!(tick_text(0.05), "0.05");
        assert_eq!(tick_text(20.0), "20");
    }
}
