//! `larder serve --push`: to receivers that take apart what comes as the real ones do: Pyroscope's
//! `/ingest` and Parca's `/profiles/writeraw`; and to such as fail, refuse, hang or come late.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::common::clock::Clock;
use crate::common::running::{HANG, Running, first_words, preloaded, worker};
use crate::common::*;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use prost::Message;
use tempfile::TempDir;

/// A program on Larder, with this name.
fn program(directory: &Path, name: &str) -> Running {
    Running::once_it_says("ready\n", &mut preloaded(worker(directory, name)))
}

/// `larder serve`, which pushes each second, by a clock that stands still, and serves its metrics.
struct Pusher {
    _running: Running,
    clock: Clock,
    folder: TempDir,
}

impl Pusher {
    fn start(process: &Running, url: &str, more: &[&str]) -> Self {
        let folder = temporary();
        let place = format!("unix:{}", folder.path().join("socket").display());
        let mut command = larder();
        command.args(["serve", &process.id().to_string(), "--listen", &place]);
        command
            .args(["--push", url, "--push-interval", "1s"])
            .args(more);
        let clock = Clock::new(folder.path());
        clock.drive(&mut command);
        for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(variable);
        }
        let mut running = Running::start(command.stderr(Stdio::piped()));
        let mut errors = running.stderr.take().expect("a pipe");
        first_words("serving at", &mut errors);
        // What else it says is no error.
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self {
            _running: running,
            clock,
            folder,
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let mut client =
            UnixStream::connect(self.folder.path().join("socket")).expect("it listens");
        client
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("sent");
        let mut text = String::new();
        client.read_to_string(&mut text).expect("an answer");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    #[track_caller]
    fn wait_for(&self, name: &str, least: u64) {
        let enough = || self.metric(name) >= least;
        self.clock.pass_until(&format!("{least} of {name}"), enough);
    }
}

/// A request that came.
struct Pushed {
    path: String,
    query: HashMap<String, String>,
    /// Names in small letters.
    fields: HashMap<String, String>,
    body: Vec<u8>,
}

fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [
                    bytes.next().expect("a digit"),
                    bytes.next().expect("a digit"),
                ];
                let digits = std::str::from_utf8(&digits).expect("digits");
                out.push(u8::from_str_radix(digits, 16).expect("digits"));
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8(out).expect("UTF-8")
}

fn receive(client: &TcpStream) -> Option<Pushed> {
    let mut lines = BufReader::new(client);
    let mut line = String::new();
    let mut next = |lines: &mut BufReader<&TcpStream>| {
        line.clear();
        let count = lines.read_line(&mut line).ok()?;
        (count > 0).then(|| line.trim_end().to_owned())
    };
    let first = next(&mut lines)?;
    let mut words = first.split(' ');
    assert_eq!(words.next(), Some("POST"), "{first}");
    let target = words.next().expect("a target");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    let mut fields = HashMap::new();
    loop {
        let field = next(&mut lines)?;
        let Some((name, value)) = field.split_once(": ") else {
            break;
        };
        fields.insert(name.to_lowercase(), value.to_owned());
    }
    let length = fields
        .get("content-length")
        .expect("a length")
        .parse()
        .expect("a number");
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(Pushed {
        path: path.to_owned(),
        query,
        fields,
        body,
    })
}

/// Answers each push with the next status, the last one for ever, and hands it on.
fn answer_all(listener: TcpListener, statuses: &'static [u16], to: Sender<Pushed>) {
    thread::spawn(move || {
        let mut statuses = statuses.iter().copied();
        let mut status = 0;
        for client in listener.incoming().flatten() {
            let Some(pushed) = receive(&client) else {
                continue;
            };
            status = statuses.next().unwrap_or(status);
            let text = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: 6\r\nConnection: close\r\n\r\n\x1b[2Jx\n"
            );
            let _ = (&client).write_all(text.as_bytes());
            if status == 200 && to.send(pushed).is_err() {
                return;
            }
        }
    });
}

fn receiver(statuses: &'static [u16]) -> (String, Receiver<Pushed>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let (to, pushed) = channel();
    answer_all(listener, statuses, to);
    (address, pushed)
}

fn next(pushed: &Receiver<Pushed>) -> Pushed {
    pushed.recv_timeout(HANG).expect("a push")
}

/// As much of pprof's profile.proto as is looked at.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Numbered>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Numbered>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Numbered {
    #[prost(uint64, tag = "1")]
    id: u64,
}

