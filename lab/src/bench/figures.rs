//! The measurements of one run, and the metrics that are compared.

use serde::{Deserialize, Serialize};

/// The measurements of one run, in the form in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From the start of the command to its end.
    pub wall_seconds: f64,
    /// The measured part, by the workload's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    pub cpu_seconds: f64,
    pub peak_kib: f64,
    pub page_faults: f64,
    /// Mappings at the end of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mappings: Option<f64>,
    /// Resident after idle seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_rss_kib: Option<f64>,
}

/// What allocators are compared by. Less is better for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Time,
    Cpu,
    Peak,
    Idle,
    Faults,
    Mappings,
    Wall,
}

/// Metrics that have a table of their own; the rest is in the JSON.
pub const SHOWN: [Metric; 6] = [
    Metric::Time,
    Metric::Cpu,
    Metric::Peak,
    Metric::Idle,
    Metric::Faults,
    Metric::Mappings,
];

impl Metric {
    pub const ALL: [Metric; 7] = [
        Metric::Time,
        Metric::Cpu,
        Metric::Peak,
        Metric::Idle,
        Metric::Faults,
        Metric::Mappings,
        Metric::Wall,
    ];

    /// The figure of a run; None if the run has none, or if a ratio of it would be meaningless.
    pub fn of(self, figures: &Figures) -> Option<f64> {
        let value = match self {
            Metric::Time => Some(figures.seconds.unwrap_or(figures.wall_seconds)),
            Metric::Wall => Some(figures.wall_seconds),
            Metric::Cpu => Some(figures.cpu_seconds),
            Metric::Peak => Some(figures.peak_kib),
            Metric::Idle => figures.idle_rss_kib,
            Metric::Faults => Some(figures.page_faults),
            Metric::Mappings => figures.mappings,
        };
        value.filter(|value| value.is_finite() && *value > 0.0)
    }

    pub fn title(self) -> &'static str {
        match self {
            Metric::Time => "Time",
            Metric::Cpu => "CPU time",
            Metric::Peak => "Peak resident memory",
            Metric::Idle => "Resident memory after idling",
            Metric::Faults => "Page faults",
            Metric::Mappings => "Mappings",
            Metric::Wall => "Wall time of the whole process",
        }
    }

    /// The title of a column.
    pub fn short(self) -> &'static str {
        match self {
            Metric::Time => "time",
            Metric::Cpu => "CPU",
            Metric::Peak => "peak RSS",
            Metric::Idle => "idle RSS",
            Metric::Faults => "page faults",
            Metric::Mappings => "mappings",
            Metric::Wall => "wall",
        }
    }

    /// The unit of `show`; empty for counts.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Time | Metric::Cpu | Metric::Wall => "s",
            Metric::Peak | Metric::Idle => "MiB",
            Metric::Faults | Metric::Mappings => "",
        }
    }

    /// A figure in this metric's unit, with about three digits.
    pub fn show(self, value: f64) -> String {
        let (value, least) = match self {
            Metric::Time | Metric::Cpu | Metric::Wall => (value, 3),
            Metric::Peak | Metric::Idle => (value / 1024.0, 1),
            Metric::Faults | Metric::Mappings => (value, 0),
        };
        // A run of 400 µs must not print as 0.000 s.
        let digits = match self {
            Metric::Time | Metric::Cpu | Metric::Wall if value < 0.0995 => 5,
            _ => least,
        };
        format!("{value:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workloads_own_clock_counts_before_the_walls() {
        let mut figures = Figures {
            wall_seconds: 2.0,
            ..Figures::default()
        };
        assert_eq!(Metric::Time.of(&figures), Some(2.0));
        figures.seconds = Some(1.5);
        assert_eq!(Metric::Time.of(&figures), Some(1.5));
        assert_eq!(Metric::Wall.of(&figures), Some(2.0));
    }

    #[test]
    fn nothing_and_zero_have_no_ratio() {
        let figures = Figures::default();
        for metric in Metric::ALL {
            assert_eq!(metric.of(&figures), None, "{metric:?}");
        }
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(Metric::Time.show(0.0024), "0.00240");
        assert_eq!(Metric::Time.show(0.5), "0.500");
        assert_eq!(Metric::Peak.show(1536.0), "1.5");
        assert_eq!(Metric::Faults.show(1234.0), "1234");
    }
}
