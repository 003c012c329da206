//! What a budget limits: six figures of a run, and those of a site except the peak.

use larder_analysis::reading::family::Counters;
use larder_base::number::counted;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    Allocations,
    PeakBytes,
    TotalBytes,
    /// Live at exit.
    LeakedBlocks,
    LeakedBytes,
    /// Blocks under 32 bytes.
    Tiny,
}

impl Figure {
    pub const ALL: [Figure; 6] = [
        Figure::Allocations,
        Figure::PeakBytes,
        Figure::TotalBytes,
        Figure::LeakedBlocks,
        Figure::LeakedBytes,
        Figure::Tiny,
    ];

    /// The key in a budget.
    pub fn key(self) -> &'static str {
        match self {
            Figure::Allocations => "allocations",
            Figure::PeakBytes => "peak_bytes",
            Figure::TotalBytes => "total_bytes",
            Figure::LeakedBlocks => "leaked_blocks",
            Figure::LeakedBytes => "leaked_bytes",
            Figure::Tiny => "tiny",
        }
    }

    /// A value with its unit.
    pub fn describe(self, value: u64) -> String {
        match self {
            Figure::Allocations => counted(value, "allocation"),
            Figure::PeakBytes => format!("peak {}", counted(value, "byte")),
            Figure::TotalBytes => format!("total {}", counted(value, "byte")),
            Figure::LeakedBlocks => format!("leaked {}", counted(value, "block")),
            Figure::LeakedBytes => format!("leaked {}", counted(value, "byte")),
            Figure::Tiny => counted(value, "tiny block"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures([u64; Figure::ALL.len()]);

impl Figures {
    pub fn of(counters: &Counters) -> Self {
        Self([
            counters.allocations,
            counters.peak_bytes,
            counters.total_bytes,
            counters.live_blocks,
            counters.live_bytes,
            counters.tiny,
        ])
    }

    pub fn get(&self, figure: Figure) -> u64 {
        self.0[figure as usize]
    }

    pub fn set(&mut self, figure: Figure, value: u64) {
        self.0[figure as usize] = value;
    }

    /// The lower value of each figure.
    pub fn lower(mut self, other: &Figures) -> Self {
        for figure in Figure::ALL {
            self.set(figure, self.get(figure).min(other.get(figure)));
        }
        self
    }
}
