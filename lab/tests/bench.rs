//! `larder bench` end to end, on small workloads of its own: an allocator that is not loaded is refused, a
//! crash is a row, and measurements are written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::common::running::{HANG, wait_until};
use crate::common::{
    assert_fails, assert_success, code, compile, larder, output, stderr, stdout, temporary,
};
use serde_json::Value;

/// Allocates, and crashes if the library `crash` is preloaded.
const WORKLOAD: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int crash_wanted(void) __attribute__((weak));
int main(void) {
  void* volatile block = malloc(1000);
  if (crash_wanted && crash_wanted()) abort();
  free(block);
  printf("{\"seconds\": 0.25, \"mappings\": 40%s}\n",
         getenv("BENCH_IDLE") ? ", \"idle_rss_kib\": 500" : "");
}
"#;

/// A malloc that never runs out soon.
const PEER: &str = r#"
#include <stddef.h>
#include <string.h>
static char heap[1 << 24];
static size_t used;
void* malloc(size_t n) { size_t at = used; used += (n + 31) & ~(size_t)15; return heap + at; }
void free(void* p) { (void)p; }
void* calloc(size_t n, size_t m) { return malloc(n * m); }
void* realloc(void* p, size_t n) { void* q = malloc(n); if (p) memcpy(q, p, n); return q; }
size_t malloc_usable_size(void* p) { (void)p; return 0; }
"#;

const MANIFEST: &str = r#"
[[workload]]
name = "plain"
group = "own"
what = "a program"
command = ["{bench}/workload"]
quick = true
idle = true

[[workload]]
name = "script"
group = "program"
what = "a script that starts it"
command = ["/bin/sh", "-c", "{bench}/workload && {bench}/workload"]
quick = true
"#;

