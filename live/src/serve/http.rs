//! The part of HTTP that is served: one request a connection, a GET, or a POST of up to 512 KiB.
//!
//! Requests may be hostile: a request has two seconds, and its head 8 KiB. An answer is dropped if its
//! client receives nothing for five seconds, or has not received all of it after two minutes.

use std::ffi::c_short;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use socket2::{Socket, TcpKeepalive};

/// Limit of a request without its body.
const MOST_BYTES: usize = 8 << 10;
const MOST_BODY: usize = 512 << 10;
const MOST_FIELDS: usize = 64;
const REQUEST: Duration = Duration::from_secs(2);
const STALLED: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(120);
const KEEPALIVE: Duration = Duration::from_secs(60);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Begins with a slash; printable ASCII.
    pub path: String,
    query: String,
    token: Option<String>,
    /// The body of a POST.
    pub posted: Option<Vec<u8>>,
}

impl Request {
    /// A parameter of the query, not decoded.
    pub fn value(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&');
        let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// From `Authorization` or `?token=`.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref().or_else(|| self.value("token"))
    }
}

/// Why a request is refused: the status, and a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

/// `None`: the request is incomplete.
pub fn parse(text: &[u8]) -> Result<Option<Request>, Refusal> {
    const GARBLED: Refusal = Refusal(400, "the request is not understood: GET PATH HTTP/1.1");
    const LARGE: Refusal = Refusal(413, "a GET has no body, and a POST up to 512 KiB");
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(text) {
        Ok(httparse::Status::Complete(length)) if length <= MOST_BYTES => length,
        Ok(httparse::Status::Partial) if text.len() < MOST_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal(431, "a request has up to 8 KiB and 64 fields"));
        }
        Err(httparse::Error::Version) => return Err(Refusal(505, "it has to be HTTP/1.1")),
        Err(_) => return Err(GARBLED),
    };
    let is_post = match head.method {
        Some("GET") => false,
        Some("POST") => true,
        _ => return Err(Refusal(405, "only GET and POST are served")),
    };
    let target = head.path.unwrap_or_default();
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(GARBLED);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        path: path.to_owned(),
        query: query.to_owned(),
        token: None,
        posted: None,
    };
    let mut body = 0;
    for field in head.headers.iter() {
        let value = field.value.trim_ascii();
        let is = |name| field.name.eq_ignore_ascii_case(name);
        if is("Transfer-Encoding") {
            return Err(LARGE);
        }
        if is("Content-Length") {
            let value = std::str::from_utf8(value).ok();
            let value = value.and_then(|value| value.parse().ok()).ok_or(GARBLED)?;
            if value > if is_post { MOST_BODY } else { 0 } {
                return Err(LARGE);
            }
            body = value;
        }
        if is("Authorization") {
            if request.token.is_some() {
                return Err(GARBLED);
            }
            request.token = Some(token(value).unwrap_or_default());
        }
    }
    let posted = text.get(length..).unwrap_or_default();
    // A second request would get no answer.
    if posted.len() > body {
        return Err(Refusal(400, "one request a connection"));
    }
    if posted.len() < body {
        return Ok(None);
    }
    request.posted = is_post.then(|| posted.to_vec());
    Ok(Some(request))
}

/// `Bearer TOKEN`, or the password of `Basic` with any name.
fn token(value: &[u8]) -> Option<String> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("Bearer") {
        return Some(token.to_owned());
    }
    let basic = scheme.eq_ignore_ascii_case("Basic");
    let pair = basic
        .then(|| BASE64_STANDARD.decode(token).ok())
        .flatten()?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':')
        .map(|(_, password)| password.to_owned())
}

/// `Err(None)`: the client has disconnected, or sends nothing.
pub fn read(client: &Socket) -> Result<Request, Option<Refusal>> {
    let until = Instant::now() + REQUEST;
    let mut text = Vec::new();
    loop {
        if !matches!(poll(client, libc::POLLIN, until), Ok(1..)) {
            return Err(None);
        }
        let mut piece = [0; MOST_BYTES];
        match (&*client).read(&mut piece) {
            Ok(0) => return Err(None),
            Ok(count) => text.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(None),
        }
        if let Some(request) = parse(&text).map_err(Some)? {
            return Ok(request);
        }
    }
}

pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

