//! The command line of `larder memdebug`, and the checked plan made of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use larder_memdebug::Style;

pub const EXAMPLES: &str = "\
Examples:
  CURL_MEMDEBUG=curl.log ./curl -o page http://localhost/ && larder memdebug curl.log
      What a debug build of curl allocated, and what it left behind.
  larder memdebug curl.log --sites --top 10
      The source lines that allocate most.
  larder memdebug curl.log --json | jq .counters

Exit codes: 0 fine; 1 the log shows a leak or another fault; 125 the tool failed.";

#[derive(Debug, Args)]
pub struct RawMemdebug {
    /// The log; - for standard input
    log: PathBuf,
    /// The counters and wording of curl up to 2017, up to 2025, or now
    #[arg(long, value_enum, value_name = "WHEN", default_value = "current")]
    style: RawStyle,
    /// Print only messages
    #[arg(short, long, conflicts_with_all = ["json", "sites"])]
    quiet: bool,
    /// Print only the first line about a refused allocation (CURL_MEMLIMIT)
    #[arg(long, conflicts_with_all = ["json", "sites", "quiet"])]
    limit: bool,
    /// Print a table by source line too
    #[arg(long)]
    sites: bool,
    /// What the source lines are sorted by
    #[arg(long, value_enum, value_name = "KEY", default_value = "calls")]
    sort: SiteKey,
    /// Source lines in the table, 0 for all [default: 20; with --json all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RawStyle {
    #[value(name = "2017")]
    Before2017,
    #[value(name = "2025")]
    Before2025,
    Current,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SiteKey {
    /// Allocations
    Calls,
    /// Bytes requested in all
    Bytes,
    /// Bytes live at the log's peak
    Peak,
    /// The largest block
    Largest,
}

/// The output to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    Messages,
    Limit,
    Counters,
    CountersAndSites,
    Json,
}

#[derive(Debug)]
pub struct MemdebugPlan {
    pub log: PathBuf,
    pub style: Style,
    pub show: Show,
    pub sort: SiteKey,
    pub top: usize,
}

const DEFAULT_TOP: usize = 20;

impl RawMemdebug {
    pub fn check(self) -> MemdebugPlan {
        let show = match (self.quiet, self.limit, self.json, self.sites) {
            (true, ..) => Show::Messages,
            (_, true, ..) => Show::Limit,
            (_, _, true, _) => Show::Json,
            (_, _, _, true) => Show::CountersAndSites,
            _ => Show::Counters,
        };
        MemdebugPlan {
            log: self.log,
            style: match self.style {
                RawStyle::Before2017 => Style::Before2017,
                RawStyle::Before2025 => Style::Before2025,
                RawStyle::Current => Style::Current,
            },
            show,
            sort: self.sort,
            top: match self.top {
                Some(0) => usize::MAX,
                Some(top) => top,
                None if self.json => usize::MAX,
                None => DEFAULT_TOP,
            },
        }
    }
}
