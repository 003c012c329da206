//! The command line of `larder serve`, and its check.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use larder_base::error::system;
use larder_base::failure::{self, Fatal};
use larder_base::printable;
use regex::Regex;
use ureq::http::{HeaderName, HeaderValue, Uri};

use super::place::Place;
use super::push::{PushPlan, Shape};
use super::targets::Which;
use crate::error::{LiveError, Result};

pub const EXAMPLES: &str = "\
Examples:
  larder serve $(pgrep -o redis-server) --listen unix:/run/user/1000/heap
  curl -s --unix-socket /run/user/1000/heap http://localhost/
      A list of what is served: each process's heap profile, and /metrics of all.
  larder serve --all --listen 127.0.0.1:6070 --token-file token
  pprof -top \"http://x:$(cat token)@127.0.0.1:6070/4711/debug/pprof/heap\"
      Every process of this user that runs on Larder, as processes start and end.
  curl -s \"http://127.0.0.1:6070/4711/debug/pprof/allocs?seconds=10&token=$(cat token)\"
      What the process allocates in ten seconds.
  larder serve --all --push https://pyroscope.example.com/ingest --header-file secret
      Send their profiles to Pyroscope every 15 seconds; Parca's path is /api/profiles/writeraw.

The processes keep running; they are not stopped. Their memory is read: you have to be their user
and, where kernel.yama.ptrace_scope is not 0, root.

Exit codes: 0 ended by SIGINT, SIGTERM or SIGHUP; 125 the tool failed, or a process cannot be read.";

/// The variable of the library's own endpoint.
pub const TOKEN_VARIABLE: &str = "LARDER_TOKEN";

#[derive(Debug, Args)]
pub struct RawServe {
    /// The processes
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    #[arg(required_unless_present_any = ["all", "name"], conflicts_with_all = ["all", "name"])]
    processes: Vec<u32>,
    /// Serve every process of this user that runs on Larder; each request searches again
    #[arg(long)]
    all: bool,
    /// The same, but only processes whose name (/proc/PID/comm) matches
    #[arg(long, value_name = "REGEX")]
    name: Option<Regex>,
    /// The address: unix:PATH, for this user alone, or 127.0.0.1:PORT or [::1]:PORT, with a token
    #[arg(long, value_name = "PLACE", required_unless_present = "push")]
    listen: Option<Place>,
    /// The file with the token of a port [default: the variable LARDER_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the profiles to a receiver: Pyroscope's …/ingest, or Parca's …/profiles/writeraw
    #[arg(long, value_name = "URL")]
    push: Option<String>,
    /// Seconds between two pushes
    #[arg(long, value_name = "SECONDS", default_value = "15", requires = "push")]
    #[arg(value_parser = interval, allow_negative_numbers = true)]
    push_interval: Duration,
    /// Add a label to the pushed profiles, beside service_name, comm, pid and host; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "push", value_parser = label)]
    label: Vec<(String, String)>,
    /// A file with HTTP header fields to push with, one a line: Authorization: Bearer …
    #[arg(long, value_name = "FILE", requires = "push")]
    header_file: Option<PathBuf>,
}

#[derive(Debug)]
pub struct ServePlan {
    pub which: Which,
    /// `None`: it only pushes.
    pub listen: Option<Place>,
    /// `Some` if `listen` is a port.
    pub token: Option<String>,
    pub push: Option<PushPlan>,
}

impl RawServe {
    pub fn check(self) -> failure::Result<ServePlan> {
        let token = match &self.listen {
            None | Some(Place::Path(_)) => None,
            Some(Place::Port(_)) => Some(token(self.token_file.as_deref())?),
        };
        let push = match self.push {
            None => None,
            Some(url) => {
                let (url, shape) = receiver(&url)?;
                Some(PushPlan {
                    url,
                    shape,
                    interval: self.push_interval,
                    labels: self.label,
                    headers: self.header_file.as_deref().map_or(Ok(Vec::new()), fields)?,
                })
            }
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
            push,
        })
    }
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let value = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let value = value.filter(|value| (0.1..=86400.0).contains(value));
    value
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give 0.1 to 86400 seconds".to_owned())
}

/// Accepts what every receiver takes as a label.
fn label(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    let fits = name.starts_with(begins)
        && name.chars().all(|c| begins(c) || c.is_ascii_digit())
        && !name.starts_with("__");
    if !fits {
        return Err(
            "a name has letters, digits and _, and begins with no digit and no __".to_owned(),
        );
    }
    if value.is_empty() || value.chars().any(|c| c.is_control() || ",{}".contains(c)) {
        return Err("a value has no comma, no brackets, and is not empty".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Why nothing can be pushed to a URL, which it holds unless that has a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ReceiverError {
    #[error("{}: give http://HOST:PORT/PATH or https://…", printable::escape(.0))]
    NotAUrl(String),
    #[error(
        "--push: has a password in it: put it into a file, as Authorization: Basic …, and name \
         that with --header-file"
    )]
    Password,
    #[error(
        "{}: has a query: leave it out, and name labels with --label",
        printable::escape(.0)
    )]
    Query(String),
    #[error(
        "{}: does not say what receives: end it in /ingest for Pyroscope, or in \
         /api/profiles/writeraw for Parca",
        printable::escape(.0)
    )]
    UnknownPath(String),
}

