//! The command line of `larder import`, and the checked plan made of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub const EXAMPLES: &str = "\
Examples:
  larder import curl.log -o curl.trace && larder report curl.trace
      The memory log of a debug build of curl.
  larder import --format heaptrack heaptrack.app.4711.zst -o app.trace
      What heaptrack has recorded.
  larder import --format collapsed allocations.folded -o app.trace
      Collapsed stacks, one `outermost;…;innermost COUNT` a line.";

#[derive(Debug, Args)]
pub struct RawImport {
    /// The file to import; - for standard input
    input: PathBuf,
    /// The trace directory to make
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The format of the file
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "memdebug")]
    format: ImportFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// The memory log of a debug build of curl (CURL_MEMDEBUG)
    Memdebug,
    /// heaptrack's file: heaptrack.PROGRAM.PID.zst or .gz
    Heaptrack,
    /// Collapsed stacks with counts of allocations, of unknown sizes
    Collapsed,
}

#[derive(Debug)]
pub struct ImportPlan {
    pub input: PathBuf,
    pub output: PathBuf,
    pub format: ImportFormat,
}

impl RawImport {
    pub fn check(self) -> ImportPlan {
        ImportPlan {
            input: self.input,
            output: self.output,
            format: self.format,
        }
    }
}
