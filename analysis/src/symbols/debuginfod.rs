//! Asks debuginfod servers for debug information and for sources, by build id. elfutils' own client,
//! `debuginfod-find`, has the protocol and the cache; this starts it and says what was in the way.
//!
//! From any thread. Time: `CONNECT_WITHIN` for all servers that cannot be reached, in all. The first
//! failure other than "not there" ends the asking, so that a server which does not answer costs one
//! `ANSWER_WITHIN`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use indicatif::{ProgressBar, ProgressStyle};
use larder_base::printable::escape;

use super::locate::hex;

/// The servers, separated by spaces, like in every client.
const URLS: &str = "DEBUGINFOD_URLS";
/// The client's own limit: seconds until an answer has to come.
const TIMEOUT: &str = "DEBUGINFOD_TIMEOUT";
/// Instead of its 90: a server that answers begins within a few.
const ANSWER_WITHIN: &str = "10";
/// How often the client tries again after that.
const RETRIES: &str = "DEBUGINFOD_RETRY_LIMIT";
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const CLIENT: &str = "debuginfod-find";
/// Sources asked for; each takes a process, and a request unless it is cached.
const MOST_SOURCES: usize = 100;
/// Variables by which the client uses a proxy. Whether it reaches a server cannot be tried then.
const PROXIES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTPS_PROXY",
    "ALL_PROXY",
];

#[derive(Debug)]
pub struct Debuginfod {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    servers: Servers,
    sources_left: usize,
}

#[derive(Debug)]
enum Servers {
    /// Not tried yet.
    Named(String),
    Reached(String),
    /// Nothing is asked any more.
    GivenUp,
}

/// A request.
enum Wanted<'w> {
    DebugInfo,
    Source(&'w str),
}

impl Debuginfod {
    /// The requested servers, else those of the environment; `None` without any.
    pub fn new(requested: Option<&str>) -> Option<Self> {
        let named = match requested {
            Some(urls) => urls.to_owned(),
            None => env::var(URLS).ok()?,
        };
        let urls: Vec<&str> = named.split_whitespace().collect();
        (!urls.is_empty()).then(|| Self {
            state: Mutex::new(State {
                servers: Servers::Named(urls.join(" ")),
                sources_left: MOST_SOURCES,
            }),
        })
    }

    /// The file with the debug information of a build; `name` is for the progress alone.
    pub fn debug_info(&self, build_id: &[u8], name: &str) -> Option<PathBuf> {
        self.ask(build_id, &Wanted::DebugInfo, name)
    }

    /// A source of a build, by its path in the debug information.
    pub fn source(&self, build_id: &[u8], path: &str) -> Option<PathBuf> {
        if !path.starts_with('/') || path.contains('\0') {
            return None;
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        self.ask(build_id, &Wanted::Source(path), name)
    }

    fn ask(&self, build_id: &[u8], wanted: &Wanted<'_>, name: &str) -> Option<PathBuf> {
        if build_id.is_empty() {
            return None;
        }
        // Two requests at once would find an unreachable server twice.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Servers::Named(urls) = &state.servers {
            state.servers = reach(urls);
        }
        let Servers::Reached(urls) = &state.servers else {
            return None;
        };
        let mut client = Command::new(CLIENT);
        client.env(URLS, urls);
        match wanted {
            Wanted::DebugInfo => client.args(["debuginfo", &hex(build_id)]),
            Wanted::Source(path) => client.args(["source", &hex(build_id), path]),
        };
        if let Wanted::Source(_) = wanted {
            state.sources_left = state.sources_left.checked_sub(1)?;
        }
        let progress = progress(name);
        let answer = answer(client);
        progress.finish_and_clear();
        answer.unwrap_or_else(|why| {
            warn(&why);
            state.servers = Servers::GivenUp;
            None
        })
    }
}

/// The servers that take connections; says which do not.
fn reach(urls: &str) -> Servers {
    if !is_installed() {
        warn(&format!(
            "debuginfod: {CLIENT} is not installed, so nothing is asked: apt install debuginfod, or your \
             system's package with elfutils' client"
        ));
        return Servers::GivenUp;
    }
    let (reached, unreached) = try_to_connect(urls);
    if !unreached.is_empty() {
        warn(&format!(
            "debuginfod: no connection to {}: names and sources are those on this machine",
            escape(&unreached.join(", "))
        ));
    }
    match reached.is_empty() {
        true => Servers::GivenUp,
        false => Servers::Reached(reached.join(" ")),
    }
}

/// Whether the client can be started.
pub fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(CLIENT).is_file())
}

