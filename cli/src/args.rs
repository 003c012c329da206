//! The command line: the words (clap's structures), and the checked plans made of them. A flag's
//! definition, help and check stand together; the rest of the tool uses only plans.

use std::ffi::OsString;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use larder_analysis::advise::{self, RawAdvise};
use larder_analysis::calls::{self, Direction, RawCalls};
use larder_analysis::diff::{self, RawDiff};
use larder_analysis::export::{self, RawExport};
use larder_analysis::flamegraph::{self, RawFlamegraph};
use larder_analysis::html::{self, RawHtml, RawTimeline};
use larder_analysis::import::{self, ImportPlan, RawImport};
use larder_analysis::memdebug::{self, MemdebugPlan, RawMemdebug};
use larder_analysis::report::{self, RawReport};
use larder_analysis::view::View;
use larder_base::command_line::UsageError;
use larder_base::failure::Result;
use larder_base::libraries::Library;
use larder_live::leaks::{self, LeaksPlan, RawLeaks};
use larder_live::profile::{self, ProfilePlan, RawProfile};
use larder_live::serve::{self, RawServe, ServePlan};
use larder_live::stats::{self, RawStats, StatsPlan};
use larder_live::top::{self, RawTop, TopPlan};
use larder_live::view::{self, RawView, ViewPlan};

use crate::check::args::{self as check, CheckPlan, RawCheck};
use crate::doctor::DoctorPlan;
use crate::fail::{self, FailPlan, RawFail};
use crate::help;
use crate::history::args::{self as history, HistoryPlan, RawHistory};
use crate::lab;
use crate::record::{self, LookPlan, RecordPlan};
use crate::run::RunPlan;

const EXAMPLES: &str = "\
Examples:
  larder run -- python3 app.py
      Run a program on Larder's allocator.
  larder record -o app.trace -- ./app --input data.bin
      Record every allocation of a run.
  larder report app.trace
      The counters, and the source lines that allocate most.
  larder advise app.trace
      Which of them are needless, and how to cure each.
  larder diff old.trace new.trace
      Which sites changed from one build to the next.
  larder check -- ./app --input data.bin
      Is the run within the budget in larder.toml?
  larder report app.trace --sort bytes --top 5
  larder report app.trace --json | jq .counters
  larder doctor ./app
      What is missing, or in the way, on this machine and for this program.
  larder bench --quick
      Larder against every other allocator, within five minutes.
  larder torture --seconds 60
      A torture test of the allocator.

Exit codes: the command's own for run and record; 1 if bench, check, leaks, memdebug, replay,
torture, profile --growing or run --fail-each found a problem; 125 the tool failed; 126 the command
cannot be executed or reached (static, setuid, other architecture); 127 the command was not found.";

