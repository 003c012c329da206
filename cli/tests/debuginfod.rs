//! Debug information and sources from a debuginfod server on this machine: there, not there, wrong,
//! unreachable, and without the client.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::common::*;

const SOURCE: &str = r#"#include <stdlib.h>
static void *volatile kept;
int main(void) {
    kept = malloc(100);  // @lost
    return 0;
}
"#;

/// What is served, by path.
type Files = HashMap<String, Vec<u8>>;

/// Serves files by HTTP until it is dropped.
struct Server {
    url: String,
    /// Paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(files: Files) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let (asked, ends) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicBool::new(false)),
        );
        let (known, end) = (asked.clone(), ends.clone());
        let serve = move || {
            for client in listener.incoming().flatten() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                known.lock().unwrap().extend(answer(client, &files));
            }
        };
        Self {
            url,
            asked,
            ends,
            thread: Some(thread::spawn(serve)),
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The path of the request; `None` of a connection without one.
fn answer(mut client: TcpStream, files: &Files) -> Option<String> {
    let mut request = BufReader::new(client.try_clone().expect("a copy"));
    let mut first = String::new();
    request.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if request.read_line(&mut line).ok()? == 0 {
            return None;
        }
    }
    let (status, body) = match files.get(&path) {
        Some(body) => ("200 OK", &body[..]),
        None => ("404 Not Found", &b""[..]),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = client.write_all(head.as_bytes());
    let _ = client.write_all(body);
    Some(path)
}

/// A stripped program whose source is gone.
struct Stripped {
    directory: tempfile::TempDir,
    trace: PathBuf,
    build_id: String,
    /// The paths at a server, and what is to be served there.
    debug_info: (String, Vec<u8>),
    source: (String, Vec<u8>),
}

impl Stripped {
    fn new() -> Self {
        let directory = temporary();
        let path = directory.path();
        let flags = ["-g", "-O0", "-Wl,--build-id=sha1"];
        let program = compile(path, "gone.c", SOURCE, &flags);
        let debug = path.join("gone.debug");
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&program, &debug]));
        run(Command::new("strip").arg(&program));
        let trace = record(path, &program, &[], &["--no-larder"]);
        let build_id = build_id(&program);
        let served = |what: &str| format!("/buildid/{build_id}/{what}");
        let source = path.join("gone.c");
        let (debug_info, text) = (fs::read(&debug).unwrap(), fs::read(&source).unwrap());
        fs::remove_file(&debug).unwrap();
        fs::remove_file(&source).unwrap();
        Self {
            debug_info: (served("debuginfo"), debug_info),
            source: (served(&format!("source{}", source.display())), text),
            trace,
            build_id,
            directory,
        }
    }

    /// `larder COMMAND TRACE` with an empty cache, unless this was called before.
    fn show(&self, command: &str, options: &[&str]) -> Command {
        let mut tool = larder();
        tool.env("XDG_CACHE_HOME", self.directory.path().join("cache"))
            .env_remove("DEBUGINFOD_CACHE_PATH");
        tool.arg(command).arg(&self.trace).args(options);
        tool
    }

    fn report(&self, url: &str, options: &[&str]) -> Output {
        let found = output(self.show("report", options).args(["--debuginfod", url]));
        assert_success(&found);
        found
    }
}

fn run(command: &mut Command) {
    assert_success(&output(command));
}

fn build_id(program: &Path) -> String {
    let notes = stdout(&output(Command::new("readelf").arg("-n").arg(program)));
    let id = notes.split("Build ID: ").nth(1).expect("a build id");
    id.lines().next().expect("a line").to_owned()
}

/// The only line of stderr.
#[track_caller]
fn warning(found: &Output) -> String {
    let text = stderr(found);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("larder: warning: debuginfod: "), "{text}");
    text
}

