//! Is `larder-lab` there, and does it start? Only bench, replay, torture and the instruments need it.

use std::path::Path;
use std::process::{Command, Stdio};

use larder_base::target::reason;
use larder_base::{installed, printable};

use super::{Finding, Health};

const CHECK: &str = "larder-lab";
const OWN_VERSION: &str = concat!("larder ", env!("CARGO_PKG_VERSION"));

pub fn finding() -> Finding {
    let program = match installed::lab() {
        Ok(program) => program,
        Err(error) => {
            return Finding {
                health: Health::Warning,
                status: None,
                ..Finding::from_failure(CHECK, error.into())
            };
        }
    };
    let name = printable::name(&program);
    let (why, remedy) = match version(&program) {
        Ok(version) if version == OWN_VERSION => {
            return Finding::ok(CHECK, format!("{name}, starts"));
        }
        Ok(version) => (
            format!("is of another build: its version is {version:?}, not {OWN_VERSION:?}"),
            "install both of one build: `make install`",
        ),
        Err(why) => (
            format!("does not start: {why}"),
            "build Larder on this machine: `make build`",
        ),
    };
    Finding::new(CHECK, Health::Warning, format!("{name} {why}"), remedy)
}

/// The version that it prints, printable.
fn version(program: &Path) -> std::result::Result<String, String> {
    let mut command = Command::new(program);
    let ended = command.arg("--version").stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| reason(&error))?;
    let first = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        printable::escape(text.lines().next().unwrap_or_default()).into_owned()
    };
    match (ended.status.success(), first(&ended.stderr)) {
        (true, _) => Ok(first(&ended.stdout)),
        (false, complaint) if complaint.is_empty() => Err(ended.status.to_string()),
        (false, complaint) => Err(complaint),
    }
}
