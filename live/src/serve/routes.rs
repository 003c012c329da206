//! The answer to each path: a process's routes are under its number, or, if the process serves itself
//! (liblarder_endpoint.so, docs/reference/endpoint.md), at the top.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::Socket;
use subtle::ConstantTimeEq;

use super::OnDrop;
use super::http::{self, Answer, Request, TEXT};
use super::names;
use super::push::Pusher;
use super::targets::{self, Missing, Targets, Which};
use crate::process::{Obstacle, Process};
use crate::profile::served::{self, Kind, Snapshot};
use crate::stats::{self, Labels};

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const BINARY: &str = "application/octet-stream";
const MOST_SECONDS: f64 = 3600.0;

/// Routes of a process.
const ROUTES: [(&str, Content); 10] = [
    ("/debug/pprof/heap", Content::Profile(Kind::InUse)),
    ("/debug/pprof/allocs", Content::Profile(Kind::Allocated)),
    ("/debug/pprof/lifetimes", Content::Profile(Kind::InUse)),
    ("/debug/pprof/growth", Content::Profile(Kind::Growth)),
    ("/debug/pprof/cmdline", Content::CommandLine),
    ("/debug/pprof/symbol", Content::Symbol),
    ("/pprof/heap", Content::Profile(Kind::InUse)),
    ("/pprof/growth", Content::Profile(Kind::Growth)),
    ("/pprof/cmdline", Content::CommandLine),
    ("/pprof/symbol", Content::Symbol),
];

#[derive(Clone, Copy)]
enum Content {
    Profile(Kind),
    CommandLine,
    Symbol,
}

/// A metric of the server itself.
pub struct OwnMetric {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: &'static str,
    /// Each value with its labels in braces, or an empty string.
    pub samples: Vec<(&'static str, u64)>,
}

pub fn gauge(name: &'static str, help: &'static str, value: u64) -> OwnMetric {
    OwnMetric {
        name,
        help,
        kind: "gauge",
        samples: vec![("", value)],
    }
}

pub struct Service {
    targets: Arc<Targets>,
    /// The process that serves itself, without a number in its paths.
    only: Option<u32>,
    pusher: Option<Arc<Pusher>>,
    /// Required if a port is served.
    token: Option<String>,
    /// One read of a process at a time: that bounds time and memory.
    reading: Mutex<()>,
    /// Requests that wait for a second snapshot, and how many may: others are answered meanwhile.
    waiting: AtomicUsize,
    most_waiting: usize,
    /// Bytes of answers that their clients have not received yet.
    sending_bytes: AtomicUsize,
}

/// Of 64 connections.
const MOST_WAITING: usize = 48;
const MOST_WAITING_OF_ITSELF: usize = 4;
/// While this much is being sent, requests are refused.
const MOST_SENDING_BYTES: usize = 64 << 20;

impl Service {
    pub fn new(targets: Arc<Targets>, pusher: Option<Arc<Pusher>>, token: Option<String>) -> Self {
        Self {
            targets,
            only: None,
            pusher,
            token,
            reading: Mutex::default(),
            waiting: AtomicUsize::new(0),
            most_waiting: MOST_WAITING,
            sending_bytes: AtomicUsize::new(0),
        }
    }

    /// Serves the calling process.
    pub fn of_itself(token: Option<String>) -> Result<Self, Obstacle> {
        let id = std::process::id();
        let targets = Targets::new(Which::These(vec![id])).map_err(|(_, obstacle)| obstacle)?;
        Ok(Self {
            only: Some(id),
            most_waiting: MOST_WAITING_OF_ITSELF,
            ..Self::new(Arc::new(targets), None, token)
        })
    }

    /// The answer; `None`: the client has disconnected.
    pub fn answer(&self, request: &Request, client: &Socket) -> Option<Answer> {
        if !self.allows(request) {
            return Some(Answer::error(
                401,
                "the token is that of --token-file or LARDER_TOKEN: Authorization: Bearer or Basic, or ?token=",
            ));
        }
        if self.sending_bytes.load(Ordering::Relaxed) > MOST_SENDING_BYTES {
            return Some(Answer::error(
                503,
                "too many answers are being sent: try again",
            ));
        }
        let answer = match request.path.as_str() {
            "/" | "/metrics" if request.value("seconds").is_some() => Err(no_seconds()),
            "/" | "/metrics" if request.posted.is_some() => Err(not_posted()),
            "/" => Ok(self.list()),
            "/metrics" => Ok(self.metrics()),
            path => self.of_process(path, request, client).transpose()?,
        };
        Some(answer.unwrap_or_else(|answer| answer))
    }