impl Profile {
    /// What receivers take for granted holds: numbers count from 1 and are there.
    #[track_caller]
    fn read(packed: &[u8]) -> Self {
        let mut bytes = Vec::new();
        let mut unpacked = flate2::read::GzDecoder::new(packed);
        unpacked.read_to_end(&mut bytes).expect("gzip");
        let profile = Self::decode(&bytes[..]).expect("a profile");
        let types: Vec<&str> = profile
            .sample_type
            .iter()
            .map(|t| profile.text(t.kind))
            .collect();
        assert_eq!(
            types,
            [
                "alloc_objects",
                "alloc_space",
                "inuse_objects",
                "inuse_space"
            ]
        );
        assert_eq!(profile.text(profile.sample_type[3].unit), "bytes");
        for numbered in [&profile.location, &profile.function] {
            assert!(
                numbered
                    .iter()
                    .zip(1..)
                    .all(|(one, number)| one.id == number)
            );
        }
        let count = profile.location.len() as u64;
        for sample in &profile.sample {
            assert_eq!(sample.value.len(), 4);
            assert!(sample.location_id.iter().all(|id| (1..=count).contains(id)));
        }
        assert!(
            profile.string_table.iter().any(|text| text == "keep"),
            "functions have names"
        );
        assert!(profile.time_nanos > 1_600_000_000_000_000_000);
        profile
    }

    fn text(&self, number: i64) -> &str {
        &self.string_table[number as usize]
    }

    fn sum(&self, column: usize) -> i64 {
        self.sample.iter().map(|sample| sample.value[column]).sum()
    }
}

/// The rules by which Pyroscope reads `name`.
fn labels_of(name: &str) -> (String, HashMap<String, String>) {
    let (application, rest) = name.split_once('{').expect("a bracket");
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    assert!(
        !application.is_empty() && application.chars().all(allowed),
        "{name}"
    );
    let rest = rest.strip_suffix('}').expect("a bracket");
    let labels = rest.split(',').map(|pair| {
        let (name, value) = pair.split_once('=').expect("a value");
        assert!(
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
            "{name}"
        );
        (name.to_owned(), value.to_owned())
    });
    (application.to_owned(), labels.collect())
}

#[test]
fn pyroscope_gets_what_is_in_use_and_what_was_allocated_since() {
    let directory = temporary();
    let mut process = program(directory.path(), "a b}c");
    let (address, pushed) = receiver(&[200]);
    let fields = directory.path().join("fields");
    std::fs::write(&fields, "X-Scope-OrgID: 7\nAuthorization: Bearer x\n").expect("written");
    let more = [
        "--label",
        "region=eu west",
        "--header-file",
        fields.to_str().expect("a name"),
    ];
    let pusher = Pusher::start(&process, &format!("http://{address}/ingest"), &more);
    let first = next(&pushed);
    pusher.clock.wait_for(1.0, 1);
    process.round();
    pusher.clock.wait_and_pass(1.0);
    let second = next(&pushed);
    for push in [&first, &second] {
        assert_eq!(push.path, "/ingest");
        assert_eq!(push.query["format"], "pprof");
        assert_eq!(push.fields["x-scope-orgid"], "7");
        assert_eq!(push.fields["authorization"], "Bearer x");
        let (application, labels) = labels_of(&push.query["name"]);
        assert_eq!(application, "a_b_c");
        assert_eq!(labels["pid"], process.id().to_string());
        assert_eq!((&*labels["comm"], &*labels["region"]), ("a b_c", "eu west"));
        assert!(!labels["host"].is_empty());
    }
    let times = |push: &Pushed| {
        ["from", "until"].map(|name| push.query[name].parse::<u64>().expect("a time"))
    };
    let ([from, until], [next_from, next_until]) = (times(&first), times(&second));
    assert_eq!((from + 1, next_from, next_until), (until, until, until + 1));
    let (first, second) = (Profile::read(&first.body), Profile::read(&second.body));
    for profile in [&first, &second] {
        assert!(
            (30 << 20..60 << 20).contains(&profile.sum(3)),
            "{}",
            profile.sum(3)
        );
    }
    assert_eq!(first.sum(1), 0, "since when is not known yet");
    assert_eq!(second.duration_nanos, 1_000_000_000);
    // A round, of which some is sampled; and not what was kept before.
    assert!(
        (50 << 20..200 << 20).contains(&second.sum(1)),
        "{}",
        second.sum(1)
    );
    pusher.wait_for("larder_push_sent_total", 2);
    assert_eq!(
        pusher.metric("larder_push_dropped_total{reason=\"refused\"}"),
        0
    );
}

