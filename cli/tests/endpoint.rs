//! `liblarder_endpoint.so`: what a program serves of itself, to whom, and what it must not notice of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::http::{
    TOKEN, answer, answer_to_all, connect, in_use, port, promtool_is_content, random_requests,
    request, tool,
};
use crate::common::running::{Running, wait_until, worker};
use crate::common::*;

/// The program on liblarder, which listens there.
fn listening(program: &Path, place: &str) -> Command {
    let names = ["liblarder.so", "liblarder_endpoint.so"];
    let preload = names.map(|name| library_directory().join(name));
    let mut command = Command::new(program);
    command
        .env(
            "LD_PRELOAD",
            std::env::join_paths(preload).expect("no colons"),
        )
        .env("LARDER_LISTEN", place)
        .stderr(Stdio::piped());
    command
}

struct Program {
    running: Running,
    path: PathBuf,
    folder: tempfile::TempDir,
}

impl Program {
    fn start() -> Self {
        Self::of(|folder| worker(folder, "worker"), |_| {})
    }

    /// Until it is `ready`, at a socket in a folder of its own.
    fn of(program: impl Fn(&Path) -> PathBuf, set_up: impl Fn(&mut Command)) -> Self {
        let folder = temporary();
        let pattern = folder.path().join("socket.%p");
        let mut command = listening(
            &program(folder.path()),
            &format!("unix:{}", pattern.display()),
        );
        set_up(&mut command);
        let running = Running::once_it_says("ready\n", &mut command);
        let path = folder.path().join(format!("socket.{}", running.id()));
        Self {
            running,
            path,
            folder,
        }
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        answer(connect(&self.path), &request(path, ""))
    }

    #[track_caller]
    fn text(&self, path: &str) -> String {
        let (status, body) = self.get(path);
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn post(&self, path: &str, text: &str) -> (u16, String) {
        let length = text.len();
        let request = format!("POST {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{text}");
        let (status, body) = answer(connect(&self.path), request.as_bytes());
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// What its threads have open, by thread.
    fn files(&self) -> Vec<(String, Vec<String>)> {
        let tasks = format!("/proc/{}/task", self.running.id());
        let tasks = fs::read_dir(tasks).expect("it runs").flatten();
        tasks
            .map(|task| {
                let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                let files = fs::read_dir(task.path().join("fd")).into_iter().flatten();
                let links = files
                    .flatten()
                    .filter_map(|file| fs::read_link(file.path()).ok());
                let links = links.map(|link| link.display().to_string());
                (name.trim_end().to_owned(), links.collect())
            })
            .collect()
    }

    /// Its exit code, and what it says on stderr.
    fn end(mut self) -> (Option<i32>, String, PathBuf, tempfile::TempDir) {
        drop(self.running.stdin.take());
        let code = self.running.wait().code();
        let mut said = String::new();
        let stderr = self.running.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut said).expect("text");
        (code, said, self.path, self.folder)
    }
}

#[test]
fn a_program_serves_itself() {
    let program = Program::start();
    let mode = fs::symlink_metadata(&program.path).expect("the socket");
    assert!(mode.file_type().is_socket());
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let routes = program.text("/");
    assert_eq!(routes.lines().count(), 11, "{routes}");
    for route in routes.lines() {
        assert!(!program.text(route).is_empty(), "{route}");
        let old = format!("GET {route} HTTP/1.0\r\n\r\n");
        assert_eq!(
            answer(connect(&program.path), old.as_bytes()).0,
            200,
            "{route}"
        );
    }
    let heap = program.text("/debug/pprof/heap");
    assert!(
        heap.starts_with("heap profile: ") && heap.contains("/worker\n"),
        "{heap}"
    );
    assert!((30 << 20..400 << 20).contains(&in_use(&heap)), "{heap}");
    assert!(program.text("/pprof/growth").contains("@ growthz\n"));
    assert!(program.text("/pprof/cmdline").ends_with("/worker\0"));
    assert!(
        program
            .text("/debug/pprof/growth?seconds=0.001")
            .contains("@ growthz\n")
    );
    let metrics = program.text("/metrics");
    promtool_is_content(&metrics);
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix("larder_in_use_bytes "));
    let value: u64 = value
        .and_then(|value| value.parse().ok())
        .expect("a number");
    assert!((40 << 20..60 << 20).contains(&value), "{value}");
    for (path, want) in [
        ("/nothing", 404),
        ("/metrics/", 404),
        ("/metrics?seconds=3", 400),
        ("/pprof/heap?seconds=0", 400),
        ("/pprof/heap?seconds=", 400),
        ("/pprof/heap?seconds=3601", 400),
        (&format!("/{}/pprof/heap", program.running.id()), 404),
    ] {
        assert_eq!(program.get(path).0, want, "{path}");
    }
    let (code, said, path, _folder) = program.end();
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(!path.exists(), "the socket goes with the program");
}

