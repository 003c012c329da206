//! The findings of `larder advise`, computed by a thread of its own when they are first asked for: that reads the trace
//! twice. The tool does not wait for that thread when it ends.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use indicatif::ProgressBar;
use larder_analysis::advise::{self, FindingText, Watch};
use larder_analysis::reading::Analysis;
use larder_analysis::reading::naming;
use larder_analysis::reading::subject::Subject;
use larder_base::failure::Result;

use super::model::Text;
use crate::terminal::page;

#[derive(Default)]
pub enum Findings {
    #[default]
    NotAsked,
    Running {
        bar: ProgressBar,
        answer: Receiver<Result<Vec<Text>>>,
        /// What the page shows.
        progress: String,
    },
    Found(Vec<Text>),
    Failed(String),
}

impl Findings {
    /// Starts the thread, the first time.
    pub fn ask(&mut self, subject: &Subject) {
        if !matches!(self, Self::NotAsked) {
            return;
        }
        let (answered, answer) = channel();
        let (bar, subject) = (ProgressBar::hidden(), subject.clone());
        let shown = bar.clone();
        let find = move || {
            // The screen may have ended.
            let _ = answered.send(find(&subject, &shown));
        };
        let name = "larder-advise".into();
        *self = match std::thread::Builder::new().name(name).spawn(find) {
            Ok(_) => Self::Running {
                bar,
                answer,
                progress: String::new(),
            },
            Err(error) => Self::Failed(format!("no thread: {error}: raise ulimit -u")),
        };
    }

    /// Whether there is something new to show.
    pub fn look(&mut self) -> bool {
        let Self::Running {
            bar,
            answer,
            progress,
        } = self
        else {
            return false;
        };
        let done = match answer.try_recv() {
            Err(TryRecvError::Empty) => {
                let (part, whole) = (bar.position(), bar.length().unwrap_or(0));
                let percent = larder_base::number::percent(part, whole);
                let now = format!("{} the trace: {percent:.0} %", bar.message());
                let is_new = now != *progress;
                *progress = now;
                return is_new;
            }
            Err(TryRecvError::Disconnected) => {
                Self::Failed("the thread that computes them has ended".to_owned())
            }
            Ok(Err(failure)) => Self::Failed(failure.message),
            Ok(Ok(found)) => Self::Found(found),
        };
        *self = done;
        true
    }

    pub fn found(&self) -> &[Text] {
        match self {
            Self::Found(found) => found,
            _ => &[],
        }
    }

    /// What stands in place of the list.
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::NotAsked => Some(""),
            Self::Running { progress, .. } => Some(progress),
            Self::Failed(why) => Some(why),
            Self::Found(found) if found.is_empty() => Some("Nothing needless was found."),
            Self::Found(_) => None,
        }
    }
}

fn find(subject: &Subject, bar: &ProgressBar) -> Result<Vec<Text>> {
    let mut watch = Watch::default();
    let mut analysis = Analysis::read_silently(subject, &mut watch, bar)?;
    let found = advise::findings(subject, watch, &mut analysis);
    let suppressed = analysis.suppressed.into_iter();
    let suppressed = suppressed.map(|title| Text {
        title,
        lines: Vec::new(),
    });
    Ok(found.into_iter().map(text).chain(suppressed).collect())
}

fn text(finding: FindingText) -> Text {
    let mut lines = finding.source;
    lines.extend(finding.lines);
    lines.extend(page::lines(|out| naming::print_stack(&finding.site, out)));
    Text {
        title: finding.title,
        lines,
    }
}
