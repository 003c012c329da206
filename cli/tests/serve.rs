//! `larder serve`: real sockets, and programs on the staged allocator that come, die and are looked
//! into meanwhile. pprof and promtool read what is served (PPROF and PROMTOOL name them).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::clock::Clock;
use crate::common::http::{
    TOKEN, answer, answer_to_all, connect, in_use, port, promtool_is_content, random_requests,
    request, tool,
};
use crate::common::running::{Running, failure_at, first_words, preloaded, wait_until, worker};
use crate::common::*;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

fn program(directory: &Path) -> PathBuf {
    worker(directory, "worker")
}

/// Sampled so often that nothing of what it keeps is missed.
fn start(program: &Path) -> Running {
    let mut command = preloaded(program);
    Running::once_it_says("ready\n", command.env("LARDER_PROFILE_BYTES", "4096"))
}

/// `larder serve` at a socket in a folder of its own, with a clock that stands still.
struct Server {
    running: Running,
    clock: Clock,
    path: PathBuf,
    _folder: TempDir,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let folder = temporary();
        let path = folder.path().join("socket");
        let place = format!("unix:{}", path.display());
        let mut command = larder();
        command.args(["serve", "--listen", &place]).args(arguments);
        let clock = Clock::new(folder.path());
        Self {
            running: Self::wait_for(clock.drive(&mut command)),
            clock,
            path,
            _folder: folder,
        }
    }

    fn of(process: &Running) -> Self {
        Self::start(&[&process.id().to_string()])
    }

    /// Until it says that it serves.
    fn wait_for(command: &mut Command) -> Running {
        let mut server = Running::start(command.stderr(Stdio::piped()));
        let line = first_words("\n", server.stderr.as_mut().expect("a pipe"));
        assert!(line.starts_with("larder: serving at "), "{line}");
        server
    }

    fn connect(&self) -> UnixStream {
        connect(&self.path)
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        answer(self.connect(), &request(path, ""))
    }

    #[track_caller]
    fn text(&self, path: &str) -> String {
        text_of(path, self.get(path))
    }

    /// Of a path with `?seconds=1`: what the server says when it has waited a second, in which the
    /// program has had a round.
    #[track_caller]
    fn text_with_a_round(&self, path: &str, program: &mut Running) -> String {
        text_of(path, self.get_with_a_round(path, program))
    }

    #[track_caller]
    fn get_with_a_round(&self, path: &str, program: &mut Running) -> (u16, Vec<u8>) {
        let mut client = self.connect();
        client.write_all(&request(path, "")).expect("sent");
        self.clock.wait_for(1.0, 1);
        program.round();
        self.clock.wait_and_pass(1.0);
        answer(client, b"")
    }
}

