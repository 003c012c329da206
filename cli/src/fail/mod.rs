//! `larder run --fail-…`: makes allocations of any program fail, as if memory had run out.
//!
//! `args` has the options, `experiment` makes one run, `log` reads what the preloaded library reports,
//! `each` makes a run for every allocation, `site` finds source lines, `print` only prints. The library is
//! `fail/`; it shares its `layout` with the tool.

mod args;
mod each;
mod experiment;
#[allow(dead_code, reason = "each side uses its part")]
#[path = "../../../fail/src/layout.rs"]
mod layout;
mod log;
mod print;
mod site;

pub use args::{EXAMPLES, FailPlan, RawFail};

use std::io::{self, Write};

use larder_base::execute;
use larder_base::failure::Result;
use larder_base::format::Format;
use larder_base::number::counted;
use larder_base::output;

use args::Mode;
use experiment::{Range, Runner};
use log::ImageLog;

const BAD_RUNS: u8 = 1;
const INTERRUPTED: u8 = 130;

/// The command's exit code, or that of `--fail-each`.
pub fn fail(plan: &FailPlan) -> Result<u8> {
    let range = match plan.mode {
        Mode::After(count) => Range::From(count.saturating_add(1)),
        Mode::Nth(number) => Range::One(number),
        Mode::Each => return fail_each(plan),
    };
    let runner = Runner::new(plan)?;
    let (status, images) = runner.foreground(range)?;
    if images.is_empty() {
        return Err(runner.nothing_counted());
    }
    // A closed stderr is no error: the exit code is the command's.
    let _ = writeln!(io::stderr(), "larder: {}", summary(&images));
    Ok(execute::exit_code(status))
}

/// One line: which call failed first, and where.
fn summary(images: &[ImageLog]) -> String {
    let most = each::most_calls(images);
    let Some(failed) = each::first_failed(images) else {
        return format!("no call failed: there were only {}", counted(most, "call"));
    };
    let site = site::Sites::new().of(failed);
    let processes = images.iter().filter(|image| image.failed.is_some()).count();
    let others = match processes {
        0 | 1 => String::new(),
        _ => format!("; in {processes} processes calls failed, this is the first"),
    };
    format!(
        "call {}, {}, failed in {}; {} in all{others}",
        failed.number,
        print::call(failed),
        site.line,
        counted(most, "call"),
    )
}

fn fail_each(plan: &FailPlan) -> Result<u8> {
    let outcome = each::each(plan)?;
    output::write(None, plan.format.content(), |out| match plan.format {
        Format::Json => print::as_json(plan, &outcome, out),
        _ => print::text(plan, &outcome, out),
    })?;
    Ok(match outcome.interrupted {
        true => INTERRUPTED,
        false if outcome.bad.is_empty() => 0,
        false => BAD_RUNS,
    })
}
