//! The graph of memory over time. Memory: up to `MOST_POINTS` points, whatever the time.

use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use super::model::Model;
use super::text;
use crate::terminal::table::size;

/// Twice the columns of a wide terminal: a character has two dots beside each other.
const MOST_POINTS: usize = 500;

/// Seconds since the first snapshot, and bytes.
type Point = (f64, f64);

/// What the graph shows; each snapshot adds a point.
pub struct History {
    rss: Vec<Point>,
    in_use: Vec<Point>,
}

/// The rows of the graph on a screen of this height.
pub fn rows(height: u16) -> u16 {
    match height {
        0..24 => 0,
        24..40 => 5,
        _ => 8,
    }
}

impl History {
    pub const fn new() -> Self {
        Self {
            rss: Vec::new(),
            in_use: Vec::new(),
        }
    }

    pub fn add(&mut self, model: &Model) {
        let at = model.watched.as_secs_f64();
        let [in_use, ..] = text::parts(model);
        push(&mut self.rss, (at, model.snapshot.memory.rss as f64));
        push(&mut self.in_use, (at, in_use as f64));
    }

    pub fn draw(&self, frame: &mut Frame, area: Rect) {
        let (Some((from, _)), Some((to, _))) = (self.rss.first(), self.rss.last()) else {
            return;
        };
        let most = self.rss.iter().chain(&self.in_use).map(|(_, bytes)| *bytes);
        let most = most.fold(1.0, f64::max);
        let line = |points, color| {
            let line = Dataset::default().marker(Marker::Braille).data(points);
            line.graph_type(GraphType::Line)
                .style(Style::new().fg(color))
        };
        let lines = vec![
            line(&self.rss, Color::Blue),
            line(&self.in_use, Color::Green),
        ];
        let labels = ["0".to_owned(), size(most)];
        let chart = Chart::new(lines)
            .x_axis(Axis::default().bounds([*from, to.max(from + 1.0)]))
            .y_axis(
                Axis::default()
                    .bounds([0.0, most])
                    .labels(labels)
                    .labels_alignment(Alignment::Right),
            );
        frame.render_widget(chart, area);
    }
}

/// When there are too many, the higher one of two stays, and the last.
fn push(points: &mut Vec<Point>, point: Point) {
    if points.len() == MOST_POINTS {
        let pairs = points.chunks(2);
        let higher = pairs.filter_map(|pair| pair.iter().max_by(|a, b| a.1.total_cmp(&b.1)));
        *points = higher.copied().collect();
    }
    points.push(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_the_last_point_stay_however_long_it_takes() {
        let mut points = Vec::new();
        for second in 0..10_000 {
            let bytes = if second == 17 { 9.0 } else { 1.0 };
            push(&mut points, (f64::from(second), bytes));
            assert!(points.len() <= MOST_POINTS);
        }
        assert!(points.contains(&(17.0, 9.0)));
        assert_eq!(points.last(), Some(&(9999.0, 1.0)));
        assert!(points.is_sorted_by_key(|(second, _)| *second));
    }
}