#[track_caller]
fn text_of(path: &str, (status, body): (u16, Vec<u8>)) -> String {
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

#[test]
fn a_process_is_served_from_outside() {
    let directory = temporary();
    let mut running = start(&program(directory.path()));
    running.round();
    let server = Server::of(&running);
    let id = running.id();
    let mode = fs::symlink_metadata(&server.path).expect("the socket");
    assert!(mode.file_type().is_socket());
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    assert!(server.text("/").contains(&format!("/{id}\tworker\n")));
    let routes = server.text(&format!("/{id}"));
    assert_eq!(routes.lines().count(), 10);
    for route in routes.lines() {
        assert!(!server.text(route).is_empty(), "{route}");
    }
    for route in ["debug/pprof/heap", "debug/pprof/allocs", "pprof/heap"] {
        let heap = server.text(&format!("/{id}/{route}"));
        assert!(
            heap.starts_with("heap profile: ") && heap.contains("@ heapprofile"),
            "{heap}"
        );
        assert!(
            heap.contains("\nMAPPED_LIBRARIES:\n") && heap.contains("/worker\n"),
            "{heap}"
        );
        assert!((30 << 20..400 << 20).contains(&in_use(&heap)), "{heap}");
    }
    assert!(
        server
            .text(&format!("/{id}/debug/pprof/lifetimes"))
            .contains("; lifetimes ")
    );
    assert!(
        server
            .text(&format!("/{id}/debug/pprof/growth"))
            .contains("@ growthz\n")
    );
    let (_, words) = server.get(&format!("/{id}/pprof/cmdline"));
    assert!(words.ends_with(b"/worker\0"), "{words:?}");
    let metrics = server.text("/metrics");
    let line = format!("larder_in_use_bytes{{pid=\"{id}\",comm=\"worker\"}} ");
    let value = metrics.lines().find_map(|text| text.strip_prefix(&line));
    let value: u64 = value.and_then(|v| v.parse().ok()).expect("in use");
    assert!(value > 40 << 20);
    for (path, status) in [
        ("/nothing", 404),
        ("/1", 404),
        ("/99999999999", 404),
        (&format!("/{id}/nothing"), 404),
        (&format!("/{id}/debug/pprof/heap?seconds=0"), 400),
        (&format!("/{id}/debug/pprof/heap?seconds=nan"), 400),
        (&format!("/{id}/debug/pprof/heap?format=xml"), 400),
    ] {
        let (is, body) = server.get(path);
        assert_eq!(is, status, "{path}");
        assert_eq!(
            body.iter().filter(|byte| **byte == b'\n').count(),
            1,
            "one line"
        );
    }
}

#[test]
fn what_happens_between_two_looks_is_reported() {
    let directory = temporary();
    let mut running = start(&program(directory.path()));
    let server = Server::of(&running);
    let id = running.id();
    let path = |route: &str| format!("/{id}/debug/pprof/{route}");
    let grown = server.text_with_a_round(&path("growth?seconds=1"), &mut running);
    assert!((3 << 20..5 << 20).contains(&in_use(&grown)), "{grown}");
    let whole = server.text(&path("growth"));
    assert!(
        in_use(&grown) + (30 << 20) < in_use(&whole),
        "{grown}{whole}"
    );
    let allocs = server.text_with_a_round(&path("allocs?seconds=1"), &mut running);
    let allocated = allocs
        .split(['[', ']'])
        .nth(1)
        .and_then(|both| both.split(' ').nth(1));
    let allocated: u64 = allocated
        .and_then(|bytes| bytes.parse().ok())
        .expect("a number");
    assert!(allocated > 4 * in_use(&allocs), "most is dropped: {allocs}");
    let lifetimes = server.text_with_a_round(&path("lifetimes?seconds=1"), &mut running);
    assert!(lifetimes.contains("; lifetimes "));
}

#[test]
fn symbols_are_in_pprofs_format_and_pprof_finds_them_for_text() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let id = running.id();
    let server = Server::of(&running);
    let (status, packed) = server.get(&format!("/{id}/debug/pprof/heap?format=pprof"));
    assert_eq!(status, 200);
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut profile)
        .expect("gzip");
    let has = |name: &[u8]| profile.windows(name.len()).any(|part| part == name);
    assert!(has(b"keep") && has(b"worker.c") && has(b"inuse_space"));
    promtool_is_content(&server.text("/metrics"));
    let pprof = tool("PPROF", "pprof");
    let port = port();
    let _server = at_port(port, &id.to_string());
    for more in ["heap", "heap?format=pprof", "allocs", "growth"] {
        let url = format!("http://x:{TOKEN}@127.0.0.1:{port}/{id}/debug/pprof/{more}");
        let mut read = Command::new(&pprof);
        read.args(["-top", &url])
            .env("PPROF_TMPDIR", directory.path());
        let read = output(&mut read);
        assert_success(&read);
        let names = ["keep", "more", "drop"];
        assert!(
            names.iter().any(|name| stdout(&read).contains(name)),
            "{}",
            stdout(&read)
        );
    }
}

fn at_port(port: u16, process: &str) -> Running {
    let mut command = larder();
    command.args(["serve", process, "--listen", &format!("127.0.0.1:{port}")]);
    Server::wait_for(command.env("LARDER_TOKEN", TOKEN))
}

