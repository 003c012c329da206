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
    /// Bytes copied, filled and formatted (record --copies)
    CopiedBytes,
    /// Calls that copy, fill or format (record --copies)
    Copies,
    /// Time within system calls, in ns (record --syscalls)
    SystemTime,
    /// System calls (record --syscalls)
    SystemCalls,
    /// Processor time, in ns (record --cpu)
    #[value(name = "cpu")]
    ProcessorTime,
}

impl Measure {
    /// Those of allocations, which one reading gives together.
    pub const OF_ALLOCATIONS: [Measure; 6] = [
        Measure::Calls,
        Measure::Bytes,
        Measure::LiveBytes,
        Measure::LiveBlocks,
        Measure::Peak,
        Measure::Temporary,
    ];

    /// The option of `record` without which there is none of it.
    pub fn option(self) -> &'static str {
        match self {
            Measure::CopiedBytes | Measure::Copies => "--copies",
            Measure::SystemTime | Measure::SystemCalls => "--syscalls",
            Measure::ProcessorTime => "--cpu",
            _ => "",
        }
    }

    pub fn is_of_allocations(self) -> bool {
        Measure::OF_ALLOCATIONS.contains(&self)
    }

    pub fn of(self, row: &StackRow) -> u64 {
        match self {
            Measure::Calls => row.sums.calls,
            Measure::Bytes => row.sums.bytes,
            Measure::LiveBytes => row.sums.live_bytes,
            Measure::LiveBlocks => row.sums.live_blocks,
            Measure::Peak => row.sums.peak_bytes,
            Measure::Temporary => row.life.temporary,
            Measure::CopiedBytes
            | Measure::Copies
            | Measure::SystemTime
            | Measure::SystemCalls
            | Measure::ProcessorTime => row.weight,
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
            Measure::CopiedBytes => "Bytes copied and formatted",
            Measure::Copies => "Calls that copy and format",
            Measure::SystemTime => "Time within system calls",
            Measure::SystemCalls => "System calls",
            Measure::ProcessorTime => "Processor time",
        }
    }

    /// The unit, as a plural.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Calls | Measure::Copies | Measure::SystemCalls => "calls",
            Measure::Bytes | Measure::LiveBytes | Measure::Peak | Measure::CopiedBytes => "bytes",
            Measure::SystemTime | Measure::ProcessorTime => "ns",
            Measure::LiveBlocks | Measure::Temporary => "blocks",
        }
    }
}
