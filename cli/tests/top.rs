//! `larder top`: a running program on the staged allocator, watched from outside; the screen in a
//! pseudoterminal, whose output vt100 draws.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::clock::Clock;
use crate::common::running::{Running, preloaded, wait_until};
use crate::common::{
    assert_fails, assert_success, code, compile, larder, line_of, output, stderr, stdout, temporary,
};
use crate::terminal::{OnTerminal, USUAL};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Keeps 16 MiB in `fill`. In each round, leaks about 1 MB in `leak`, and takes and frees as much in
/// `churn`; goes on by itself, a little each 10 ms, once its stdin has ended.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* volatile kept[1 << 14];

__attribute__((noinline)) static void fill(void) {
  for (int i = 0; i < 1 << 14; ++i) kept[i] = malloc(1024);  // @fill
}
__attribute__((noinline)) static void leak(void) {
  memset(kept[0] = malloc(3000), 1, 3000);  // @leak
}
__attribute__((noinline)) static void churn(void) {
  void* volatile p = malloc(3000);  // @churn
  free(p);
}

int main(void) {
  fill();
  puts("ready");
  fflush(stdout);
  for (char c;;) {
    int is_asked = read(0, &c, 1) == 1;
    for (int i = 0; i < (is_asked ? 300 : 10); ++i) leak(), churn();
    if (is_asked) puts("done"), fflush(stdout);
    else usleep(10000);
  }
}
"#;

/// It goes on by itself.
fn start(directory: &Path) -> Running {
    let mut running = start_in_rounds(directory);
    running.stdin = None;
    running
}

fn start_in_rounds(directory: &Path) -> Running {
    watched(&compile(directory, "leaky.c", PROGRAM, &["-O1", "-g"]))
}

/// With steady figures from a short run.
fn watched(program: &Path) -> Running {
    let mut command = preloaded(program);
    Running::once_it_says("ready\n", command.env("LARDER_PROFILE_BYTES", "16384"))
}

/// What `larder top` prints in so many looks, a second apart, with this before each.
#[track_caller]
fn looks(process: &str, count: u32, arguments: &[&str], mut before: impl FnMut()) -> String {
    let directory = temporary();
    let clock = Clock::new(directory.path());
    let mut top = larder();
    top.args(["top", process, "-d", "1"]).args(arguments);
    match count {
        1 => top.arg("--once"),
        _ => top.args(["-n", &count.to_string()]),
    };
    top.stdout(Stdio::piped()).stderr(Stdio::piped());
    let top = clock.drive(&mut top).spawn().expect("it starts");
    for _ in 0..count {
        clock.wait_for(1.0, 1);
        before();
        clock.pass(Duration::from_secs(1));
    }
    let found = top.wait_with_output().expect("it ends");
    assert_success(&found);
    stdout(&found)
}

fn id(process: &Running) -> String {
    process.id().to_string()
}

fn objects(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(parse).collect()
}