#[test]
fn a_port_takes_the_token() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let id = running.id().to_string();
    let port = port();
    let _server = at_port(port, &id);
    let status = |path: &str, fields: &str| {
        let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        answer(client, &request(path, fields)).0
    };
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    let wrong = format!("Authorization: Bearer {TOKEN}x\r\n");
    for path in [
        "/",
        "/metrics",
        "/nothing",
        &format!("/{id}/debug/pprof/heap"),
    ] {
        let found = if path == "/nothing" { 404 } else { 200 };
        assert_eq!(status(path, &right), found, "{path}");
        assert_eq!(
            status(&format!("{path}?token={TOKEN}"), ""),
            found,
            "{path}"
        );
        for refused in [
            &wrong,
            "",
            "Authorization: Bearer \r\n",
            "Authorization: Basic x\r\n",
        ] {
            assert_eq!(status(path, refused), 401, "{path} {refused}");
        }
        assert_eq!(status(&format!("{path}?token={}", &TOKEN[1..]), ""), 401);
    }
    let again = format!("127.0.0.1:{port}");
    let mut serve = larder();
    serve.args(["serve", &id, "--listen", &again]);
    assert_fails(&output(&mut serve), 125, &["token", "openssl rand"]);
    assert_fails(
        &output(serve.env("LARDER_TOKEN", "short")),
        125,
        &["16 to 255"],
    );
    let file = directory.path().join("token");
    fs::write(&file, TOKEN).expect("written");
    serve.arg("--token-file").arg(&file);
    assert_fails(&output(&mut serve), 125, &["in use", "free"]);
    for place in [
        "0.0.0.0:6070",
        "localhost:6070",
        "6070",
        "unix:",
        "127.0.0.1:0",
    ] {
        let refused = output(larder().args(["serve", &id, "--listen", place]));
        assert_fails(&refused, 125, &["--listen"]);
    }
}

#[test]
fn a_place_that_is_taken_is_left_alone() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let id = running.id().to_string();
    let mut server = Server::of(&running);
    let try_at = |path: &Path| {
        let place = format!("unix:{}", path.display());
        output(larder().args(["serve", &id, "--listen", &place]))
    };
    assert_fails(&try_at(&server.path), 125, &["in use", "name a path"]);
    assert!(!server.text("/").is_empty(), "the first goes on");
    // Killed, it leaves a dead socket.
    server.running.end();
    assert!(server.path.exists());
    let place = format!("unix:{}", server.path.display());
    let mut again = Server::wait_for(larder().args(["serve", &id, "--listen", &place]));
    assert!(!server.text("/").is_empty(), "the next one takes it over");
    let stopped = Command::new("kill")
        .args(["-TERM", &again.id().to_string()])
        .status();
    assert!(stopped.expect("kill").success());
    assert_eq!(again.wait().code(), Some(0));
    assert!(!server.path.exists(), "and takes it away");
    let file = directory.path().join("file");
    fs::write(&file, "mine").expect("written");
    assert_fails(&try_at(&file), 125, &["in use"]);
    assert_eq!(fs::read(&file).expect("it is there"), b"mine");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("elsewhere", &link).expect("a link");
    assert_fails(&try_at(&link), 125, &["in use"]);
    let live = directory.path().join("live");
    let _other = UnixListener::bind(&live).expect("a socket");
    assert_fails(&try_at(&live), 125, &["in use"]);
    assert!(live.exists());
    assert_fails(&try_at(Path::new("/no/such/place")), 125, &["no such file"]);
}