/// A memory toolkit for native Linux programs.
#[derive(Debug, Parser)]
#[command(name = "larder", version, after_help = EXAMPLES, subcommand_required = true)]
#[command(arg_required_else_help = false, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    /// Run a command on Larder's allocator
    #[command(after_help = fail::EXAMPLES)]
    Run(RawRun),
    /// Record each allocation of a command, or of a process that runs already
    #[command(after_help = record::EXAMPLES)]
    Record(RecordPlan),
    /// Convert another tool's recording into a trace
    #[command(after_help = import::EXAMPLES)]
    Import(RawImport),
    /// Report what is missing or in the way of running and recording
    #[command(after_help = "Examples:\n  larder doctor\n  larder doctor ./app")]
    Doctor(DoctorPlan),
    /// Count a trace's allocations and rank the source lines that make them
    #[command(after_help = report::EXAMPLES)]
    Report(RawReport),
    /// Explore a trace in a terminal: sites, stacks, callers, callees, findings
    #[command(after_help = view::EXAMPLES)]
    View(RawView),
    /// Report which allocations are needless, what each costs, and the cure
    #[command(after_help = advise::EXAMPLES)]
    Advise(RawAdvise),
    /// Show a function's callers, each with its share of processor time, calls and bytes
    #[command(after_help = calls::CALLERS_EXAMPLES)]
    Callers(RawCalls),
    /// Show a function's callees, in the same measures
    #[command(after_help = calls::CALLEES_EXAMPLES)]
    Callees(RawCalls),
    /// Show what differs between two traces, or how a program's sites grow with its input
    #[command(after_help = diff::EXAMPLES)]
    Diff(RawDiff),
    /// Draw a trace's stacks as a flame graph, or its difference from another trace
    #[command(after_help = flamegraph::EXAMPLES)]
    Flamegraph(RawFlamegraph),
    /// Write a trace as one page for any browser: counters, sites, flame graph, timeline
    #[command(after_help = html::HTML_EXAMPLES)]
    Html(RawHtml),
    /// Draw live bytes over time, by the sites that hold most
    #[command(after_help = html::TIMELINE_EXAMPLES)]
    Timeline(RawTimeline),
    /// Write a trace in the format of another tool
    #[command(after_help = export::EXAMPLES)]
    Export(RawExport),
    /// Analyse the memory log of a debug build of curl
    #[command(after_help = memdebug::EXAMPLES)]
    Memdebug(RawMemdebug),
    /// Watch the heap of a running process: what its source lines hold, and what grows
    #[command(after_help = top::EXAMPLES)]
    Top(RawTop),
    /// Rank source lines by the memory that they hold, from the always-on heap profile
    #[command(after_help = profile::EXAMPLES)]
    Profile(RawProfile),
    /// Find lost memory, which no pointer reaches any more, and the lines that allocated it
    #[command(after_help = leaks::EXAMPLES)]
    Leaks(RawLeaks),
    /// Print what the heap of a running process holds, by kind and size class
    #[command(after_help = stats::EXAMPLES)]
    Stats(RawStats),
    /// Serve heap profiles and statistics of running processes by HTTP
    #[command(after_help = serve::EXAMPLES)]
    Serve(RawServe),
    /// Check whether a run is within its budget; if not, report what grew, and where
    #[command(after_help = check::EXAMPLES)]
    Check(RawCheck),
    /// Show the runs that check stored, and the commits where a figure moved
    #[command(after_help = history::EXAMPLES)]
    History(RawHistory),
    /// Time this process's malloc, for advise
    #[command(name = advise::HIDDEN_COMMAND, hide = true)]
    MeasureMalloc,
    /// Find the lost allocations of a process that waits at its end, for record --leaks
    #[command(name = record::HIDDEN_LOOK, hide = true)]
    LookAtEnd(LookPlan),
}

#[derive(Debug, Args)]
struct RawRun {
    #[command(flatten)]
    fail: RawFail,
    /// Put sampled objects before a guard page: report overflows and uses after free
    #[arg(long, conflicts_with_all = ["fail_after", "fail_nth", "fail_each", "no_larder"])]
    guard: bool,
    /// Check each object: stop overflows and writes after free, too, for more time and memory
    #[arg(long, conflicts_with_all = ["guard", "fail_after", "fail_nth", "fail_each", "no_larder"])]
    hardened: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What the user asked for, checked.
#[derive(Debug)]
pub enum Plan {
    Run(RunPlan),
    Fail(Box<FailPlan>),
    Record(RecordPlan),
    View(View),
    MeasureMalloc,
    LookAtEnd(LookPlan),
    Doctor(DoctorPlan),
    /// For `larder-lab`: all words, the tool's own name first.
    Lab(Vec<OsString>),
    Memdebug(MemdebugPlan),
    Stats(StatsPlan),
    Top(TopPlan),
    Explore(Box<ViewPlan>),
    Serve(Box<ServePlan>),
    Leaks(LeaksPlan),
    Check(Box<CheckPlan>),
    History(HistoryPlan),
    Import(ImportPlan),
    Profile(Box<ProfilePlan>),
    /// Help or the version, ready to print.
    Show(String),
}

/// Parses and checks the words after the tool's own name.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Plan> {
    let words: Vec<OsString> = words.into_iter().collect();
    if lab::is_for(&words) {
        return Ok(Plan::Lab(words));
    }
    let parsed = parse_raw(&words).and_then(|command| {
        let RawCommand::Record(plan) = &command else {
            return Ok(command);
        };
        let Some(words) = plan.process_last(&words) else {
            return Ok(command);
        };
        match parse_raw(&words)? {
            RawCommand::Record(again) if again.process().is_some() => Ok(RawCommand::Record(again)),
            _ => Ok(command),
        }
    });
    match parsed {
        Ok(command) => command.check(),
        Err(error) if error.use_stderr() => Err(UsageError::new(&error, &cli(), &words).into()),
        Err(help) => Ok(Plan::Show(help.render().to_string())),
    }
}

