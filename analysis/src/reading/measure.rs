//! The measures of a stack that exports and pictures can show.

use clap::ValueEnum;

use super::stacks::StackRow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Calls that allocate
    Calls,
    /// Bytes requested in all
    Bytes,
    /// Bytes still live at the end
    LiveBytes,
    /// Blocks still live at the end
    LiveBlocks,
    /// Bytes live at the program's peak
    Peak,
    /// Blocks that ended before their thread allocated again
    Temporary,
}

impl Measure {
    pub const ALL: [Measure; 6] = [
        Measure::Calls,
        Measure::Bytes,
        Measure::LiveBytes,
        Measure::LiveBlocks,
        Measure::Peak,
        Measure::Temporary,
    ];

    pub fn of(self, row: &StackRow) -> u64 {
        match self {
            Measure::Calls => row.sums.calls,
            Measure::Bytes => row.sums.bytes,
            Measure::LiveBytes => row.sums.live_bytes,
            Measure::LiveBlocks => row.sums.live_blocks,
            Measure::Peak => row.sums.peak_bytes,
            Measure::Temporary => row.life.temporary,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Measure::Calls => "Calls that allocate",
            Measure::Bytes => "Bytes requested",
            Measure::LiveBytes => "Bytes still live at the end",
            Measure::LiveBlocks => "Blocks still live at the end",
            Measure::Peak => "Bytes live at the peak",
            Measure::Temporary => "Temporary blocks",
        }
    }

    /// The unit, as a plural.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Calls => "calls",
            Measure::Bytes | Measure::LiveBytes | Measure::Peak => "bytes",
            Measure::LiveBlocks | Measure::Temporary => "blocks",
        }
    }
}