#[test]
fn a_socket_that_another_may_be_making_is_left_alone() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let folder = temporary();
    let path = folder.path().join("socket");
    // Nobody listens, as between bind and listen; who makes a socket holds the folder.
    drop(UnixListener::bind(&path).expect("a socket"));
    let held = File::open(folder.path()).expect("the folder");
    flock(&held, FlockOperation::LockExclusive).expect("nobody else has it");
    let clock = Clock::new(directory.path());
    let mut serve = larder();
    serve
        .args(["serve", &running.id().to_string(), "--listen"])
        .arg(format!("unix:{}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let serve = clock.drive(&mut serve).spawn().expect("it starts");
    clock.wait_for(0.01, 1);
    clock.pass(Duration::from_secs(1));
    let ended = serve.wait_with_output().expect("it ends");
    assert_fails(&ended, 125, &["in use"]);
    assert!(path.exists());
}

#[test]
fn a_process_may_die_while_it_is_looked_at() {
    let directory = temporary();
    let program = program(directory.path());
    let [mut dying, staying] = [(); 2].map(|()| start(&program));
    let ids = [dying.id(), staying.id()].map(|id| id.to_string());
    let server = Server::start(&[&ids[0], &ids[1]]);
    let heap = format!("/{}/debug/pprof/heap", ids[0]);
    let waiting = format!("/{}/debug/pprof/allocs?seconds=20", ids[0]);
    let deadline = failure_at();
    let (to, begun) = channel();
    std::thread::scope(|scope| {
        let mut client = server.connect();
        client.write_all(&request(&waiting, "")).expect("sent");
        let long = scope.spawn(|| answer(client, b"").0);
        let scrapes: Vec<_> = (0..4)
            .map(|_| {
                let to = to.clone();
                let (server, heap) = (&server, &heap);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    while seen.last() != Some(&410) && Instant::now() < deadline {
                        seen.push(server.get(heap).0);
                        if seen.len() == 10 {
                            to.send(()).expect("waited for");
                        }
                        assert_eq!(server.get("/metrics").0, 200);
                    }
                    seen
                })
            })
            .collect();
        drop(to);
        for _ in 0..4 {
            begun.recv().expect("answers");
        }
        dying.end();
        for scrape in scrapes {
            let seen = scrape.join().expect("it ends");
            assert_eq!((seen.first(), seen.last()), (Some(&200), Some(&410)));
            assert!(
                seen.iter().all(|status| [200, 410].contains(status)),
                "{seen:?}"
            );
        }
        server.clock.wait_and_pass(20.0);
        assert_eq!(long.join().expect("it ends"), 410);
    });
    let (status, body) = server.get(&heap);
    assert_eq!(
        (status, &body[..]),
        (410, format!("process {} has ended\n", ids[0]).as_bytes())
    );
    let metrics = server.text("/metrics");
    assert!(!metrics.contains(&format!("pid=\"{}\"", ids[0])));
    assert!(metrics.contains(&format!("pid=\"{}\"", ids[1])));
    assert!(metrics.contains("\nlarder_serve_processes 1\n"));
}

#[test]
fn processes_are_found_as_they_come() {
    let directory = temporary();
    let own = directory.path().join("coming");
    fs::rename(program(directory.path()), &own).expect("renamed");
    let server = Server::start(&["--name", "^com[i]ng$"]);
    let listed = |id: u32| server.text("/").contains(&format!("/{id}\tcoming\n"));
    let mut first = start(&own);
    let second = start(&own);
    let other = start(&program(directory.path()));
    assert!(listed(first.id()) && listed(second.id()) && !listed(other.id()));
    let of = |id: u32| server.get(&format!("/{id}/debug/pprof/heap")).0;
    assert_eq!((of(first.id()), of(other.id())), (200, 404));
    first.end();
    assert_eq!(of(first.id()), 410);
    assert!(!listed(first.id()) && listed(second.id()));
    let metrics = server.text("/metrics");
    assert!(metrics.contains(&format!("pid=\"{}\",comm=\"coming\"", second.id())));
    assert!(!metrics.contains("worker"));
    let all = Server::start(&["--all"]);
    let list = all.text("/");
    for id in [second.id(), other.id()] {
        assert!(list.contains(&format!("/{id}\t")), "{list}");
    }
    assert!(
        !list.contains(&format!("/{}\t", std::process::id())),
        "not on Larder"
    );
}

#[test]
fn clients_do_not_wait_for_each_other() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let server = Server::of(&running);
    let heap = format!("/{}/debug/pprof/heap", running.id());
    // Clients that send nothing, that stop in the middle, and that do not read.
    let silent: Vec<_> = (0..20).map(|_| server.connect()).collect();
    let mut half = server.connect();
    half.write_all(b"GET /metrics HT").expect("sent");
    let deaf: Vec<_> = (0..10)
        .map(|_| {
            let mut client = server.connect();
            client.write_all(&request("/metrics", "")).expect("sent");
            client
        })
        .collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(|| server.get(&heap))).collect();
        for client in clients {
            let (status, body) = client.join().expect("an answer");
            assert_eq!(status, 200);
            assert!(body.starts_with(b"heap profile: "));
        }
    });
    server.clock.wait_for(2.0, 21);
    server.clock.pass(Duration::from_secs(2));
    for mut client in silent.into_iter().chain([half]) {
        assert_eq!(client.read(&mut [0]).expect("let go"), 0);
    }
    drop(deaf);
    // More than are answered at once get 503, and the server goes on.
    let many: Vec<_> = (0..80).map(|_| server.connect()).collect();
    let mut last = &many[79];
    let mut reported = [0; 12];
    last.read_exact(&mut reported).expect("an answer");
    assert_eq!(&reported, b"HTTP/1.1 503");
    drop(many);
    wait_until("served again", || server.get(&heap).0 == 200);
}

