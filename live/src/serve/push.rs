//! Sends the profiles to a receiver at an interval: Pyroscope's `/ingest`, or Parca's `/profiles/writeraw`.
//!
//! One thread takes the profiles, and another sends them, with a queue of bounded bytes between them; a
//! full queue drops its oldest entry. Requests wait for neither thread. A send that fails is tried again
//! after 1 s, 2 s, 4 s … up to 60 s; a profile that the receiver refuses is not sent again.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use larder_analysis::reading::losses;
use larder_base::printable;
use serde_json::json;
use ureq::http::{HeaderName, HeaderValue, Uri};

use super::routes::{OwnMetric, gauge};
use super::targets::{self, Targets};
use crate::process::Process;
use crate::profile::served::{self, Kind, Resolver, Snapshot};

/// Limit on the bytes in the queue.
const MOST_BYTES: usize = 32 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(60);
/// A resolver keeps the symbols of files, also of deleted ones, so it is replaced now and then.
const RESOLVER_LIFE: Duration = Duration::from_secs(3600);

/// The format that the receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// pprof as the body, labels in the query; allocations are those since the last push.
    Pyroscope,
    /// JSON that contains the pprof; allocations are those since the start.
    Parca,
}

impl Shape {
    /// The end of the path decides.
    pub fn of(path: &str) -> Option<Self> {
        if path.ends_with("/ingest") {
            Some(Self::Pyroscope)
        } else if path.ends_with("/profiles/writeraw") {
            Some(Self::Parca)
        } else {
            None
        }
    }
}

#[derive(Debug)]
pub struct PushPlan {
    pub url: Uri,
    pub shape: Shape,
    pub interval: Duration,
    /// In addition to those of each process.
    pub labels: Vec<(String, String)>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A request to send.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    query: Vec<(&'static str, String)>,
    kind: &'static str,
    body: Vec<u8>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Message>,
    bytes: usize,
}

#[derive(Default)]
pub struct Pusher {
    queue: Mutex<Queue>,
    more: Condvar,
    sent: AtomicU64,
    failures: AtomicU64,
    refused: AtomicU64,
    overflowed: AtomicU64,
}

impl Pusher {
    /// Starts two threads, which never end.
    pub fn start(plan: PushPlan, targets: Arc<Targets>) -> std::io::Result<Arc<Self>> {
        let (pusher, plan) = (Arc::new(Self::default()), Arc::new(plan));
        let (gatherer, its_plan) = (pusher.clone(), plan.clone());
        let gather = move || gatherer.gather(&its_plan, &targets);
        thread::Builder::new()
            .name("larder-gather".into())
            .spawn(gather)?;
        let sender = pusher.clone();
        let send = move || sender.send(&plan);
        thread::Builder::new()
            .name("larder-push".into())
            .spawn(send)?;
        Ok(pusher)
    }

    pub fn metrics(&self) -> Vec<OwnMetric> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counter = |name, help, samples| OwnMetric {
            name,
            help,
            kind: "counter",
            samples,
        };
        vec![
            counter(
                "larder_push_sent_total",
                "Profiles that the receiver accepted.",
                vec![("", count(&self.sent))],
            ),
            counter(
                "larder_push_failures_total",
                "Sends that failed and are tried again.",
                vec![("", count(&self.failures))],
            ),
            counter(
                "larder_push_dropped_total",
                "Profiles that were dropped unsent.",
                vec![
                    ("{reason=\"refused\"}", count(&self.refused)),
                    ("{reason=\"overflow\"}", count(&self.overflowed)),
                ],
            ),
            gauge(
                "larder_push_waiting_profiles",
                "Profiles that wait to be sent.",
                queue.waiting.len() as u64,
            ),
            gauge(
                "larder_push_waiting_bytes",
                "Bytes that wait to be sent.",
                queue.bytes as u64,
            ),
        ]
    }