/// A tree with `larder-measure`, a workload, and peers: one without malloc, one good, one that crashes.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let folder = temporary();
        let bench = folder.path().join("bench");
        fs::create_dir(&bench).expect("the tree");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the workspace");
        let measure = fs::read_to_string(root.join("bench/measure.c")).expect("measure.c");
        compile(folder.path(), "larder-measure.c", &measure, &[]);
        let flags = &["-fno-builtin", "-rdynamic"];
        compile(&bench, "workload.c", WORKLOAD, flags);
        let library = &["-shared", "-fPIC", "-fno-builtin"];
        compile(folder.path(), "empty.c", "int nothing;", library);
        compile(folder.path(), "good.c", PEER, library);
        let crash = format!("{PEER}\nint crash_wanted(void) {{ return 1; }}");
        compile(folder.path(), "crash.c", &crash, library);
        let tree = Tree { folder };
        tree.manifest(MANIFEST);
        tree
    }

    fn manifest(&self, text: &str) {
        fs::write(self.path("bench/workloads.toml"), text).expect("the manifest");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = larder();
        command
            .env("LARDER_LIBEXEC", self.folder.path())
            .env("LARDER_PEERS", self.path("peers"))
            .arg("bench")
            .args(words);
        command
    }

    fn bench(&self, words: &[&str]) -> Output {
        output(&mut self.command(words))
    }

    fn peer(&self, name: &str) -> String {
        format!("{name}={}", self.path(name).display())
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn a_library_without_malloc_is_refused() {
    let tree = Tree::new();
    let peer = tree.peer("empty");
    let refused = tree.bench(&["--peer", &peer, "--allocators", "empty", "--only", "plain"]);
    let said = stderr(&refused);
    assert_eq!(code(&refused), 125, "{said}");
    assert!(said.contains("plain on empty: "), "{said}");
    assert!(said.contains("takes malloc from "), "{said}");
    assert_eq!(stdout(&refused), "");
}

#[test]
fn a_child_on_another_malloc_is_found() {
    let tree = Tree::new();
    tree.manifest(&MANIFEST.replace("&& {bench}", "&& env -u LD_PRELOAD {bench}"));
    let peer = tree.peer("good");
    let refused = tree.bench(&["--peer", &peer, "--allocators", "good", "--only", "script"]);
    assert_eq!(code(&refused), 125);
    assert!(
        stderr(&refused).contains("script on good: "),
        "{}",
        stderr(&refused)
    );
}

/// It needs no workloads, runs where the user is, and its words are its own.
#[test]
fn a_command_of_ones_own_is_measured() {
    let tree = Tree::new();
    fs::remove_file(tree.path("bench/workloads.toml")).expect("the manifest");
    fs::write(tree.path("input"), "x\n").expect("the input");
    let good = tree.peer("good");
    let words = ["--peer", &good, "--allocators", "glibc,good", "--json", "-"];
    let mut command = tree.command(&words);
    command.args([
        "--rounds",
        "3",
        "--",
        "awk",
        "{ exit $1 != \"x\" }",
        "input",
    ]);
    let measured = output(command.current_dir(tree.folder.path()));
    assert_success(&measured);
    let results = json(&measured);
    assert_eq!(results["workloads"][0]["name"], "awk");
    let runs = results["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert!(run["figures"]["wall_seconds"].as_f64().is_some(), "{run}");
    }
    let failed = tree.bench(&["--allocators", "glibc", "--rounds", "1", "--", "false"]);
    assert!(
        stderr(&failed).contains("false on glibc failed: exit code 1"),
        "{}",
        stderr(&failed)
    );
    let absent = tree.bench(&["--", "./no-such", "word"]);
    assert_fails(&absent, 127, &["./no-such: no such file"]);
    let both = tree.bench(&["--quick", "--", "true"]);
    assert_fails(&both, 125, &["--quick", "cannot be used with"]);
}

#[test]
fn a_crash_on_a_peer_is_a_row() {
    let tree = Tree::new();
    let (good, crash) = (tree.peer("good"), tree.peer("crash"));
    let measured = tree.bench(&[
        "--peer",
        &good,
        "--peer",
        &crash,
        "--allocators",
        "larder,glibc",
        "--rounds",
        "5",
        "--json",
        "-",
        "--out",
        &tree.path("results").to_string_lossy(),
        "--seed",
        "3",
    ]);
    assert_success(&measured);
    let results = json(&measured);
    let runs = results["runs"].as_array().expect("runs");
    let of = |workload: &str, allocator: &str| -> Vec<&Value> {
        let is = |run: &&Value| run["workload"] == workload && run["allocator"] == allocator;
        runs.iter().filter(is).collect()
    };
    assert_eq!(of("script", "good").len(), 5);
    // Five rounds and the idle pass.
    let plain = of("plain", "larder");
    assert_eq!(plain.len(), 6);
    assert_eq!(plain[0]["figures"]["seconds"], 0.25);
    assert!(plain[0]["figures"]["wall_seconds"].as_f64().expect("wall") < 5.0);
    assert!(plain[0]["figures"]["peak_kib"].as_f64().expect("peak") > 100.0);
    assert!(plain[0]["figures"]["page_faults"].as_f64().expect("faults") > 10.0);
    let crashed = of("plain", "crash");
    assert_eq!(crashed.len(), 1);
    assert!(
        crashed[0]["failure"]
            .as_str()
            .expect("failure")
            .contains("SIGABRT")
    );
    let page = fs::read_to_string(tree.path("results/index.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("SIGABRT"), "{page}");
    let markdown = fs::read_to_string(tree.path("results/results.md")).expect("the tables");
    assert!(
        markdown.contains("| plain | crash | signal 6 (SIGABRT)"),
        "{markdown}"
    );
    let library = results["allocators"][0]["library"]
        .as_str()
        .expect("library");
    assert!(library.contains("/liblarder.so."), "{library}");
}

#[test]
fn larders_own_crash_is_a_row_and_an_exit_code() {
    let tree = Tree::new();
    let library = tree.path("crash");
    let library = library.to_string_lossy();
    let words = [
        "--larder",
        &library,
        "--allocators",
        "larder,glibc",
        "--only",
        "plain",
    ];
    let words: Vec<&str> = words.into_iter().chain(["--idle-rounds", "0"]).collect();
    let measured = tree.bench(&words);
    assert_eq!(code(&measured), 1, "{}", stderr(&measured));
    assert!(stdout(&measured).contains("| plain | larder | signal 6 (SIGABRT)"));
}

#[test]
fn reported_results_can_be_joined_if_the_libraries_are_the_same() {
    let tree = Tree::new();
    let measure = |name: &str, words: &[&str]| {
        let file = tree.path(name).to_string_lossy().into_owned();
        let common = ["--only", "plain", "--idle-rounds", "0", "--json", &file];
        let words: Vec<&str> = common.into_iter().chain(words.iter().copied()).collect();
        let measured = tree.bench(&words);
        assert_success(&measured);
        let said = stderr(&measured);
        let named = said.contains(&format!("larder: {file}: "));
        assert!(named && said.ends_with("iB written\n"), "{said}");
        file
    };
    let good = tree.peer("good");
    let first = measure("1.json", &["--allocators", "glibc", "--peer", &good]);
    let second = measure(
        "2.json",
        &["--allocators", "glibc", "--peer", &good, "--rounds", "6"],
    );
    let joined = tree.bench(&["--report", &first, &second, "--json", "-"]);
    assert_success(&joined);
    assert_eq!(json(&joined)["rounds"], 11);
    let again = tree.bench(&["--report", &first]);
    assert!(
        stdout(&again).contains("5 interleaved rounds"),
        "{}",
        stdout(&again)
    );

    let other = tree.peer("crash").replace("crash=", "good=");
    fs::copy(tree.path("good"), tree.path("crash")).expect("a copy");
    fs::write(
        tree.path("crash"),
        [fs::read(tree.path("good")).expect("good"), vec![0]].concat(),
    )
    .expect("another build");
    let third = measure("3.json", &["--allocators", "glibc", "--peer", &other]);
    let refused = tree.bench(&["--report", &first, &third]);
    assert_fails(&refused, 125, &["another build of good", "3.json"]);
}

#[test]
fn what_is_missing_is_named() {
    let tree = Tree::new();
    let unknown = tree.bench(&["--allocators", "hoard"]);
    assert_fails(&unknown, 125, &["'hoard'", "make peers", "--peer"]);
    let none = tree.bench(&["--only", "nothing"]);
    assert_fails(&none, 125, &["nothing", "plain, script"]);
    let damaged = tree.path("bad.json");
    fs::write(&damaged, "{\"form\": 1").expect("a file");
    let refused = tree.bench(&["--report", &damaged.to_string_lossy()]);
    assert_fails(&refused, 125, &["bad.json", "results.json"]);

    tree.manifest(&format!(
        "{MANIFEST}needs = [[\"no-such-program\", \"no-package\"]]\n"
    ));
    let missing = tree.bench(&["--allocators", "glibc"]);
    assert_fails(
        &missing,
        125,
        &["script", "no-such-program", "apt-get install no-package"],
    );
    let skipped = tree.bench(&[
        "--allocators",
        "glibc",
        "--skip-missing",
        "--idle-rounds",
        "0",
    ]);
    assert_success(&skipped);
    let reported = "Left out because no-such-program is missing: script.";
    assert!(stdout(&skipped).contains(reported), "{}", stdout(&skipped));

    tree.manifest(&format!("{MANIFEST}speed = 9\n"));
    assert_fails(
        &tree.bench(&["--list"]),
        125,
        &["workloads.toml", "`speed`"],
    );
}

#[test]
fn a_run_that_does_not_end_is_a_failure() {
    let tree = Tree::new();
    tree.manifest(&MANIFEST.replace("&& {bench}/workload", "&& sleep 3600"));
    let words = [
        "--only",
        "script",
        "--allocators",
        "glibc",
        "--run-limit",
        "1",
    ];
    let measured = tree.bench(&words);
    assert_success(&measured);
    assert!(
        stdout(&measured).contains("| script | glibc | took more than 1 s"),
        "{}",
        stdout(&measured)
    );
}

#[test]
fn quick_keeps_its_time_and_its_rounds() {
    let tree = Tree::new();
    let words = [
        "--quick",
        "--time-limit",
        "4",
        "--allocators",
        "larder,glibc",
        "--json",
        "-",
    ];
    let measured = tree.bench(&words);
    assert_success(&measured);
    assert!(
        stderr(&measured).contains("a tenth of the work took"),
        "{}",
        stderr(&measured)
    );
    let results = json(&measured);
    assert_eq!(results["rounds"], 5);
    assert_eq!(results["workloads"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_smoke_test_fails_with_any_allocator() {
    let tree = Tree::new();
    let (good, crash) = (tree.peer("good"), tree.peer("crash"));
    let fine = tree.bench(&["--smoke", "--allocators", "larder,glibc", "--peer", &good]);
    assert_success(&fine);
    assert_eq!(stdout(&fine), "6 of 6 start: 2 workloads on 3 allocators\n");
    let failed = tree.bench(&["--smoke", "--allocators", "glibc", "--peer", &crash]);
    assert_eq!(code(&failed), 1);
    assert_eq!(
        stdout(&failed),
        "2 of 4 start: 2 workloads on 2 allocators\n"
    );
}

/// The interrupted round is left out, the complete ones are reported.
#[test]
fn an_interruption_keeps_complete_rounds() {
    let tree = Tree::new();
    // Each round is a little slower: the trial, one round, then a run that waits to be interrupted.
    let script = "echo x >>\\\"$COUNT\\\"; [ $(wc -l <\\\"$COUNT\\\") -lt 3 ] || sleep 3600; {bench}/workload";
    let command = format!("command = [\"/bin/sh\", \"-c\", \"{script}\"]");
    let old = "command = [\"/bin/sh\", \"-c\", \"{bench}/workload && {bench}/workload\"]";
    let manifest = MANIFEST.replace(old, &command);
    assert_ne!(manifest, MANIFEST);
    tree.manifest(&manifest);
    let count = tree.path("count");
    let words = [
        "--only",
        "script",
        "--allocators",
        "glibc",
        "--rounds",
        "9",
        "--idle-rounds",
        "0",
    ];
    let mut command = tree.command(&words);
    command
        .env("COUNT", &count)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("larder");
    let begun = || fs::read_to_string(&count).unwrap_or_default();
    wait_until("in the third run", || begun().lines().count() == 3);
    let begin = Instant::now();
    // Like a terminal, but only to this process; `larder-measure` notices it by our end or its own.
    // SAFETY: the process is ours and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let ended = child.wait_with_output().expect("the end");
    assert!(begin.elapsed() < HANG, "{:?}", begin.elapsed());
    assert_eq!(code(&ended), 130, "{}", stderr(&ended));
    let reported = "Interrupted: 1 of 9 rounds are complete.";
    assert!(stdout(&ended).contains(reported), "{}", stdout(&ended));
}