#[test]
fn what_is_no_request_is_refused() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let server = Server::of(&running);
    let long = [b"GET /", &b"x".repeat(100_000)[..], b" HTTP/1.1\r\n\r\n"].concat();
    for (text, want) in [
        (&long[..], 431),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789", 413),
        (b"\0\xff\r\n\r\n", 400),
    ] {
        assert_eq!(answer(server.connect(), text).0, want, "{}", text.len());
    }
    for mut bytes in random_requests() {
        bytes.extend(b"\r\n\r\n");
        assert_ne!(answer_to_all(server.connect(), &bytes), 200);
    }
    assert_eq!(server.get("/metrics").0, 200);
}

#[test]
fn what_cannot_be_served_is_reported_at_the_start() {
    let own = std::process::id().to_string();
    let serve = |arguments: &[&str]| {
        let folder = temporary();
        let place = format!("unix:{}", folder.path().join("socket").display());
        output(larder().args(["serve", "--listen", &place]).args(arguments))
    };
    assert_fails(&serve(&[&own]), 125, &["does not run on Larder"]);
    assert_fails(&serve(&["4194304"]), 125, &["no such process"]);
    assert_fails(&serve(&[]), 125, &["required"]);
    assert_fails(&serve(&["--name", "("]), 125, &["--name"]);
    assert_fails(&serve(&["--all", &own]), 125, &["--all"]);
    assert_fails(
        &output(larder().args(["serve", "--all"])),
        125,
        &["--listen"],
    );
}

#[test]
fn who_has_ended_sending_is_answered_and_who_has_gone_is_not_waited_for() {
    let directory = temporary();
    let running = start(&program(directory.path()));
    let server = Server::of(&running);
    let asked = request(&format!("/{}/debug/pprof/heap?seconds=1", running.id()), "");
    let mut client = server.connect();
    client.write_all(&asked).expect("sent");
    client.shutdown(Shutdown::Write).expect("still there");
    server.clock.wait_and_pass(1.0);
    assert_eq!(answer(client, b"").0, 200);
    // Clients that have closed take all places, but only for a moment.
    let long = request(
        &format!("/{}/debug/pprof/heap?seconds=3600", running.id()),
        "",
    );
    for _ in 0..64 {
        server.connect().write_all(&long).expect("sent");
    }
    wait_until("without the closed clients", || {
        server.get("/metrics").0 == 200
    });
}

#[test]
fn what_is_served_is_read_by_larder_profile() {
    let directory = temporary();
    let mut running = start(&program(directory.path()));
    let server = Server::of(&running);
    let id = running.id();
    let served = |route: &str| format!("/{id}/debug/pprof/{route}");
    for (route, words) in [
        ("heap?seconds=1", " in use, "),
        ("growth?seconds=1", "does not state which"),
        ("heap", " in use, "),
    ] {
        let path = directory.path().join("served");
        let text = match route.ends_with("seconds=1") {
            true => server.text_with_a_round(&served(route), &mut running),
            false => server.text(&served(route)),
        };
        fs::write(&path, text).expect("a file");
        let read = output(larder().arg("profile").arg(&path));
        assert_success(&read);
        let text = stdout(&read);
        assert!(
            text.contains(words) && text.contains("more"),
            "{route}: {text}"
        );
    }
    let packed = served("heap?seconds=1&format=pprof");
    let (_, packed) = server.get_with_a_round(&packed, &mut running);
    let path = directory.path().join("served.pb.gz");
    fs::write(&path, packed).expect("a file");
    let read = output(larder().arg("profile").arg(&path));
    assert_fails(&read, 125, &["read it with pprof"]);
}