    fn gather(&self, plan: &PushPlan, targets: &Targets) {
        let host = host();
        let mut before: HashMap<u32, (Arc<Process>, Snapshot)> = HashMap::new();
        let mut resolver = (Instant::now(), served::resolver());
        let mut due = Instant::now();
        loop {
            if resolver.0.elapsed() > RESOLVER_LIFE {
                resolver = (Instant::now(), served::resolver());
            }
            let mut now = HashMap::new();
            for process in targets.all() {
                let Ok(snapshot) = Snapshot::take(&process) else {
                    continue;
                };
                let last = before.remove(&process.id());
                let last = last.filter(|(known, _)| Arc::ptr_eq(known, &process));
                let last = last.map(|(_, snapshot)| snapshot);
                let labels = labels(plan, &host, process.id());
                if let Some(message) = message(plan, &labels, &snapshot, last, &mut resolver.1) {
                    self.put(message);
                }
                now.insert(process.id(), (process, snapshot));
            }
            before = now;
            // Intervals that were missed are skipped.
            due = (due + plan.interval).max(Instant::now());
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }

    fn put(&self, message: Message) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.bytes += message.body.len();
        queue.waiting.push_back(message);
        while queue.bytes > MOST_BYTES
            && let Some(oldest) = queue.waiting.pop_front()
        {
            queue.bytes -= oldest.body.len();
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        self.more.notify_one();
    }

    /// Waits until there is one.
    fn take(&self) -> Message {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(message) = queue.waiting.pop_front() {
                queue.bytes -= message.body.len();
                return message;
            }
            queue = self
                .more
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn send(&self, plan: &PushPlan) {
        let agent = agent();
        let mut reported = Reported::default();
        loop {
            let message = self.take();
            let mut pause = LEAST_PAUSE;
            loop {
                match post(&agent, plan, &message) {
                    Outcome::Taken => {
                        self.sent.fetch_add(1, Ordering::Relaxed);
                        reported.works(plan);
                        break;
                    }
                    Outcome::Refused(why) => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        reported.fails(plan, &why);
                        break;
                    }
                    Outcome::Failed(why) => {
                        self.failures.fetch_add(1, Ordering::Relaxed);
                        reported.fails(plan, &why);
                        thread::sleep(pause);
                        pause = (pause * 2).min(MOST_PAUSE);
                    }
                }
            }
        }
    }
}

/// Reports once that sending fails, and once that it works again.
#[derive(Default)]
struct Reported(bool);

impl Reported {
    fn fails(&mut self, plan: &PushPlan, why: &str) {
        if !std::mem::replace(&mut self.0, true) {
            losses::warn(&format!("{}: {why}; the push is tried again", plan.url));
        }
    }

    fn works(&mut self, plan: &PushPlan) {
        if std::mem::take(&mut self.0) {
            losses::warn(&format!("{}: accepts profiles again", plan.url));
        }
    }
}

enum Outcome {
    Taken,
    /// Trying again would not help.
    Refused(String),
    Failed(String),
}

fn agent() -> ureq::Agent {
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::PlatformVerifier)
        .build();
    ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build()
        .into()
}

fn post(agent: &ureq::Agent, plan: &PushPlan, message: &Message) -> Outcome {
    let mut request = agent.post(plan.url.clone()).content_type(message.kind);
    for (name, value) in &message.query {
        request = request.query(name, value);
    }
    for (name, value) in &plan.headers {
        request = request.header(name, value);
    }
    let mut response = match request.send(&message.body) {
        Ok(response) => response,
        Err(error) => return Outcome::Failed(printable::escape(&error.to_string()).into_owned()),
    };
    let status = response.status();
    if status.is_success() {
        return Outcome::Taken;
    }
    let mut said = Vec::new();
    let body = response.body_mut().as_reader();
    // The rest of the answer is not needed.
    let _ = body.take(200).read_to_end(&mut said);
    let said = printable::escape_bytes(said.trim_ascii());
    let why = format!("it answers {}: {said}", status.as_u16());
    let may_pass = matches!(status.as_u16(), 401 | 403 | 404 | 408 | 425 | 429);
    if status.is_client_error() && !may_pass {
        Outcome::Refused(why)
    } else {
        Outcome::Failed(why)
    }
}

fn host() -> String {
    let name = rustix::system::uname();
    printable::escape_bytes(name.nodename().to_bytes())
}

/// A process's labels; those of the plan take precedence.
fn labels(plan: &PushPlan, host: &str, id: u32) -> Vec<(String, String)> {
    let name = targets::name(id);
    let mut labels = plan.labels.clone();
    let own = [
        ("service_name", name.clone()),
        ("comm", name),
        ("pid", id.to_string()),
        ("host", host.to_owned()),
    ];
    for (name, value) in own {
        if !labels.iter().any(|(known, _)| known == name) {
            labels.push((name.to_owned(), value));
        }
    }
    labels
}

