//! What is typed after `larder serve`, and the checked plan that comes of it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use regex::Regex;

use super::place::Place;
use super::targets::Which;
use crate::failure::{Failure, Result};
use crate::printable;
use crate::target::reason;

pub const EXAMPLES: &str = "\
Examples:
  larder serve $(pgrep -o redis-server) --listen unix:/run/user/1000/heap
  curl -s --unix-socket /run/user/1000/heap http://localhost/
      What is served: each process's heap profile, and /metrics of all.
  larder serve --all --listen 127.0.0.1:6070 --token-file token
  pprof -top \"http://127.0.0.1:6070/4711/debug/pprof/heap?token=$(cat token)\"
      Every process of this user that runs on Larder, as they come and go.
  curl -s \"http://127.0.0.1:6070/4711/debug/pprof/allocs?seconds=10&token=$(cat token)\"
      What the process allocates within ten seconds.

The processes run on, and are not stopped or asked. Their memory is read: you have to be their user
and, where kernel.yama.ptrace_scope is not 0, root.

Exit codes: 0 ended by SIGINT, SIGTERM or SIGHUP; 125 the tool failed, or a process cannot be looked into.";

/// The variable of the library's own endpoint.
const TOKEN_VARIABLE: &str = "LARDER_TOKEN";

#[derive(Debug, Args)]
pub struct RawServe {
    /// The processes
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    #[arg(required_unless_present_any = ["all", "name"], conflicts_with_all = ["all", "name"])]
    processes: Vec<u32>,
    /// Every process of this user that runs on Larder; they are looked for at each request
    #[arg(long)]
    all: bool,
    /// Those of them whose name (/proc/PID/comm) this matches
    #[arg(long, value_name = "REGEX")]
    name: Option<Regex>,
    /// Where: unix:PATH, for this user alone, or 127.0.0.1:PORT or [::1]:PORT, with a token
    #[arg(long, value_name = "PLACE")]
    listen: Place,
    /// The file with the token of a port [default: the variable LARDER_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug)]
pub struct ServePlan {
    pub which: Which,
    pub listen: Place,
    /// Always for a port.
    pub token: Option<String>,
}

impl RawServe {
    pub fn check(self) -> Result<ServePlan> {
        let token = match &self.listen {
            Place::Path(_) => None,
            Place::Port(_) => Some(token(self.token_file.as_deref())?),
        };
        let which = if self.processes.is_empty() {
            Which::Matching(self.name)
        } else {
            Which::These(self.processes)
        };
        Ok(ServePlan {
            which,
            listen: self.listen,
            token,
        })
    }
}

fn token(file: Option<&Path>) -> Result<String> {
    let (origin, text) = match file {
        Some(path) => {
            let name = printable::name(path);
            let text = read_head(path).map_err(|error| {
                let reason = reason(&error);
                Failure::failed(format!("{name}: {reason}: name a file with a token"))
            })?;
            (name, text.trim_ascii_end().to_vec())
        }
        None => {
            use std::os::unix::ffi::OsStringExt;
            let value = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
            (TOKEN_VARIABLE.to_owned(), value.into_vec())
        }
    };
    let fits = (16..=255).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
    let text = String::from_utf8(text).ok().filter(|_| fits);
    text.ok_or_else(|| {
        Failure::failed(format!(
            "{origin}: a port takes a token of 16 to 255 characters, without spaces: make one by \
             `openssl rand -hex 16`, and name it with --token-file or {TOKEN_VARIABLE}"
        ))
    })
}

/// Enough to tell that it is too long.
fn read_head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, fits) in [
            ("0123456789abcdef\n", true),
            ("0123456789abcde\n", false),
            ("0123456789 abcdef", false),
            ("0123456789\u{e4}abcdef", false),
            ("0123456789abcdef\u{1b}", false),
            ("", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(token(Some(&path)).is_ok(), fits, "{text:?}");
        }
        std::fs::write(&path, "x".repeat(256)).unwrap();
        assert!(token(Some(&path)).is_err());
        assert!(token(Some(Path::new("/no/such"))).is_err());
    }
}