#[test]
fn the_program_has_no_socket_and_keeps_its_signals() {
    let program = Program::start();
    assert_eq!(program.get("/metrics").0, 200);
    let files = program.files();
    let (name, own) = files.first().expect("a thread");
    assert_eq!(name, "worker");
    assert!(!own.iter().any(|file| file.contains("socket")), "{own:?}");
    let of_endpoint = files.iter().find(|(name, _)| name == "larder-endpoint");
    let (_, of_endpoint) = of_endpoint.expect("its thread has a name");
    assert!(
        !of_endpoint.iter().any(|file| file.starts_with("pipe:")),
        "{of_endpoint:?}"
    );
    let mut seen = Vec::new();
    let status = format!("/proc/{}/task", program.running.id());
    for task in fs::read_dir(status).expect("it runs").flatten() {
        // The thread of an answered connection ends.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked =
            u64::from_str_radix(blocked.expect("a mask").trim(), 16).expect("hexadecimal");
        let is_own = task.file_name().to_str() == Some(&program.running.id().to_string());
        // All but SIGKILL, SIGSTOP, and the C library's own.
        assert_eq!(blocked.count_ones() < 10, is_own, "{blocked:x}");
        seen.push(is_own);
    }
    assert!(seen.contains(&true) && seen.contains(&false), "{seen:?}");
}

#[test]
fn pprof_asks_for_names() {
    let program = Program::start();
    assert_eq!(program.text("/pprof/symbol"), "num_symbols: 1\n");
    let heap = program.text("/pprof/heap");
    let frames = heap.lines().filter_map(|line| line.split_once("] @ "));
    let frames: Vec<u64> = frames
        .flat_map(|(_, frames)| frames.split(' '))
        .filter_map(|frame| u64::from_str_radix(frame.strip_prefix("0x")?, 16).ok())
        .collect();
    let asked: Vec<String> = frames
        .iter()
        .map(|frame| format!("{:#x}", frame - 1))
        .collect();
    let (status, names) = program.post("/pprof/symbol", &asked.join("+"));
    assert_eq!(status, 200);
    let keep = names
        .lines()
        .find(|line| line.ends_with("\tkeep"))
        .expect(&names);
    assert!(names.contains("\tmain\n"), "{names}");
    let (address, _) = keep.split_once('\t').expect("an address");
    let noise = format!("{address}+{address}+x++0x+0xg+0x1+0xffffffffffffffff+0x11111111111111111");
    assert_eq!(
        program.post("/pprof/symbol", &noise),
        (200, format!("{keep}\n"))
    );
    assert_eq!(program.post("/pprof/symbol", ""), (200, String::new()));
    for (path, text, want) in [
        ("/pprof/symbol", "x".repeat(512 << 10), 200),
        ("/pprof/symbol", "x".repeat((512 << 10) + 1), 413),
        ("/pprof/heap", "0x1".to_owned(), 405),
        ("/metrics", String::new(), 405),
    ] {
        assert_eq!(
            program.post(path, &text).0,
            want,
            "{path}: {} bytes",
            text.len()
        );
    }
}