pub const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    pub fn new(kind: &'static str, body: Vec<u8>) -> Self {
        let status = 200;
        Self { status, kind, body }
    }

    /// An error and its cause, in a line.
    pub fn error(status: u16, why: impl std::fmt::Display) -> Self {
        Self {
            status,
            kind: TEXT,
            body: format!("{why}\n").into_bytes(),
        }
    }

    fn head(&self) -> String {
        let Self { status, kind, body } = self;
        let more = match status {
            401 => "WWW-Authenticate: Bearer\r\n",
            405 => "Allow: GET, POST\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{more}\
             Connection: close\r\n\r\n",
            reason(*status),
            body.len()
        )
    }

    /// Sends all of it, and ends the connection. It is no error if the client disconnects.
    pub fn send(&self, client: &Socket) {
        let _ = self.try_send(client);
    }

    fn try_send(&self, mut client: &Socket) -> io::Result<()> {
        client.set_write_timeout(Some(STALLED))?;
        let until = Instant::now() + ANSWER;
        client.write_all(self.head().as_bytes())?;
        for piece in self.body.chunks(64 << 10) {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            client.write_all(piece)?;
        }
        client.shutdown(Shutdown::Write)?;
        // Unread input would reset the connection before the client has read the answer.
        client.set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut rest = [0; 4096];
        for _ in 0..64 {
            if client.read(&mut rest)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Waits as long as the client does; returns whether it is still there. A client that has shut down its
/// sending side may wait for the answer. Over TCP it may also be gone: keepalive detects that.
pub fn wait(client: &Socket, length: Duration) -> bool {
    let until = Instant::now() + length;
    // A socket in the file system has no keepalive, and needs none.
    let _ = client.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    let mut wanted = libc::POLLIN;
    loop {
        match poll(client, wanted, until) {
            Ok(0) => return true,
            Ok(libc::POLLIN) => {}
            Ok(_) | Err(_) => return false,
        }
        match client.peek(&mut [MaybeUninit::uninit()]) {
            Ok(0) => wanted = 0,
            // A client that sends more than its request gets no answer.
            Ok(_) | Err(_) => return false,
        }
    }
}

/// What of the wanted has come, or 0 at the time given. The C library waits, for which a test has a
/// clock of its own (cli/tests/common/clock.c).
fn poll(client: &Socket, wanted: c_short, until: Instant) -> io::Result<c_short> {
    let mut found = libc::pollfd {
        fd: client.as_raw_fd(),
        events: wanted,
        revents: 0,
    };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left_ms = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: one file, valid as long as the call.
        match unsafe { libc::poll(&raw mut found, 1, left_ms) } {
            0 if left_ms > 0 => {}
            0 => return Ok(0),
            1.. => return Ok(found.revents),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        410 => "Gone",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &[u8]) -> u16 {
        match parse(text) {
            Ok(Some(_)) => 200,
            Ok(None) => 0,
            Err(Refusal(status, _)) => status,
        }
    }

    #[test]
    fn a_request_is_a_get_without_a_body() {
        let read = parse(b"GET /1/debug?a=1&token=x&b HTTP/1.1\r\nHost: h\r\n\r\n");
        let read = read.unwrap().unwrap();
        assert_eq!(read.path, "/1/debug");
        assert_eq!((read.value("a"), read.value("b")), (Some("1"), None));
        assert_eq!(read.token(), Some("x"));
        for (text, want) in [
            (&b"GET / HTTP/1.0\r\n\r\n"[..], 200),
            (b"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200),
            (b"", 0),
            (b"GET / HTTP/1.1\r\nHost: h\r\n", 0),
            (b"POST / HTTP/1.1\r\n\r\n", 200),
            (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 200),
            (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", 0),
            (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcd", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: 524288\r\n\r\n", 0),
            (b"POST / HTTP/1.1\r\nContent-Length: 524289\r\n\r\n", 413),
            (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
            (b"PUT / HTTP/1.1\r\n\r\n", 405),
            (b"GET /\r\n\r\n", 400),
            (b"GET http://h/ HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\n\r\n", 505),
            (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 413),
            (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
            (b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nbad field: x\r\n\r\n", 400),
            (b"\0\xff\r\n\r\n", 400),
        ] {
            assert_eq!(status(text), want, "{}", text.escape_ascii());
        }
        let long = [b"GET /", &b"x".repeat(MOST_BYTES)[..]].concat();
        assert_eq!(status(&long), 431);
        let fields = b"a: b\r\n".repeat(100);
        assert_eq!(
            status(&[b"GET / HTTP/1.1\r\n", &fields[..], b"\r\n"].concat()),
            431
        );
    }

    #[test]
    fn a_token_comes_by_the_field_before_the_query() {
        let token = |field: &str| {
            let text = format!("GET /?token=query HTTP/1.1\r\n{field}\r\n");
            let request = parse(text.as_bytes()).unwrap().unwrap();
            request.token().map(str::to_owned)
        };
        assert_eq!(token("").as_deref(), Some("query"));
        assert_eq!(token("authorization: bearer x\r\n").as_deref(), Some("x"));
        assert_eq!(token("Authorization: Basic x\r\n").as_deref(), Some(""));
        // x:secret
        let basic = token("Authorization: Basic eDpzZWNyZXQ=\r\n");
        assert_eq!(basic.as_deref(), Some("secret"));
        let twice = b"GET / HTTP/1.1\r\nAuthorization: a b\r\nAuthorization: a b\r\n\r\n";
        assert_eq!(status(twice), 400);
    }
}
