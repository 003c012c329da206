//! The command lines of `larder callers` and `larder callees`.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::Format;

use super::{CallsPlan, Direction};
use crate::error::AnalysisError;
use crate::reading::lookup::{RawDebuginfod, RawNames};
use crate::reading::resolve::Charging;
use crate::reading::subject::Subject;
use crate::view::{RawOutput, View};

pub const CALLERS_EXAMPLES: &str = "\
Examples:
  larder callers parse app.trace
  larder callers memcpy app.trace --depth 3
      Of the calls that record --copies recorded.
  larder callers 'operator new*' app.trace --json";

pub const CALLEES_EXAMPLES: &str = "\
Examples:
  larder callees parse app.trace
  larder callees 'Server::*' app.trace --depth 3";

const DEFAULT_TOP: usize = 20;

#[derive(Debug, Args)]
pub struct RawCalls {
    /// The function, demangled or not; `*` and `?` match
    function: String,
    /// The trace: the directory that `record` made, or one .ltrace file
    trace: PathBuf,
    /// Read only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Levels of calls to show
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    depth: u8,
    /// Functions to show under each, 0 for all [default: 20; in JSON all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    #[command(flatten)]
    names: RawNames,
    #[command(flatten)]
    debuginfod: RawDebuginfod,
    #[command(flatten)]
    output: RawOutput,
}

impl RawCalls {
    pub fn check(self, direction: Direction) -> Result<View> {
        if self.function.is_empty() {
            return Err(AnalysisError::usage("'': name a function").into());
        }
        let format = self.output.format(&[Format::Text, Format::Json])?;
        let mut lookup = self.names.check();
        self.debuginfod.check(&mut lookup)?;
        Ok(View::Calls(CallsPlan {
            direction,
            function: self.function,
            // Every function counts, so none is passed over.
            subject: Subject {
                trace: self.trace,
                pid: self.pid,
                wrappers: Vec::new(),
                charging: Charging {
                    lookup,
                    ..Charging::default()
                },
            },
            depth: usize::from(self.depth),
            top: match (self.top, format) {
                (Some(0), _) | (None, Format::Json) => usize::MAX,
                (Some(top), _) => top,
                (None, _) => DEFAULT_TOP,
            },
            format,
            output: self.output.output,
        }))
    }
}