/// The site at the line of the program that has this mark.
#[track_caller]
fn site<'a>(top: &'a Value, mark: &str) -> &'a Value {
    let place = format!("leaky.c:{}", line_of(PROGRAM, mark));
    let sites = top["sites"].as_array().expect("sites");
    let found = sites
        .iter()
        .find(|site| site["place"].as_str().is_some_and(|p| p.ends_with(&place)));
    found.unwrap_or_else(|| panic!("no {place} in {top}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn what_leaks_grows_and_what_is_freed_has_only_a_rate() {
    let directory = temporary();
    let mut running = start_in_rounds(directory.path());
    let looks = looks(&id(&running), 3, &["--json"], || running.round());
    let looks = objects(&looks);
    assert_eq!(looks.len(), 3);
    let last = &looks[2];
    let (fill, leak, churn) = (site(last, "fill"), site(last, "leak"), site(last, "churn"));
    let kept = number(&fill["in_use"]);
    assert!((14e6..20e6).contains(&kept), "{fill}");
    assert_eq!(number(&fill["growth"]), 0.0);
    assert!(number(&leak["growth_95"][0]) > 0.0, "{leak}");
    assert!(number(&churn["in_use"]) < 1e6, "{churn}");
    for moving in [leak, churn] {
        assert!(number(&moving["allocated_per_second"]) > 1e5, "{moving}");
    }
    assert_eq!(number(&fill["allocated_per_second"]), 0.0);
    // Growth is since the beginning, the rate of an interval.
    let early = number(&site(&looks[0], "leak")["growth"]);
    assert!(number(&leak["growth"]) > early, "{early} {leak}");
    let in_use = number(&last["kinds"]["in_use"]["resident"]);
    assert!(in_use > 0.0 && in_use <= number(&last["rss"]), "{last}");
    let thread = &last["threads"][0];
    assert_eq!(thread["name"], format!("{} leaky", id(&running)), "{last}");
}

/// While the program stands still, three ways to look have the same figures, and the kernel too.
#[test]
fn figures_are_those_of_stats_profile_and_the_kernel() {
    let directory = temporary();
    let running = start(directory.path());
    let id = id(&running);
    kill_process(Pid::from_child(&running), Signal::STOP).expect("kill");
    let stopped = || std::fs::read_to_string(format!("/proc/{id}/stat")).expect("stat");
    while !stopped().contains(" T ") {
        std::thread::yield_now();
    }
    let look = |arguments: &[&str]| {
        let found = output(larder().args(arguments));
        assert_success(&found);
        serde_json::from_slice::<Value>(&found.stdout).expect("JSON")
    };
    let top = objects(&looks(&id, 1, &["--json"], || {})).remove(0);
    let stats = look(&["stats", &id, "--json"]);
    for same in ["rss", "mapped", "resident", "kinds", "sample_mean"] {
        assert_eq!(top[same], stats[same], "{same}");
    }
    let heaps = stats["heaps"].as_array().expect("heaps");
    for (thread, heap) in top["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .zip(heaps)
    {
        for same in ["in_use", "free", "kept_runs", "slabs", "remote_frees"] {
            assert_eq!(thread[same], heap[same], "{same}");
        }
    }
    let profile = look(&["profile", &id, "--json", "--top", "0"]);
    let (total, of_profile) = (&top["total"], &profile["total"]);
    for (here, there) in [
        (&total["in_use"], &of_profile["in_use"]["bytes"]),
        (&total["objects"], &of_profile["in_use"]["objects"]),
        (&total["samples"], &of_profile["samples"]),
    ] {
        assert_eq!(number(here).round(), number(there), "{profile}");
    }
    let rollup = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).expect("smaps");
    let rss = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = rss.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: f64 = kib.expect("Rss").parse().expect("a number");
    assert_eq!(number(&top["rss"]), kib * 1024.0);
    // What is in use is known exactly; the estimate's interval holds it.
    let in_use = number(&top["in_use"]);
    let bounds = &top["total"]["in_use_95"];
    let wide = number(&bounds[0]) * 0.9..number(&bounds[1]) * 1.1;
    assert!(wide.contains(&in_use), "{in_use} {bounds}");
}

#[test]
fn tables_are_ranked_filtered_and_cut() {
    let directory = temporary();
    let mut running = start_in_rounds(directory.path());
    let id = id(&running);
    let mut top = |arguments: &[&str]| looks(&id, 1, arguments, || running.round());
    let text = top(&["--top", "1"]);
    for words in [
        "(leaky) on Larder",
        "RSS ",
        "Profile: ",
        "free in slabs",
        "more",
    ] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    assert!(
        text.contains("fill  ") && !text.contains("leak  "),
        "{text}"
    );
    let text = top(&["--sort", "growth", "--top", "1"]);
    assert!(
        text.contains("leak  ") && !text.contains("fill  "),
        "{text}"
    );
    let text = top(&["--filter", "CHURN"]);
    assert!(
        text.contains("churn  ") && !text.contains("fill  "),
        "{text}"
    );
    // The marked line is then main's.
    let text = top(&["--skip", "chur?", "--skip", "*ll", "--sort", "rate"]);
    assert!(
        text.contains("main  ") && !text.contains("churn  "),
        "{text}"
    );
    let text = top(&["--threads"]);
    assert!(
        text.contains("HEAP OF") && text.contains("leaky\n"),
        "{text}"
    );
}

/// The kernel's name, the file's and the function's: none is a command to the terminal.
#[test]
fn names_are_shown_and_not_obeyed() {
    let directory = temporary();
    let program = compile(directory.path(), "plain.c", PROGRAM, &["-O1"]);
    let hostile = directory.path().join("\x1b[2J\u{202e}x");
    std::fs::rename(program, &hostile).expect("a new name");
    let running = watched(&hostile);
    for form in [&[][..], &["--json"]] {
        let text = looks(&id(&running), 1, form, || {});
        assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
    }
    let mut top = on_terminal(&id(&running));
    top.turn("\r", "\\x1b[2J\\u{202e}x");
    top.press("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn the_end_of_the_process_and_of_the_reader_is_no_failure() {
    let directory = temporary();
    let mut running = start(directory.path());
    let mut top = larder()
        .args(["top", &id(&running), "-d", "0.1", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(top.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a look");
    running.end();
    lines.read_to_string(&mut line).expect("its end");
    let ended = top.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", stderr(&ended));

    let running = start(directory.path());
    let mut top = larder()
        .args(["top", &id(&running), "-d", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(top.stdout.take());
    let ended = top.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", stderr(&ended));
}

/// What a process becomes by exec is watched, if it runs on Larder too.
#[test]
fn a_process_that_becomes_another_program_is_found_again() {
    for (then, on_larder) in [
        ("exec sleep 3600", true),
        ("exec env -u LD_PRELOAD sleep 3600", false),
    ] {
        let script = format!("echo; read line; {then}");
        let mut process = Running::once_it_says("\n", preloaded("sh").args(["-c", &script]));
        let id = id(&process);
        let directory = temporary();
        let clock = Clock::new(directory.path());
        let mut top = larder();
        top.args(["top", &id, "-d", "1", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut top = Running::start(clock.drive(&mut top));
        let mut lines = BufReader::new(top.stdout.take().expect("a pipe")).lines();
        let mut next_name = || Some(objects(&lines.next()?.expect("a line"))[0]["name"].clone());
        clock.wait_and_pass(1.0);
        assert_eq!(next_name(), Some(json!("sh")));
        drop(process.stdin.take());
        let sleeps = libc::SYS_clock_nanosleep.to_string();
        wait_until("asleep", || {
            let call = std::fs::read_to_string(format!("/proc/{id}/syscall"));
            call.is_ok_and(|call| call.split(' ').next() == Some(&sleeps))
        });
        clock.wait_and_pass(1.0);
        if on_larder {
            assert_eq!(next_name(), Some(json!("sleep")));
            continue;
        }
        // It could still be loading its libraries.
        clock.wait_and_pass(0.1);
        clock.wait_and_pass(0.1);
        assert_eq!(next_name(), None);
        let mut said = String::new();
        let mut errors = top.stderr.take().expect("a pipe");
        let reported = errors.read_to_string(&mut said);
        assert!(
            reported.is_ok() && said.contains("does not run on Larder"),
            "{said}"
        );
        assert_eq!(top.wait().code(), Some(125));
    }
}

#[test]
fn what_cannot_be_watched_is_reported_with_the_reason() {
    let mut sleeping = Command::new("sleep").arg("60").spawn().expect("sleep");
    let id = sleeping.id().to_string();
    let found = output(larder().args(["top", &id, "--once"]));
    assert_fails(&found, 125, &["does not run on Larder", "larder run"]);
    sleeping.kill().expect("it ends");
    sleeping.wait().expect("it has ended");
    let found = output(larder().args(["top", &id]));
    assert_fails(&found, 125, &["no such process"]);
    for bad in [
        &["0"][..],
        &["x"],
        &["1", "-d", "0"],
        &["1", "-n", "0"],
        &["1", "--skip", ""],
        &["1", "--sort", "x"],
    ] {
        assert_eq!(code(&output(larder().arg("top").args(bad))), 125);
    }
}

/// On a terminal, when its first screen is drawn.
#[track_caller]
fn on_terminal(id: &str) -> OnTerminal {
    let mut top = larder();
    let mut top = OnTerminal::start(top.args(["top", id, "-d", "0.2"]), USUAL);
    top.wait_for("10Quit");
    assert!(top.screen().alternate_screen());
    top
}

#[test]
fn keys_turn_pages_filter_and_sort() {
    let directory = temporary();
    let running = start(directory.path());
    let mut top = on_terminal(&id(&running));
    top.wait_for("leak  ");
    top.turn("t", "REFILLS/s");
    top.turn("?", "KEYS AND COLUMNS");
    top.turn("\x1b[A\x0c\x1b[B", "KEYS AND COLUMNS");
    top.turn("?", "▼IN USE");
    top.turn("/", "Filter: _");
    top.turn("chuRX\x7f", "Filter: chuR_");
    assert_eq!(top.line("leak  "), None);
    top.turn("\r", "1 site with \u{201c}chuR\u{201d}");
    top.turn("\r", "→ churn");
    top.turn("\r", "▼IN USE");
    top.press("\x1b");
    top.wait_until("without a filter", |screen| {
        let text = screen.contents();
        text.contains("leak  ") && !text.contains("chuR")
    });
    top.turn("G", "GROWTH▼");
    top.turn(">", "▼RATE/s");
    top.turn("I", "▲RATE/s");
    top.turn("M", "▲IN USE");
    top.turn("I", "▼IN USE");
    // Another one is selected, and its stacks are shown.
    top.turn("\x1b[B\n", "→ leak");
    top.turn("\x1b", "▼IN USE");
    top.turn(" ", "PAUSED");
    top.press(" ");
    top.wait_until("going on", |screen| !screen.contents().contains("PAUSED"));
    // It goes on when a part of a key has come; and there is no shell to stop for.
    top.press("\x1b[");
    let watched = top.line("watched for").expect("a title");
    top.wait_until("later", |screen| !screen.contents().contains(&watched));
    top.turn("B\x1a", "10Quit");
    top.press("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn the_mouse_sorts_selects_opens_and_scrolls() {
    let directory = temporary();
    let running = start(directory.path());
    let mut top = on_terminal(&id(&running));
    top.wait_for("leak  ");
    // The rows stay where they are.
    top.turn(" ", "PAUSED");
    top.click("GROWTH");
    top.wait_for("GROWTH▼");
    top.click("GROWTH");
    top.wait_for("GROWTH▲");
    top.click("IN USE");
    top.wait_for("▲IN USE");
    top.click("IN USE");
    top.wait_for("▼IN USE");
    top.click("leak  ");
    top.wait_until("selected", |screen| {
        let is_marked = |row| screen.cell(row, 0).is_some_and(vt100::Cell::inverse);
        let lines = screen.contents();
        let mut lines = (0..).zip(lines.lines());
        lines.any(|(row, line)| line.contains("leak  ") && is_marked(row))
    });
    top.click("leak  ");
    top.wait_for("→ leak");
    top.turn("?", "KEYS AND COLUMNS");
    top.wheel(true);
    top.wait_until("further down", |screen| {
        !screen.contents().contains("PgUp PgDn")
    });
    top.wheel(false);
    top.wait_for("PgUp PgDn");
    top.press("q");
    assert_eq!(top.ended().code(), Some(0));
}

/// As raw mode is: the shell has no use for the mouse.
#[test]
fn the_mouse_is_released_while_it_is_suspended() {
    let directory = temporary();
    let running = start(directory.path());
    let script = r#""$0" top "$1" -d 0.2; echo suspended; read line; fg"#;
    let mut shell = Command::new("bash");
    shell.args(["-mc", script]).arg(larder().get_program());
    let mut top = OnTerminal::start(shell.arg(id(&running)), USUAL);
    top.wait_for("10Quit");
    top.turn("\x1a", "suspended");
    assert!(!top.screen().alternate_screen() && !top.reports_the_mouse());
    top.turn("\r", "10Quit");
    assert!(top.screen().alternate_screen() && top.reports_the_mouse());
    top.press("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn the_graph_is_there_where_there_is_room() {
    let directory = temporary();
    let running = start(directory.path());
    let mut top = on_terminal(&id(&running));
    for (size, rows) in [
        ((30, 120), 5),
        ((50, 120), 8),
        ((20, 80), 0),
        ((60, 200), 8),
    ] {
        top.resize(size);
        top.wait_until("drawn", |screen| {
            let text = screen.contents();
            let axis = text.lines().filter(|line| line.contains('│'));
            axis.count() == rows && text.contains("10Quit")
        });
        let line = top.line("│");
        let names_memory = line.is_none_or(|line| line.trim_start().starts_with(char::is_numeric));
        assert!(names_memory, "{}", top.screen().contents());
    }
    top.press("q");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn the_screen_follows_the_terminals_size() {
    let directory = temporary();
    let running = start(directory.path());
    let mut top = on_terminal(&id(&running));
    top.wait_for("leak  ");
    for small in [(5, 20), (2, 10), (1, 1), (0, 0)] {
        top.resize(small);
        if small == (5, 20) {
            top.wait_until("small", |screen| {
                let text = screen.contents();
                let lines: Vec<&str> = text.lines().collect();
                lines.len() == 5 && lines[2].contains("IN USE") && lines[4].starts_with("F1Help")
            });
        }
    }
    top.resize((40, 150));
    top.wait_until("large", |screen| {
        let text = screen.contents();
        text.contains("Waste free in slabs") && text.contains("leaky.c:") && text.contains("10Quit")
    });
    top.press("\x03");
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn the_terminal_is_given_back_when_the_process_ends_and_on_a_signal() {
    let directory = temporary();
    let mut running = start(directory.path());
    let mut top = on_terminal(&id(&running));
    running.end();
    assert_eq!(top.ended().code(), Some(0));
    top.wait_for(&format!("process {} has ended", id(&running)));

    let running = start(directory.path());
    for keys in ["", "/", "\x1b[", "p"] {
        let mut top = on_terminal(&id(&running));
        top.press(keys);
        kill_process(Pid::from_child(&top.child), Signal::TERM).expect("kill");
        assert_eq!(
            top.ended().signal(),
            Some(Signal::TERM.as_raw()),
            "{keys:?}"
        );
    }
}

#[test]
fn a_terminal_that_is_closed_ends_it() {
    let directory = temporary();
    let running = start(directory.path());
    let mut child = on_terminal(&id(&running)).close();
    assert_eq!(child.wait().signal(), Some(Signal::HUP.as_raw()));
}

/// Stops this thread of the tool's alone, as a debugger does; it runs on when this goes.
struct Held(libc::pid_t);

impl Held {
    #[track_caller]
    fn stop(process: u32, name: &str) -> Self {
        let is_it = |folder: &std::path::PathBuf| {
            std::fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        // It takes its name when it first runs.
        let mut folder = PathBuf::new();
        wait_until(&format!("a thread of name {name}"), || {
            let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
            let mut threads = threads.flatten().map(|entry| entry.path());
            threads.find(is_it).map(|found| folder = found).is_some()
        });
        let id = folder.file_name().and_then(|id| id.to_str()?.parse().ok());
        let held = Self(id.expect("a number"));
        for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
            // SAFETY: neither of them reads or writes memory here.
            let error = unsafe { libc::ptrace(request, held.0, 0, 0) };
            assert_eq!(error, 0, "{}", std::io::Error::last_os_error());
        }
        held.wait();
        held
    }

    /// Until it stops or has ended.
    #[track_caller]
    fn wait(&self) {
        let how = libc::__WALL | libc::WNOHANG;
        wait_until("stopped", || {
            // SAFETY: there is no status to write to.
            unsafe { libc::waitpid(self.0, std::ptr::null_mut(), how) != 0 }
        });
    }
}

#[test]
fn a_look_that_does_not_end_holds_up_no_key() {
    let directory = temporary();
    let running = start(directory.path());
    let mut top = on_terminal(&id(&running));
    let held = Held::stop(top.child.id(), "larder-read");
    // Asks for a look at once, which does not end.
    top.press("r");
    top.turn("t", "REFILLS/s");
    top.turn("?", "KEYS AND COLUMNS");
    top.press("q");
    held.wait();
    assert_eq!(top.ended().code(), Some(0));
}

#[test]
fn a_number_below_zero_is_reported_as_such() {
    for (command, option) in [
        ("top", "-d"),
        ("top", "-n"),
        ("top", "--top"),
        ("leaks", "--top"),
        ("profile", "--top"),
        ("serve", "--push-interval"),
    ] {
        let found = output(larder().args([command, "1", option, "-1"]));
        assert_fails(&found, 125, &["invalid value '-1'"]);
    }
    let full = File::options().write(true).open("/dev/full");
    let mut top = larder();
    top.args(["leaks", "--", "true"])
        .stdout(full.expect("/dev/full"));
    assert_fails(&output(&mut top), 125, &["write to another place"]);
}
