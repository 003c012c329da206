//! The command lines of `larder html` and `larder timeline`.

use std::path::PathBuf;

use clap::Args;
use larder_base::failure::Result;
use larder_base::format::{self, Format};

use crate::reading::lookup::RawSource;
use crate::reading::subject::{RawSubject, Subject};
use crate::view::View;

pub const HTML_EXAMPLES: &str = "\
Examples:
  larder html app.trace
      Writes app.trace.html: findings, sites, flame graph, timeline, threads, sizes; also copies,
      system calls and processor time if they were recorded. Open it in any browser, and explore.
  larder html app.trace -o report.html
  larder html app.trace --pid 4711 -o worker.html";

pub const TIMELINE_EXAMPLES: &str = "\
Examples:
  larder timeline app.trace -o app.svg
      Live bytes over time, by the sites that hold most.
  larder timeline app.trace > app.svg";

#[derive(Debug, Args)]
pub struct RawHtml {
    #[command(flatten)]
    subject: RawSubject,
    #[command(flatten)]
    source: RawSource,
    /// The page to write; an existing one is replaced [default: TRACE.html in this directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RawTimeline {
    #[command(flatten)]
    subject: RawSubject,
    /// The drawing to write; an existing one is replaced [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug)]
pub struct HtmlPlan {
    pub subject: Subject,
    pub output: PathBuf,
}

#[derive(Debug)]
pub struct TimelinePlan {
    pub subject: Subject,
    pub output: Option<PathBuf>,
}

impl HtmlPlan {
    pub fn new(subject: Subject, output: Option<PathBuf>) -> Self {
        let output = output.unwrap_or_else(|| {
            let name = subject.trace.file_name();
            let mut name = name.unwrap_or("trace".as_ref()).to_owned();
            name.push(".html");
            name.into()
        });
        Self { subject, output }
    }
}

impl RawHtml {
    pub fn check(self) -> Result<View> {
        format::expect(Format::Html, self.output.as_deref())?;
        let mut subject = self.subject.check()?;
        self.source.check(&mut subject.charging.lookup)?;
        Ok(View::Html(HtmlPlan::new(subject, self.output)))
    }
}

impl RawTimeline {
    pub fn check(self) -> Result<View> {
        format::expect(Format::Svg, self.output.as_deref())?;
        Ok(View::Timeline(TimelinePlan {
            subject: self.subject.check()?,
            output: self.output,
        }))
    }
}