fn parse_raw(words: &[OsString]) -> std::result::Result<RawCommand, clap::Error> {
    let matches = cli().try_get_matches_from(words)?;
    Ok(Cli::from_arg_matches(&matches)?.command)
}

/// The definitions, without those of `larder-lab`.
pub fn command() -> clap::Command {
    Cli::command()
}

/// With the commands of `larder-lab`, and in groups.
fn cli() -> clap::Command {
    let all = command().subcommands(lab::commands());
    let template = help::template(&all);
    all.help_template(template)
}

impl RawCommand {
    fn check(self) -> Result<Plan> {
        match self {
            RawCommand::Run(raw) => Ok(match raw.fail.check(&raw.command)? {
                Some(plan) => Plan::Fail(Box::new(plan)),
                None => Plan::Run(RunPlan {
                    allocator: match raw.hardened {
                        true => Library::Hardened,
                        false => Library::Allocator,
                    },
                    guard: raw.guard,
                    command: raw.command,
                }),
            }),
            RawCommand::Record(plan) => Ok(Plan::Record(plan.check()?)),
            RawCommand::Report(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::Diff(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::Callers(raw) => Ok(Plan::View(raw.check(Direction::Callers)?)),
            RawCommand::Callees(raw) => Ok(Plan::View(raw.check(Direction::Callees)?)),
            RawCommand::Advise(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::MeasureMalloc => Ok(Plan::MeasureMalloc),
            RawCommand::LookAtEnd(plan) => Ok(Plan::LookAtEnd(plan)),
            RawCommand::Html(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::Timeline(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::Export(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::Flamegraph(raw) => Ok(Plan::View(raw.check()?)),
            RawCommand::Doctor(plan) => Ok(Plan::Doctor(plan)),
            RawCommand::Check(raw) => Ok(Plan::Check(Box::new(raw.check()?))),
            RawCommand::History(raw) => Ok(Plan::History(raw.check())),
            RawCommand::Memdebug(raw) => Ok(Plan::Memdebug(raw.check())),
            RawCommand::Stats(raw) => Ok(Plan::Stats(raw.check()?)),
            RawCommand::Top(raw) => Ok(Plan::Top(raw.check()?)),
            RawCommand::View(raw) => Ok(Plan::Explore(Box::new(raw.check()?))),
            RawCommand::Serve(raw) => Ok(Plan::Serve(Box::new(raw.check()?))),
            RawCommand::Leaks(raw) => Ok(Plan::Leaks(raw.check()?)),
            RawCommand::Import(raw) => Ok(Plan::Import(raw.check())),
            RawCommand::Profile(raw) => Ok(Plan::Profile(Box::new(raw.check()?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_base::preload::Allocator;

    use super::*;

    fn plan(words: &[&str]) -> Result<Plan> {
        parse(
            std::iter::once("larder")
                .chain(words.iter().copied())
                .map(OsString::from),
        )
    }

    #[test]
    fn the_command_line_is_well_formed() {
        cli().debug_assert();
    }

    #[test]
    fn words_after_the_command_belong_to_it() {
        for words in [
            &["run", "ls", "--sort", "-l"][..],
            &["run", "--", "ls", "--sort", "-l"],
        ] {
            let Plan::Run(plan) = plan(words).unwrap() else {
                panic!("not run")
            };
            assert_eq!(plan.command, ["ls", "--sort", "-l"]);
        }
    }

    #[test]
    fn options_of_record_may_follow_a_process() {
        let record = |words: &[&str]| match plan(words).unwrap() {
            Plan::Record(plan) => plan,
            other => panic!("{other:?}"),
        };
        for words in [
            &["record", "-o", "x", "4711", "--seconds", "5"][..],
            &["record", "4711", "-o", "x", "--seconds=5"],
        ] {
            let plan = record(words);
            assert_eq!(plan.process(), Some(4711), "{words:?}");
            assert_eq!(plan.output, Some("x".into()));
            assert_eq!(plan.seconds, Some(5));
        }
        for words in [
            &["record", "./4711", "-o", "x"][..],
            &["record", "--", "4711", "-o", "x"],
            &["record", "4711", "-o", "x", "ls"],
            &["record", "ls", "4711", "-o"],
        ] {
            assert_eq!(record(words).process(), None, "{words:?}");
            assert_eq!(record(words).output, None);
        }
        let unknown = plan(&["record", "4711", "--no-such"]).unwrap_err().message;
        assert!(unknown.contains("'--no-such'"), "{unknown}");
    }

    #[test]
    fn the_allocator_below_the_recorder_is_larders_by_default() {
        let allocator = |words: &[&str]| match plan(words).unwrap() {
            Plan::Record(plan) => plan.allocator(),
            other => panic!("{other:?}"),
        };
        assert_eq!(allocator(&["record", "ls"]), Allocator::Larder);
        assert_eq!(allocator(&["record", "--no-larder", "ls"]), Allocator::Own);
        assert_eq!(
            allocator(&["record", "--malloc", "/m.so", "ls"]),
            Allocator::Other("/m.so".into())
        );
    }

    #[test]
    fn wrong_usage_is_one_line() {
        for words in [
            &[][..],
            &["run"],
            &["fly"],
            &["report"],
            &["report", "t", "--sort", "size"],
            &["report", "t", "--wrapper", "f"],
            &["report", "t", "--top", "-1"],
            &["callers", "f", "t", "--skip", "g"],
            &["stats", "1", "-o", "app.svg"],
            &["record", "--no-larder", "--malloc", "m", "ls"],
            &["record", "--seconds", "1", "ls"],
            &["record", "--copies", "4711"],
        ] {
            let failure = plan(words).unwrap_err();
            assert_eq!(failure.message.lines().count(), 1, "{words:?}: {failure}");
            assert_eq!(failure.status, larder_base::failure::ExitStatus::Failed);
        }
    }

    #[test]
    fn wrong_usage_names_the_help_of_its_command() {
        for command in command().get_subcommands() {
            let name = command.get_name();
            let failure = plan(&[name, "--no-such"]).unwrap_err().message;
            let help = format!(": see `larder {name} --help`");
            assert!(failure.ends_with(&help), "{failure}");
        }
    }

    #[test]
    fn near_misses_are_suggested() {
        for (words, near) in [
            (&["reprot"][..], "'report'"),
            (&["bnech"], "'bench'"),
            (&["report", "t", "--srot", "bytes"], "'--sort'"),
            (&["report", "t", "--sort", "byte"], "'bytes'"),
            (&["record", "--outputt", "x", "--", "./n"], "'--output'"),
        ] {
            let failure = plan(words).unwrap_err().message;
            assert!(failure.contains(near), "{failure}");
        }
    }

    #[test]
    fn help_shows_examples() {
        let Plan::Show(help) = plan(&["--help"]).unwrap() else {
            panic!("no help")
        };
        assert!(help.contains("larder record -o app.trace"), "{help}");
    }

    #[test]
    fn help_shows_every_command_once_in_its_group() {
        let cli = cli();
        let shown = cli
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<_> = help::GROUPS.iter().flat_map(|group| group.1).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert!(grouped.into_iter().eq(&shown), "{shown:?}");
    }

    #[test]
    fn commands_of_the_lab_are_left_to_it() {
        for words in [
            &["bench", "--no-such"][..],
            &["grid"],
            &["lab"],
            &["help", "replay"],
        ] {
            assert!(matches!(plan(words), Ok(Plan::Lab(_))), "{words:?}");
        }
    }
}
