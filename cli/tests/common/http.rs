//! Requests to what the tool and the libraries serve.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::running::HANG;
use super::{assert_success, stderr, stdout};

pub const TOKEN: &str = "0123456789abcdef-token";

pub fn connect(path: &Path) -> UnixStream {
    let client = UnixStream::connect(path).expect("it listens");
    client.set_read_timeout(Some(HANG)).expect("a timeout");
    client
}

pub fn request(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
}

/// The status, 0 if there is no answer, and the body, which has to be whole.
pub fn answer(mut client: impl Read + Write, request: &[u8]) -> (u16, Vec<u8>) {
    // It may have been refused before all of it was sent.
    let _ = client.write_all(request);
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ if bytes.is_empty() => return (0, bytes),
        _ => {}
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = bytes.split_off(end.expect("a head") + 4);
    let head = String::from_utf8(bytes).expect("text");
    let length = head.split("Content-Length: ").nth(1).expect("a length");
    let length: usize = length
        .lines()
        .next()
        .unwrap_or("")
        .parse()
        .expect("a number");
    assert_eq!(body.len(), length, "the answer is whole: {head}");
    (head[9..12].parse().expect("a status"), body)
}

/// The status where nothing follows these bytes, so that no more of a request is waited for.
pub fn answer_to_all(mut client: UnixStream, bytes: &[u8]) -> u16 {
    // It may have been refused before all of it was sent.
    let _ = client.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    answer(client, b"").0
}

/// Bytes that look random, the same each time; of 0, 5, 10 … to 995.
pub fn random_requests() -> impl Iterator<Item = Vec<u8>> {
    let mut state = 1u64;
    let mut byte = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..200).map(move |length| (0..length * 5).map(|_| byte()).collect())
}

/// Of the first line of a profile.
pub fn in_use(profile: &str) -> u64 {
    let number = profile
        .split_whitespace()
        .nth(3)
        .and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("no profile: {profile}"))
}

/// What the variable names, else from PATH or where scripts/setup puts what is no package.
pub fn tool(variable: &str, name: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/tools");
    let mut folders = std::env::split_paths(&path).chain([own]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()));
    found.unwrap_or_else(|| panic!("{name} is missing; install it by: scripts/setup test"))
}

pub fn port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
    probe.local_addr().expect("its number").port()
}

/// These are metrics as they have to be.
#[track_caller]
pub fn promtool_is_content(metrics: &str) {
    let mut check = Command::new(tool("PROMTOOL", "promtool"));
    check
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut check = check.stderr(Stdio::piped()).spawn().expect("promtool");
    let mut to = check.stdin.take().expect("a pipe");
    to.write_all(metrics.as_bytes()).expect("written");
    drop(to);
    let done = check.wait_with_output().expect("it ends");
    assert_success(&done);
    assert_eq!(stdout(&done) + &stderr(&done), "");
}