#[test]
fn few_wait_for_a_second_look_at_once() {
    let program = Program::start();
    let wait = || {
        let mut client = connect(&program.path);
        let long = request("/pprof/heap?seconds=3600", "");
        client.write_all(&long).expect("sent");
        client.set_nonblocking(true).expect("a socket");
        client
    };
    let is_answered = |mut client: &UnixStream| client.read(&mut [0]).is_ok();
    let mut waiting: Vec<UnixStream> = Vec::new();
    wait_until("four waiting, and no place for a fifth", || {
        // The fifth may have come before one of the four.
        waiting.retain(|client| !is_answered(client));
        waiting.resize_with(4, wait);
        program.get("/pprof/heap?seconds=0.001").0 == 503 && !waiting.iter().any(is_answered)
    });
    assert_eq!(
        program.get("/metrics").0,
        200,
        "others are served meanwhile"
    );
    waiting.pop();
    wait_until("a place", || {
        program.get("/pprof/growth?seconds=0.001").0 == 200
    });
}

#[test]
fn a_port_takes_the_token() {
    let directory = temporary();
    let port = port();
    let mut command = listening(
        &worker(directory.path(), "worker"),
        &format!("127.0.0.1:{port}"),
    );
    let _running = Running::once_it_says("ready\n", command.env("LARDER_TOKEN", TOKEN));
    let status = |path: &str, fields: &str| {
        let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        answer(client, &request(path, fields)).0
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for (path, fields, want) in [
        ("/metrics", String::new(), 401),
        ("/metrics", bearer(TOKEN), 200),
        ("/metrics", bearer(&TOKEN[1..]), 401),
        ("/nothing", bearer(TOKEN), 404),
        (&format!("/?token={TOKEN}"), String::new(), 200),
        ("/?token=", String::new(), 401),
    ] {
        assert_eq!(status(path, &fields), want, "{path} {fields}");
    }
    for route in ["debug/pprof/heap", "pprof/growth"] {
        let url = format!("http://any:{TOKEN}@127.0.0.1:{port}/{route}");
        let mut read = Command::new(tool("PPROF", "pprof"));
        read.args(["-top", "-symbolize=remote", &url])
            .env("PPROF_TMPDIR", directory.path());
        let read = output(&mut read);
        assert_success(&read);
        assert!(stdout(&read).contains("keep"), "{}", stdout(&read));
    }
}

/// The program runs as ever, and one line says why nothing is served.
#[track_caller]
fn assert_reported(place: &str, token: Option<&str>, why: &str) {
    let mut command = listening(Path::new("/bin/true"), place);
    if let Some(token) = token {
        command.env("LARDER_TOKEN", token);
    }
    let done = output(&mut command);
    let said = stderr(&done);
    assert_eq!(done.status.code(), Some(0), "{place}: {said}");
    assert!(
        said.starts_with("larder: LARDER_LISTEN: ") && said.contains(why),
        "{place}: {said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains('\x1b'));
}

#[test]
fn what_cannot_be_listened_at_is_reported() {
    for place in [
        "banana",
        "0.0.0.0:8080",
        "localhost:8080",
        "\x1b[31m",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:8x",
    ] {
        assert_reported(place, Some(TOKEN), "give unix:PATH");
    }
    assert_reported("unix:", None, "no path");
    assert_reported(&format!("unix:{}", "x".repeat(108)), None, "107");
    assert_reported("unix:/no/such/place", None, "no such file");
    for token in [
        None,
        Some(""),
        Some("short"),
        Some("has a space in its middle"),
    ] {
        assert_reported(&format!("127.0.0.1:{}", port()), token, "LARDER_TOKEN");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken_at = taken.local_addr().expect("its number").to_string();
    assert_reported(&taken_at, Some(TOKEN), "in use");
    let folder = temporary();
    let at = |name: &str| format!("unix:{}", folder.path().join(name).display());
    fs::write(folder.path().join("file"), "mine").expect("written");
    assert_reported(&at("file"), None, "in use");
    assert_eq!(
        fs::read(folder.path().join("file")).expect("it is there"),
        b"mine"
    );
    std::os::unix::fs::symlink("elsewhere", folder.path().join("link")).expect("a link");
    assert_reported(&at("link"), None, "in use");
    let _other = UnixListener::bind(folder.path().join("live")).expect("a socket");
    assert_reported(&at("live"), None, "in use");
}

#[test]
fn without_the_library_the_allocator_says_so_and_the_tool_adds_it() {
    let folder = temporary();
    let place = format!("unix:{}", folder.path().join("socket").display());
    let mut alone = Command::new("/bin/true");
    alone
        .env("LD_PRELOAD", library_directory().join("liblarder.so"))
        .env("LARDER_LISTEN", &place);
    let said = stderr(&output(&mut alone));
    assert!(
        said.contains("liblarder_endpoint.so") && said.lines().count() == 1,
        "{said}"
    );
    let program = worker(folder.path(), "worker");
    let mut run = larder();
    run.env("LARDER_LISTEN", &place);
    run.args(["run", "--"]).arg(&program);
    let _running = Running::once_it_says("ready\n", &mut run);
    let path = folder.path().join("socket");
    assert_eq!(answer(connect(&path), &request("/metrics", "")).0, 200);
}

#[test]
fn a_socket_that_was_left_is_taken_over_and_nothing_else_is_removed() {
    let folder = temporary();
    let path = folder.path().join("socket");
    let place = format!("unix:{}", path.display());
    let program = worker(folder.path(), "worker");
    let mut first = Running::once_it_says("ready\n", &mut listening(&program, &place));
    assert_reported(&place, None, "in use");
    let serves = || answer(connect(&path), &request("/metrics", "")).0 == 200;
    assert!(serves(), "the first goes on");
    first.end();
    assert!(path.exists(), "one that is killed leaves it");
    let mut next = Running::once_it_says("ready\n", &mut listening(&program, &place));
    assert!(serves());
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "mine").expect("written");
    drop(next.stdin.take());
    assert_eq!(next.wait().code(), Some(0));
    assert!(path.exists(), "what has taken the name since stays");
}

#[test]
fn children_leave_the_socket_and_a_leak_does_not() {
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void leak(void) { memset(malloc(100), 1, 100); }
int main(void) {
  for (int i = 0; i < 200; ++i) {
    pid_t child = fork();
    if (child == 0) exit(strcmp(memset(malloc(100), 0, 100), "") != 0);
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0) return 3;
    if (i == 0) { puts("ready"); fflush(stdout); }
  }
  while (getchar() != EOF) {}
  for (int i = 0; i < 10; ++i) leak();
  return 0;
}
"#;
    let compiled =
        |folder: &Path| compile(folder, "forks.c", source, &["-g", "-O1", "-fno-builtin"]);
    let program = Program::of(compiled, |command| {
        command.env("HEAPCHECK", "normal");
    });
    for _ in 0..50 {
        assert!(in_use(&program.text("/pprof/heap")) < 1 << 20);
    }
    let (code, said, path, _folder) = program.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("leak"), "{said}");
    assert!(!path.exists(), "as the checker ends it, too");
}