    /// Counts the answer's bytes until the return value is dropped.
    pub fn sending(&self, answer: &Answer) -> impl Drop {
        let bytes = answer.body.len();
        self.sending_bytes.fetch_add(bytes, Ordering::Relaxed);
        OnDrop(move || {
            self.sending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Takes the same time for a wrong token as for the right one.
    fn allows(&self, request: &Request) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let given = request.token().unwrap_or_default();
        given.as_bytes().ct_eq(token.as_bytes()).into()
    }

    fn list(&self) -> Answer {
        let mut text = String::from("/metrics\n");
        if self.only.is_some() {
            text.extend(ROUTES.iter().map(|(route, _)| format!("{route}\n")));
            return Answer::new(TEXT, text.into_bytes());
        }
        for process in self.targets.all() {
            let id = process.id();
            text += &format!("/{id}\t{}\n", targets::name(id));
        }
        text += "under each:\n";
        for (route, _) in &ROUTES {
            text += &format!("{route}\n");
        }
        Answer::new(TEXT, text.into_bytes())
    }

    fn metrics(&self) -> Answer {
        let processes = self.targets.all();
        let mut unreadable = 0;
        let mut snapshots = Vec::new();
        for process in &processes {
            let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            match stats::Snapshot::at(process) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(Obstacle::Ended | Obstacle::NoProcess) => {}
                Err(_) => unreadable += 1,
            }
        }
        let mut text = Vec::new();
        // Writing to a vector cannot fail.
        let labels = match self.only {
            Some(_) => Labels::None,
            None => Labels::Process,
        };
        let _ = stats::print_metrics(&snapshots, labels, &mut text);
        if self.only.is_none() {
            let _ = self.own_metrics(snapshots.len(), unreadable, &mut text);
        }
        Answer::new(METRICS, text)
    }

    fn own_metrics(&self, served: usize, unreadable: u64, out: &mut dyn Write) -> io::Result<()> {
        let served = gauge(
            "larder_serve_processes",
            "Processes whose heaps are in these metrics.",
            served as u64,
        );
        let unreadable = gauge(
            "larder_serve_unreadable_processes",
            "Processes on Larder that could not be read.",
            unreadable,
        );
        let pusher = self.pusher.iter().flat_map(|pusher| pusher.metrics());
        for metric in [served, unreadable].into_iter().chain(pusher) {
            let OwnMetric {
                name,
                help,
                kind,
                samples,
            } = metric;
            writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
            for (label, value) in samples {
                writeln!(out, "{name}{label} {value}")?;
            }
        }
        Ok(())
    }

    /// `Ok(None)`: the client has disconnected.
    fn of_process(
        &self,
        path: &str,
        request: &Request,
        client: &Socket,
    ) -> Result<Option<Answer>, Answer> {
        let (id, route) = match self.only {
            Some(id) => (id, path),
            None => {
                let rest = path.strip_prefix('/').unwrap_or(path);
                let (number, route) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (number.parse().map_err(|_| no_such_path())?, route)
            }
        };
        let process = self
            .targets
            .get(id)
            .map_err(|missing| refused(id, &missing))?;
        let content = match ROUTES.iter().find(|(path, _)| *path == route) {
            Some((_, content)) => *content,
            None if self.only.is_some() => return Err(no_such_path()),
            None if matches!(route, "" | "/") => {
                let paths = ROUTES.iter().map(|(path, _)| format!("/{id}{path}\n"));
                let text: String = paths.collect();
                return Ok(Some(Answer::new(TEXT, text.into_bytes())));
            }
            None => {
                return Err(Answer::error(
                    404,
                    format_args!("/{id} lists what is there"),
                ));
            }
        };
        let obstacle = |obstacle| refused(id, &Missing::Obstacle(obstacle));
        match (content, &request.posted) {
            (Content::CommandLine | Content::Symbol, _) if request.value("seconds").is_some() => {
                Err(no_seconds())
            }
            (Content::CommandLine | Content::Profile(_), Some(_)) => Err(not_posted()),
            (Content::CommandLine, None) => {
                let text = process.text("cmdline").map_err(obstacle)?;
                Ok(Some(Answer::new(TEXT, text)))
            }
            (Content::Symbol, None) => Ok(Some(Answer::new(TEXT, b"num_symbols: 1\n".to_vec()))),
            (Content::Symbol, Some(addresses)) => {
                let names = names::write(&process, addresses).map_err(obstacle)?;
                Ok(Some(Answer::new(TEXT, names)))
            }
            (Content::Profile(kind), None) => self.profile(&process, kind, request, client),
        }
    }

    /// A permit to wait for a second snapshot, until it is dropped.
    fn place_to_wait(&self) -> Result<impl Drop, Answer> {
        let place = OnDrop(|| {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        });
        if self.waiting.fetch_add(1, Ordering::Relaxed) < self.most_waiting {
            return Ok(place);
        }
        let why = "too many requests with seconds= are waiting: try again";
        Err(Answer::error(503, why))
    }

    fn profile(
        &self,
        process: &Process,
        kind: Kind,
        request: &Request,
        client: &Socket,
    ) -> Result<Option<Answer>, Answer> {
        let symbols = match request.value("format") {
            None | Some("text") => false,
            Some("pprof") => true,
            Some(_) => return Err(Answer::error(400, "format= is text or pprof")),
        };
        let length = request.value("seconds").map(seconds).transpose()?;
        let obstacle = |obstacle| refused(process.id(), &Missing::Obstacle(obstacle));
        let take = || {
            let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            Snapshot::take(process).map_err(obstacle)
        };
        let mut profile = take()?;
        if let Some(length) = length {
            let _place = self.place_to_wait()?;
            if !http::wait(client, length) {
                return Ok(None);
            }
            profile = take()?.since(&profile);
        }
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut body = Vec::new();
        let (kind_of_body, written) = if symbols {
            let mut resolver = served::resolver();
            (BINARY, profile.write_pprof(kind, &mut resolver, &mut body))
        } else {
            (TEXT, profile.write_text(kind, &mut body))
        };
        written.map_err(|error| Answer::error(500, larder_base::target::reason(&error)))?;
        Ok(Some(Answer::new(kind_of_body, body)))
    }
}

fn no_such_path() -> Answer {
    Answer::error(404, "there is no such path: / lists those that are")
}

fn no_seconds() -> Answer {
    Answer::error(400, "seconds= is for heap, allocs, lifetimes and growth")
}

fn not_posted() -> Answer {
    Answer::error(405, "POST is for /pprof/symbol alone")
}

fn seconds(text: &str) -> Result<Duration, Answer> {
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| (0.001..=MOST_SECONDS).contains(value));
    let value = value.ok_or_else(|| Answer::error(400, "seconds= is from 0.001 to 3600"))?;
    Ok(Duration::from_secs_f64(value))
}

fn refused(id: u32, missing: &Missing) -> Answer {
    let status = match missing {
        Missing::Unknown => {
            let why = format_args!("process {id} is not served: / lists those that are");
            return Answer::error(404, why);
        }
        Missing::Ended | Missing::Obstacle(Obstacle::Ended | Obstacle::NoProcess) => {
            return Answer::error(410, format_args!("process {id} has ended"));
        }
        Missing::Obstacle(Obstacle::NotPermitted | Obstacle::Traced(_)) => 403,
        Missing::Obstacle(Obstacle::NotLarder | Obstacle::Narrow | Obstacle::Several) => 404,
        Missing::Obstacle(Obstacle::OtherVersion(_)) => 500,
        Missing::Obstacle(Obstacle::Unsound(_) | Obstacle::NotStopped(_)) => 503,
    };
    match missing {
        Missing::Obstacle(obstacle) => {
            Answer::error(status, format_args!("process {id}: {obstacle}"))
        }
        _ => Answer::error(status, format_args!("process {id}")),
    }
}