/// All at once, because each may take the whole time; the threads of those that do end with the process.
fn try_to_connect(urls: &str) -> (Vec<&str>, Vec<&str>) {
    let urls: Vec<&str> = urls.split(' ').collect();
    let has_proxy = PROXIES.iter().any(|name| env::var_os(name).is_some());
    let (sender, answers) = mpsc::channel();
    let mut reached = vec![false; urls.len()];
    let mut waiting = 0;
    for (index, url) in urls.iter().enumerate() {
        let Some((host, port)) = host_and_port(url).filter(|_| !has_proxy) else {
            reached[index] = true;
            continue;
        };
        let sender = sender.clone();
        waiting += 1;
        thread::spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let mut addresses = found.into_iter().flatten();
            let connects =
                addresses.any(|to| TcpStream::connect_timeout(&to, CONNECT_WITHIN).is_ok());
            // It may come too late.
            let _ = sender.send((index, connects));
        });
    }
    let end = Instant::now() + CONNECT_WITHIN;
    for _ in 0..waiting {
        let left = end.saturating_duration_since(Instant::now());
        let Ok((index, connects)) = answers.recv_timeout(left) else {
            break;
        };
        reached[index] = connects;
    }
    let (yes, no): (Vec<_>, Vec<_>) = urls.into_iter().zip(reached).partition(|(_, is)| *is);
    let names = |list: Vec<(_, bool)>| list.into_iter().map(|(url, _)| url).collect();
    (names(yes), names(no))
}

/// Of `http://host:port/…`; `None` for other schemes, and for what only the client understands.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit('@').next()?;
    let (host, port) = match place.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok()?,
        None => default,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// `Ok(None)`: the servers do not have it.
fn answer(mut client: Command) -> Result<Option<PathBuf>, String> {
    for (name, value) in [(TIMEOUT, ANSWER_WITHIN), (RETRIES, "0")] {
        if env::var_os(name).is_none() {
            client.env(name, value);
        }
    }
    client
        .env("LC_ALL", "C")
        .env_remove("DEBUGINFOD_PROGRESS")
        .env_remove("DEBUGINFOD_VERBOSE")
        .stdin(Stdio::null());
    let answered = client
        .output()
        .map_err(|error| format!("debuginfod: {CLIENT} cannot be started: {error}"))?;
    if answered.status.success() {
        let path = answered.stdout.split(|byte| *byte == b'\n').next();
        let path = path.filter(|path| !path.is_empty());
        return Ok(path.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))));
    }
    let said = String::from_utf8_lossy(&answered.stderr);
    if said.contains("No such file or directory") {
        return Ok(None);
    }
    let why = said.lines().last().unwrap_or("it was killed");
    Err(format!(
        "debuginfod: {}: nothing more is asked",
        escape(why)
    ))
}

pub fn warn(line: &str) {
    // A closed stderr is no error.
    let _ = writeln!(io::stderr(), "larder: warning: {line}");
}

/// A line on stderr while the client runs, if that is a terminal.
fn progress(name: &str) -> ProgressBar {
    const REDRAWN_EVERY: Duration = Duration::from_millis(200);
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("debuginfod: {msg}  {elapsed}");
    let bar = ProgressBar::new_spinner().with_message(escape(name).into_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(REDRAWN_EVERY);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_found() {
        let found = |url| host_and_port(url).map(|(host, port)| format!("{host} {port}"));
        for (url, expected) in [
            ("http://a.org", "a.org 80"),
            ("https://a.org/x:y", "a.org 443"),
            ("http://user:word@a.org:8002/", "a.org 8002"),
            ("http://[::1]:8002/", "::1 8002"),
            ("https://[::1]", "::1 443"),
        ] {
            assert_eq!(found(url).as_deref(), Some(expected), "{url}");
        }
        for url in ["file:///srv", "a.org", "http://", "http://a:port", ""] {
            assert_eq!(found(url), None, "{url}");
        }
    }

    #[test]
    fn a_closed_port_is_not_reached_and_an_open_one_is() {
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = |of: &std::net::TcpListener| format!("http://{}/", of.local_addr().unwrap());
        let urls = format!("{} {} file:///srv", url(&closed), url(&open));
        drop(closed);
        let (reached, unreached) = try_to_connect(&urls);
        assert_eq!(reached, [&url(&open)[..], "file:///srv"]);
        assert_eq!(unreached.len(), 1);
    }

    #[test]
    fn an_empty_request_asks_nobody() {
        assert!(Debuginfod::new(Some(" ")).is_none());
        assert!(Debuginfod::new(Some("http://a")).is_some());
    }
}