#[test]
fn clients_that_mean_no_good_do_not_end_it() {
    let program = Program::start();
    let silent: Vec<UnixStream> = (0..20).map(|_| connect(&program.path)).collect();
    let mut deaf = connect(&program.path);
    deaf.write_all(&request("/pprof/heap", "")).expect("sent");
    for (number, bytes) in random_requests().enumerate() {
        assert_ne!(answer_to_all(connect(&program.path), &bytes), 200);
        if number % 50 == 0 {
            assert_eq!(program.get("/metrics").0, 200);
        }
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(program.get("/pprof/heap").0, 200);
                }
            });
        }
    });
    drop((silent, deaf));
    let (code, said, ..) = program.end();
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

#[test]
fn memory_that_is_refused_is_waited_for_and_few_files_are_enough() {
    let program = Program::start();
    let set = |limit: &str| {
        let id = program.running.id().to_string();
        let mut prlimit = Command::new("prlimit");
        assert_success(&output(prlimit.args(["--pid", &id, limit])));
    };
    assert_eq!(program.get("/pprof/heap").0, 200);
    set("--nofile=16:");
    assert_eq!(program.get("/pprof/heap").0, 200);
    // Nothing can be mapped.
    set("--as=4096:");
    let mut client = connect(&program.path);
    client.write_all(&request("/pprof/heap", "")).expect("sent");
    set("--as=unlimited:");
    wait_until("served again", || program.get("/metrics").0 == 200);
    let (code, ..) = program.end();
    assert_eq!(code, Some(0), "the program goes on");
}