#[test]
fn names_lines_and_sources_come_from_a_server_and_then_from_the_cache() {
    let stripped = Stripped::new();
    let served = [&stripped.debug_info, &stripped.source];
    let server = Server::start(served.into_iter().cloned().collect());
    let found = stripped.report(&server.url, &[]);
    let (text, errors) = (stdout(&found), stderr(&found));
    assert_eq!(errors, "");
    assert!(text.contains("gone.c:4"), "{text}");
    assert!(
        text.contains("> 4 |     kept = malloc(100);  // @lost"),
        "{text}"
    );
    let asked = server.asked();
    for (path, _) in served {
        assert_eq!(
            asked.iter().filter(|asked| *asked == path).count(),
            1,
            "{asked:?}"
        );
    }

    let by_variable = output(
        stripped
            .show("advise", &["--all"])
            .env("DEBUGINFOD_URLS", &server.url),
    );
    assert_success(&by_variable);
    let own = format!("/buildid/{}/", stripped.build_id);
    let again = server.asked();
    let own = |asked: &[String]| asked.iter().filter(|path| path.starts_with(&own)).count();
    assert_eq!(
        own(&again),
        own(&asked),
        "the client has a cache: {again:?}"
    );

    // Without a request nothing is asked, and what was fetched is used.
    let before = server.asked().len();
    let cached = output(
        stripped
            .show("report", &["--debuginfod", ""])
            .env("DEBUGINFOD_URLS", &server.url),
    );
    assert!(stdout(&cached).contains("gone.c:4") && !stdout(&cached).contains("> 4 |"));
    assert_eq!(server.asked().len(), before);
}

#[test]
fn what_a_server_does_not_have_is_no_trouble() {
    let stripped = Stripped::new();
    let server = Server::start(Files::from([stripped.debug_info.clone()]));
    let found = stripped.report(&server.url, &[]);
    assert_eq!(stderr(&found), "");
    assert!(stdout(&found).contains("gone.c:4"));
    assert!(!stdout(&found).contains("> 4 |"));
}

#[test]
fn wrong_data_is_reported_and_not_used() {
    let stripped = Stripped::new();
    let wrong = (stripped.debug_info.0.clone(), b"no ELF file".to_vec());
    let server = Server::start(Files::from([wrong]));
    let found = stripped.report(&server.url, &[]);
    let line = warning(&found);
    assert!(
        line.contains("gone is no file of that build: remove "),
        "{line}"
    );
    assert!(stdout(&found).contains("Mallocs: 1"), "{}", stdout(&found));
    assert!(!stdout(&found).contains("gone.c"));
}

#[test]
fn a_server_that_cannot_be_reached_is_reported_once() {
    let stripped = Stripped::new();
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("its address"))
    };
    let found = stripped.report(&closed, &[]);
    let line = warning(&found);
    assert!(
        line.contains(&format!("no connection to {closed}")),
        "{line}"
    );
    assert!(stdout(&found).contains("Mallocs: 1"));

    let both = output(
        stripped
            .show("diff", &[])
            .arg(&stripped.trace)
            .args(["--debuginfod", &closed]),
    );
    assert_success(&both);
    warning(&both);

    // The others are asked.
    let server = Server::start(Files::from([stripped.debug_info.clone()]));
    let found = stripped.report(&format!("{closed} {}", server.url), &[]);
    warning(&found);
    assert!(stdout(&found).contains("gone.c:4"), "{}", stdout(&found));
}

#[test]
fn a_server_that_does_not_answer_costs_one_timeout() {
    let stripped = Stripped::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let mut tool = stripped.show("report", &["--debuginfod", &url]);
    let found = output(tool.env("DEBUGINFOD_TIMEOUT", "1"));
    assert_success(&found);
    let line = warning(&found);
    assert!(line.contains("nothing more is asked"), "{line}");
    assert!(stdout(&found).contains("Mallocs: 1"));
}

#[test]
fn without_the_client_one_line_says_what_to_install() {
    let stripped = Stripped::new();
    let server = Server::start(Files::new());
    let mut tool = stripped.show("report", &["--debuginfod", &server.url]);
    let found = output(tool.env("PATH", "/nowhere"));
    assert_success(&found);
    let line = warning(&found);
    assert!(line.contains("debuginfod-find is not installed"), "{line}");
    assert!(stdout(&found).contains("Mallocs: 1"));
    assert_eq!(server.asked(), [""; 0]);
}

#[test]
fn an_address_without_a_scheme_is_refused() {
    let found = output(larder().args(["report", "x.trace", "--debuginfod", "a.org"]));
    assert_fails(&found, 125, &["--debuginfod 'a.org'", "https://"]);
}