impl Fatal for ReceiverError {}

fn receiver(text: &str) -> std::result::Result<(Uri, Shape), ReceiverError> {
    let uri: Option<Uri> = text.parse().ok();
    let scheme = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    let uri = uri.filter(|uri| scheme(uri) && uri.host().is_some());
    let uri = uri.ok_or_else(|| ReceiverError::NotAUrl(text.to_owned()))?;
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(ReceiverError::Password);
    }
    if uri.query().is_some() {
        return Err(ReceiverError::Query(text.to_owned()));
    }
    let shape = Shape::of(uri.path()).ok_or_else(|| ReceiverError::UnknownPath(text.to_owned()))?;
    Ok((uri, shape))
}

fn fields(path: &Path) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let text = read_head(path).map_err(system(
        printable::name(path),
        "name a file with NAME: VALUE in each line",
    ))?;
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let lines = lines.zip(1..).filter(|(line, _)| !line.is_empty());
    lines
        .map(|(line, number)| {
            // What is in it may be a secret.
            field(line).ok_or_else(|| LiveError::HeaderLine {
                path: path.to_owned(),
                line: number,
            })
        })
        .collect()
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
    Some((
        HeaderName::from_bytes(name).ok()?,
        HeaderValue::from_bytes(value.trim_ascii()).ok()?,
    ))
}

fn token(file: Option<&Path>) -> Result<String> {
    let (origin, text) = match file {
        Some(path) => {
            let name = printable::name(path);
            let text = read_head(path).map_err(system(&name, "name a file with a token"))?;
            (name, text.trim_ascii_end().to_vec())
        }
        None => {
            use std::os::unix::ffi::OsStringExt;
            let value = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
            (TOKEN_VARIABLE.to_owned(), value.into_vec())
        }
    };
    let text = String::from_utf8(text).ok().filter(|text| is_token(text));
    text.ok_or(LiveError::Token { origin })
}

/// Long enough, and one word.
pub fn is_token(text: &str) -> bool {
    (16..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// More than the longest token: enough to refuse a file that is too long.
fn read_head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_known_by_its_path() {
        for (good, shape) in [
            ("http://127.0.0.1:4040/ingest", Shape::Pyroscope),
            ("https://h/tenant/ingest", Shape::Pyroscope),
            ("http://[::1]:7070/api/profiles/writeraw", Shape::Parca),
        ] {
            assert_eq!(receiver(good).unwrap().1, shape, "{good}");
        }
        let refused = |text: &str| receiver(text).unwrap_err();
        for bad in ["", "h:4040/ingest", "ftp://h/ingest", "http:///ingest"] {
            assert_eq!(refused(bad), ReceiverError::NotAUrl(bad.to_owned()));
        }
        let query = "http://h/ingest?name=x";
        assert_eq!(refused(query), ReceiverError::Query(query.to_owned()));
        let nowhere = "http://h:4040";
        let expected = ReceiverError::UnknownPath(nowhere.to_owned());
        assert_eq!(refused(nowhere), expected);
        let escaped = refused("http://h/\u{1b}[2J/ingest").to_string();
        assert!(!escaped.chars().any(char::is_control), "{escaped}");
        let secret = refused("http://me:secret@h/ingest");
        assert_eq!(secret, ReceiverError::Password);
    }

    #[test]
    fn labels_and_fields_are_checked() {
        let read = label("region=eu west").unwrap();
        assert_eq!(read, ("region".to_owned(), "eu west".to_owned()));
        for bad in [
            "",
            "x",
            "=1",
            "1a=x",
            "a-b=x",
            "__name__=x",
            "a=",
            "a=x,y",
            "a={",
            "a=\n",
        ] {
            assert!(label(bad).is_err(), "{bad:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fields");
        std::fs::write(&path, "X-Scope-OrgID: 7\n\nAuthorization:  Bearer x \n").unwrap();
        let read = fields(&path).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read[1].0.as_str(), read[1].1.as_bytes()),
            ("authorization", &b"Bearer x"[..])
        );
        for bad in ["nothing", "a b: c", ": c", "a: \u{1}"] {
            std::fs::write(&path, bad).unwrap();
            let error = fields(&path).unwrap_err();
            assert!(
                matches!(error, LiveError::HeaderLine { line: 1, .. }),
                "{bad:?}: {error}"
            );
        }
        assert!(["15s", "0.5"].iter().all(|text| interval(text).is_ok()));
        assert!(
            ["0", "-1", "nan", "x", "1e9"]
                .iter()
                .all(|text| interval(text).is_err())
        );
    }

    #[test]
    fn a_token_is_one_word_and_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(token(Some(&path)).unwrap(), "0123456789abcdef");
        for text in [
            "0123456789abcde\n",
            "0123456789 abcdef",
            "0123456789\u{e4}abcdef",
            "0123456789abcdef\u{1b}",
            "",
            &"x".repeat(256),
        ] {
            std::fs::write(&path, text).unwrap();
            let refused = token(Some(&path));
            assert!(matches!(refused, Err(LiveError::Token { .. })), "{text:?}");
        }
        let missing = token(Some(Path::new("/no/such")));
        assert!(matches!(missing, Err(LiveError::Base(_))));
    }
}