/// `None`: the profile cannot be written.
fn message(
    plan: &PushPlan,
    labels: &[(String, String)],
    snapshot: &Snapshot,
    last: Option<Snapshot>,
    resolver: &mut Resolver,
) -> Option<Message> {
    let mut body = Vec::new();
    match plan.shape {
        Shape::Pyroscope => {
            let between = snapshot.allocated_since(last.as_ref());
            between.write_pprof(Kind::InUse, resolver, &mut body).ok()?;
            let until = snapshot.seconds();
            let from = last.map_or_else(
                || until.saturating_sub(plan.interval.as_secs()),
                |last| last.seconds(),
            );
            Some(Message {
                query: vec![
                    ("name", pyroscope_name(labels)),
                    ("from", from.to_string()),
                    ("until", until.to_string()),
                    ("format", "pprof".to_owned()),
                    ("spyName", "larder".to_owned()),
                ],
                kind: "application/octet-stream",
                body,
            })
        }
        Shape::Parca => {
            snapshot
                .write_pprof(Kind::InUse, resolver, &mut body)
                .ok()?;
            Some(Message {
                query: Vec::new(),
                kind: "application/json",
                body: parca_request(labels, &body).to_string().into_bytes(),
            })
        }
    }
}

/// `app{name=value,…}`. The name of the application has letters, digits and `-._/`; a value has no
/// comma and no brackets.
fn pyroscope_name(labels: &[(String, String)]) -> String {
    let application = labels.iter().find(|(name, _)| name == "service_name");
    let application = application.map_or("larder", |(_, value)| value);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    let application = application.replace(|c: char| !allowed(c), "_");
    let rest = labels.iter().filter(|(name, _)| name != "service_name");
    let rest: Vec<String> = rest
        .map(|(name, value)| format!("{name}={}", value.replace([',', '{', '}'], "_")))
        .collect();
    let application = if application.is_empty() {
        "larder"
    } else {
        &application
    };
    format!("{application}{{{}}}", rest.join(","))
}

/// A `WriteRawRequest` of parca.profilestore.v1alpha1, with addresses as in the files.
fn parca_request(labels: &[(String, String)], profile: &[u8]) -> serde_json::Value {
    let labels = labels
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}));
    let name = json!({"name": "__name__", "value": "memory"});
    let labels: Vec<_> = std::iter::once(name).chain(labels).collect();
    json!({
        "series": [{
            "labels": {"labels": labels},
            "samples": [{"rawProfile": BASE64_STANDARD.encode(profile)}],
        }],
        "normalized": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(owned).collect()
    }

    #[test]
    fn a_name_cannot_end_its_label() {
        let labels = pairs(&[
            ("service_name", "a b{c}"),
            ("comm", "x},pid=1"),
            ("pid", "7"),
        ]);
        assert_eq!(pyroscope_name(&labels), "a_b_c_{comm=x__pid=1,pid=7}");
        assert_eq!(pyroscope_name(&pairs(&[("service_name", "")])), "larder{}");
        let request = parca_request(&labels, b"\x1f\x8b");
        let series = &request["series"][0];
        assert_eq!(series["labels"]["labels"][0]["value"], "memory");
        assert_eq!(series["labels"]["labels"][2]["value"], "x},pid=1");
        assert_eq!(series["samples"][0]["rawProfile"], "H4s=");
    }

    #[test]
    fn what_waits_is_bounded_and_the_oldest_goes() {
        let pusher = Pusher::default();
        for number in 0..5u8 {
            pusher.put(Message {
                query: Vec::new(),
                kind: "",
                body: vec![number; MOST_BYTES / 3],
            });
        }
        let metrics = pusher.metrics();
        let of = |name| {
            metrics
                .iter()
                .find(|metric| metric.name == name)
                .map(|m| m.samples.clone())
        };
        assert_eq!(of("larder_push_waiting_profiles"), Some(vec![("", 3)]));
        let dropped = of("larder_push_dropped_total").unwrap_or_default();
        assert_eq!(dropped[1], ("{reason=\"overflow\"}", 2));
        assert_eq!(pusher.take().body[0], 2);
    }

    #[test]
    fn the_path_decides_the_receivers_format() {
        assert_eq!(Shape::of("/ingest"), Some(Shape::Pyroscope));
        assert_eq!(Shape::of("/api/profiles/writeraw"), Some(Shape::Parca));
        for other in ["/", "", "/ingest/", "/push.v1.PusherService/Push"] {
            assert_eq!(Shape::of(other), None, "{other}");
        }
    }
}