#[test]
fn parca_gets_series_of_labels_and_profiles() {
    let directory = temporary();
    let mut process = program(directory.path(), "worker");
    let (address, pushed) = receiver(&[200]);
    let url = format!("http://{address}/api/profiles/writeraw");
    let pusher = Pusher::start(
        &process,
        &url,
        &["--label", "service_name=shop", "--label", "pid=none"],
    );
    let first = next(&pushed);
    pusher.clock.wait_for(1.0, 1);
    process.round();
    pusher.clock.wait_and_pass(1.0);
    let second = next(&pushed);
    assert_eq!(first.path, "/api/profiles/writeraw");
    assert_eq!(first.fields["content-type"], "application/json");
    let profile = |push: &Pushed| {
        let request: serde_json::Value = serde_json::from_slice(&push.body).expect("JSON");
        assert_eq!(request["normalized"], true);
        let series = request["series"].as_array().expect("series");
        assert_eq!(series.len(), 1);
        let labels = series[0]["labels"]["labels"].as_array().expect("labels");
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        let labels: Vec<_> = labels
            .iter()
            .map(|l| (text(&l["name"]), text(&l["value"])))
            .collect();
        let known: HashMap<_, _> = labels.iter().cloned().collect();
        assert_eq!(known.len(), labels.len(), "none is there twice");
        let wanted = [
            ("__name__", "memory"),
            ("service_name", "shop"),
            ("comm", "worker"),
            ("pid", "none"),
        ];
        for (name, value) in wanted {
            assert_eq!(known[name], value);
        }
        let packed = BASE64_STANDARD.decode(text(&series[0]["samples"][0]["rawProfile"]));
        Profile::read(&packed.expect("base64"))
    };
    let (first, second) = (profile(&first), profile(&second));
    assert!(first.sum(1) > 30 << 20, "since the start");
    assert!(second.sum(1) > first.sum(1));
    assert_eq!(second.duration_nanos, 0, "of one time");
}

#[test]
fn what_fails_is_sent_again_and_what_is_refused_is_not() {
    let directory = temporary();
    let mut process = program(directory.path(), "worker");
    let (address, pushed) = receiver(&[503, 400, 200]);
    let pusher = Pusher::start(&process, &format!("http://{address}/ingest"), &[]);
    // Until the next interval, and until it is sent again.
    pusher.clock.wait_for(1.0, 2);
    process.round();
    pusher.clock.pass(Duration::from_secs(1));
    let first = Profile::read(&next(&pushed).body);
    assert!(first.sum(1) > 0, "the first was refused, the second taken");
    assert_eq!(pusher.metric("larder_push_failures_total"), 1);
    assert_eq!(
        pusher.metric("larder_push_dropped_total{reason=\"refused\"}"),
        1
    );
}

#[test]
fn a_receiver_may_come_late() {
    let directory = temporary();
    let process = program(directory.path(), "worker");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    drop(listener);
    let pusher = Pusher::start(&process, &format!("http://{address}/ingest"), &[]);
    pusher.wait_for("larder_push_failures_total", 1);
    pusher.wait_for("larder_push_waiting_profiles", 3);
    let (to, pushed) = channel();
    answer_all(
        TcpListener::bind(address).expect("the same port"),
        &[200],
        to,
    );
    let mut begin = None;
    pusher.clock.pass_until("a push", || {
        begin = pushed.try_recv().ok();
        begin.is_some()
    });
    let begin = begin.expect("a push");
    assert_eq!(Profile::read(&begin.body).sum(1), 0, "the first has waited");
    pusher.wait_for("larder_push_sent_total", 4);
}

#[test]
fn a_receiver_that_hangs_delays_no_other_request() {
    let directory = temporary();
    let process = program(directory.path(), "worker");
    // The kernel takes the connection, and no process answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let pusher = Pusher::start(&process, &format!("http://{address}/ingest"), &[]);
    let hanging = listener.accept().expect("a push");
    // While one send waits, more is taken and metrics are answered.
    pusher.wait_for("larder_push_waiting_profiles", 3);
    assert_eq!(pusher.metric("larder_serve_processes"), 1);
    assert_eq!(pusher.metric("larder_push_sent_total"), 0);
    drop(hanging);
}

#[test]
fn what_is_no_receiver_is_reported() {
    let push = |url: &str, more: &[&str]| {
        output(larder().args(["serve", "--all", "--push", url]).args(more))
    };
    let good = "http://127.0.0.1:1/ingest";
    for (url, word) in [
        ("http://127.0.0.1:1", "/ingest"),
        ("ftp://h/ingest", "https://"),
        ("http://me:pass@h/ingest", "--header-file"),
        ("http://h/ingest?x=1", "--label"),
    ] {
        assert_fails(&push(url, &[]), 125, &[word]);
    }
    assert_fails(&push(good, &["--label", "1=x"]), 125, &["--label"]);
    assert_fails(&push(good, &["--push-interval", "0"]), 125, &["0.1"]);
    assert_fails(
        &push(good, &["--header-file", "/no/such"]),
        125,
        &["/no/such"],
    );
    let alone = output(larder().args(["serve", "--all", "--label", "a=b", "--listen", "unix:/x"]));
    assert_fails(&alone, 125, &["--push"]);
}
