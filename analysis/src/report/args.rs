//! The command line of `larder report`.

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::Format;

use super::ReportPlan;
use crate::export::ExportPlan;
use crate::flamegraph::FlamegraphPlan;
use crate::html::HtmlPlan;
use crate::of::{Of, RawOf};
use crate::reading::lookup::RawSource;
use crate::reading::measure::Measure;
use crate::reading::sites::SortKey;
use crate::reading::subject::RawSubject;
use crate::view::{self, RawOutput, View};

pub const EXAMPLES: &str = "\
Examples:
  larder report app.trace --sort peak --top 20
  larder report app.trace --json > app.json
  larder report app.trace -o app.html
      A page; app.svg is a flame graph, app.txt the report, app.json its JSON; what export makes
      ends in .pb.gz, .folded, .speedscope.json, .dhat, .parquet or .log.
  larder report app.trace --syscalls --top 20
      The system calls, if `larder record --syscalls` recorded them.
  larder report app.trace --copies
      What is copied and formatted, if `larder record --copies` recorded it.
  larder report app.trace --cpu
      The functions that took the processor's time, if `larder record --cpu` sampled it.
  larder report app.trace --wrapper 'my_alloc=malloc' --wrapper 'my_free=free'";

const MADE: [Format; 10] = [
    Format::Text,
    Format::Json,
    Format::Html,
    Format::Svg,
    Format::Pprof,
    Format::Collapsed,
    Format::Speedscope,
    Format::Dhat,
    Format::Parquet,
    Format::Memdebug,
];

/// What there is of copies, system calls and processor time.
const OF_CALLS: [Format; 6] = [
    Format::Text,
    Format::Json,
    Format::Svg,
    Format::Pprof,
    Format::Collapsed,
    Format::Speedscope,
];

#[derive(Debug, Args)]
pub struct RawReport {
    #[command(flatten)]
    subject: RawSubject,
    /// Show only this ranking; a flame graph or an export shows this measure [default: calls]
    #[arg(long, value_enum, value_name = "KEY", conflicts_with = "RawOf")]
    sort: Option<SortKey>,
    /// Sites in a ranking, 0 for all [default: 10; in JSON all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    #[command(flatten)]
    of: RawOf,
    #[command(flatten)]
    source: RawSource,
    #[command(flatten)]
    output: RawOutput,
}

impl RawReport {
    pub fn check(self) -> Result<View> {
        let of = self.of.check();
        let sort = self.sort.map(|key| of.key(Some(key))).transpose()?;
        let made = match of {
            Of::Allocations => &MADE[..],
            _ => &OF_CALLS,
        };
        let format = self.output.format(made)?;
        let mut subject = self.subject.check()?;
        if let Format::Text | Format::Json | Format::Html = format {
            self.source.check(&mut subject.charging.lookup)?;
        } else {
            view::refuse(&self.source.given())?;
        }
        let output = self.output.output;
        if let Format::Text | Format::Json = format {
            return Ok(View::Report(ReportPlan {
                subject,
                sort,
                top: self.top,
                of,
                format,
                output,
            }));
        }
        view::refuse(&[("--top", self.top.is_some())])?;
        let measure = match format {
            Format::Svg | Format::Pprof | Format::Collapsed | Format::Speedscope => match of {
                Of::Allocations => sort.map(|key| of.measure(key)).transpose()?,
                Of::Copies => Some(Measure::CopiedBytes),
                Of::SystemCalls => Some(Measure::SystemTime),
                Of::ProcessorTime => Some(Measure::ProcessorTime),
            },
            _ => {
                view::refuse(&[("--sort", sort.is_some())])?;
                None
            }
        };
        Ok(match format {
            Format::Html => View::Html(HtmlPlan::new(subject, output)),
            Format::Svg => View::Flamegraph(FlamegraphPlan::new(subject, measure, output)),
            _ => View::Export(ExportPlan::new(subject, format, measure, output)?),
        })
    }
}
