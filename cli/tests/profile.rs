//! `larder profile`: what a run's profile says against what the program did; every format holds the
//! same; profiles that are cut, hostile or none.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::common::clock::Clock;
use crate::common::running::Running;
use crate::common::*;
use serde_json::Value;
use tempfile::TempDir;

/// Sizes that are classes of the allocator: with a mean of 1 each object counts, to the byte.
const SOURCE: &str = r#"
#include <stdlib.h>
static void *volatile kept[1000];
__attribute__((noinline)) static void keep(int i) { kept[i] = malloc(64); }  // @keep
__attribute__((noinline)) static void large(int i) { kept[i] = malloc(100000); }  // @large
__attribute__((noinline)) static void drop(void) { free(malloc(1024)); }  // @drop
int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 500;
    for (int i = 0; i < count; i++) keep(i);
    for (int i = 0; i < 300; i++) drop();
    for (int i = 0; i < 10; i++) large(999 - i);
    return argc > 2 ? atoi(argv[2]) : 0;
}
"#;

fn program() -> (TempDir, PathBuf) {
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin"];
    let program = compile(directory.path(), "sites.c", SOURCE, &flags);
    (directory, program)
}

/// A profile of a run that keeps so many objects.
#[track_caller]
fn profiled(program: &Path, name: &str, kept: u32) -> PathBuf {
    let file = program.with_file_name(name);
    let mut command = larder();
    command.args(["profile", "--mean", "1", "-o"]).arg(&file);
    command.arg("--").arg(program).arg(kept.to_string());
    assert_success(&output(&mut command));
    file
}

#[track_caller]
fn json_of(file: &Path, options: &[&str]) -> Value {
    let printed = output(larder().args(["profile", "--json"]).arg(file).args(options));
    assert_success(&printed);
    serde_json::from_slice(&printed.stdout).expect("JSON")
}

#[track_caller]
fn site<'a>(report: &'a Value, function: &str) -> &'a Value {
    let mut sites = report["sites"].as_array().expect("sites").iter();
    sites
        .find(|site| site["function"] == function)
        .unwrap_or_else(|| panic!("no {function} in {report:#}"))
}

#[test]
fn a_run_in_which_every_object_is_sampled_is_reported_to_the_byte() {
    let (_directory, program) = program();
    let mut command = larder();
    command.args(["profile", "--mean", "1", "--json", "--"]);
    let run = output(command.arg(&program).args(["500", "7"]));
    assert_eq!(code(&run), 7, "{}", stderr(&run));
    let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert_eq!(report["profiles"][0]["mean_bytes"], 1);
    let keep = site(&report, "keep");
    assert_eq!(keep["figures"]["in_use"]["objects"], 500);
    assert_eq!(keep["figures"]["in_use"]["bytes"], 500 * 64);
    assert_eq!(keep["file"], program.with_extension("c").to_str().unwrap());
    assert_eq!(keep["line"], line_of(SOURCE, "keep"));
    assert_eq!(
        site(&report, "large")["figures"]["in_use"]["bytes"],
        1_000_000
    );
    let dropped = output(
        larder()
            .args([
                "profile",
                "--mean",
                "1",
                "--json",
                "--sort",
                "lifetimes",
                "--",
            ])
            .arg(&program),
    );
    let report: Value = serde_json::from_slice(&dropped.stdout).expect("JSON");
    let drop = &site(&report, "drop")["figures"];
    assert_eq!(drop["in_use"]["bytes"], 0);
    // What is allocated is an estimate even so; all of it was freed.
    let freed = drop["freed_by_lifetime"].as_array().unwrap().iter();
    let freed: u64 = freed.map(|class| class["objects"].as_u64().unwrap()).sum();
    assert!(freed > 0);
    assert_eq!(drop["allocated"]["objects"], freed);
}

#[test]
fn sites_are_ranked_with_their_lines_and_intervals() {
    let (_directory, program) = program();
    let mut command = larder();
    let run = output(
        command
            .args(["profile", "--mean", "4096", "--"])
            .arg(&program),
    );
    assert_success(&run);
    let text = stdout(&run);
    let place = format!("sites.c:{}", line_of(SOURCE, "large"));
    for part in [
        "one sample in 4 KiB",
        "In use: ",
        "(95 %: ",
        "large",
        &place,
    ] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let full = output(
        larder()
            .args([
                "profile",
                "--sort",
                "in-use",
                "--top",
                "1",
                "--mean",
                "1",
                "--no-source",
                "--",
            ])
            .arg(&program),
    );
    let text = stdout(&full);
    assert!(text.contains("→ large") && text.contains("main"), "{text}");
    assert!(text.contains("(1 of ") && !text.contains("keep"), "{text}");
}

/// Of a command that has ended, what is in use is what it left: nothing, here.
#[test]
fn a_command_is_shown_at_the_peak_that_the_head_names() {
    let source = r#"
#include <stdlib.h>
static void *volatile kept[10];
__attribute__((noinline)) static void fill(int i) { kept[i] = malloc(100000); }
int main(void) {
    for (int i = 0; i < 10; i++) fill(i);
    for (int i = 0; i < 10; i++) free(kept[i]);
    return 0;
}
"#;
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin"];
    let program = compile(directory.path(), "peak.c", source, &flags);
    let profile = |options: &[&str]| {
        let mut command = larder();
        command.args(["profile", "--mean", "1"]).args(options);
        let run = output(command.arg("--").arg(&program));
        assert_success(&run);
        stdout(&run)
    };
    let text = profile(&[]);
    let (head, table) = text
        .split_once("\nSites by bytes in use at the peak")
        .expect("a table");
    assert!(
        head.contains("At the peak: 1,000,000 bytes in 10 objects"),
        "{head}"
    );
    let row = table.lines().nth(2).expect("a row");
    let words: Vec<&str> = row.split_whitespace().take(5).collect();
    assert_eq!(words, ["100.0", "%", "1,000,000", "10", "0"], "{text}");
    let folded = profile(&["--format", "collapsed"]);
    assert!(
        folded.contains("fill") && folded.trim_end().ends_with(" 1000000"),
        "{folded}"
    );
    let in_use = profile(&["--sort", "in-use"]);
    assert!(in_use.contains("Sites by bytes in use: none"), "{in_use}");
}

#[test]
fn growth_is_distinguished_from_chance() {
    let (_directory, program) = program();
    let few = profiled(&program, "few.heap", 100);
    let many = profiled(&program, "many.heap", 900);
    let base = ["--base", few.to_str().unwrap()];
    let report = json_of(&many, &base);
    assert_eq!(report["base"], "other run");
    let keep = site(&report, "keep");
    assert_eq!(keep["growth"]["bytes"], 800 * 64);
    assert_eq!(keep["growth"]["significant"], true);
    assert_eq!(report["growth"]["bytes"], 800 * 64);
    // The same profile again: nothing has grown.
    let same = json_of(&few, &base);
    assert_eq!(same["base"], "same process");
    assert_eq!(same["site_count"], 0);
    assert_eq!(same["growth"]["significant"], false);
    // One sample more at a mean of 1000 bytes is none.
    let write = |name: &str, objects: u32| {
        let path = program.with_file_name(name);
        let header = "heap profile: 0: 0 [0: 0] @ heap_v2/1000\n";
        let text = format!(
            "{header}{objects}: {0} [{objects}: {0}] @ 0x1\n\nMAPPED_LIBRARIES:\n",
            objects * 10
        );
        fs::write(&path, text).unwrap();
        path
    };
    let (before, after) = (write("before", 20), write("after", 21));
    let printed = output(
        larder()
            .arg("profile")
            .arg(&after)
            .arg("--base")
            .arg(&before),
    );
    let text = stdout(&printed);
    assert!(
        text.contains("of another run") && text.contains("; not significant)"),
        "{text}"
    );
}

#[test]
fn stacks_end_at_the_function_that_calls_the_allocator() {
    let source = r#"
        #include <stdlib.h>
        static void *volatile kept;
        __attribute__((noinline)) void zeroed(void) { kept = calloc(3, 1024); }
        __attribute__((noinline)) void moved(void) { kept = realloc(malloc(8), 3072); }
        __attribute__((noinline)) void aligned(void) {
            void *block;
            if (posix_memalign(&block, 128, 3072) == 0) kept = block;
        }
        int main(void) { zeroed(); moved(); aligned(); }
    "#;
    let directory = temporary();
    let program = compile(directory.path(), "ends.c", source, &["-g", "-O1"]);
    let mut profile = larder();
    profile.args(["profile", "--mean", "1", "--format", "collapsed", "--"]);
    let folded = stdout(&output(profile.arg(&program)));
    let within = folded.lines().filter_map(|line| line.rsplit_once(";main;"));
    let mut ends: Vec<&str> = within.map(|(_, ends)| ends).collect();
    ends.sort_unstable();
    assert_eq!(
        ends,
        ["aligned 3072", "moved 3072", "zeroed 3072"],
        "{folded}"
    );
}

#[test]
fn every_format_holds_the_same() {
    let (directory, program) = program();
    let heap = profiled(&program, "app.heap", 500);
    let total = 500 * 64 + 1_000_000;
    let make = |name: &str, options: &[&str]| {
        let file = directory.path().join(name);
        let made = output(
            larder()
                .arg("profile")
                .arg(&heap)
                .args(options)
                .arg("-o")
                .arg(&file),
        );
        assert_success(&made);
        fs::read(&file).unwrap()
    };
    let folded = String::from_utf8(make("out.folded", &[])).unwrap();
    let weight = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let in_use = folded
        .lines()
        .filter(|line| line.contains("main;"))
        .map(weight)
        .sum::<u64>();
    assert_eq!(in_use, total);
    let objects = String::from_utf8(make("o.folded", &["--sort", "objects"])).unwrap();
    assert!(
        objects.lines().any(|line| line.ends_with(";keep 500")),
        "{objects}"
    );
    let svg = String::from_utf8(make("out.svg", &[])).unwrap();
    assert!(svg.starts_with("<?xml") && svg.contains("Bytes in use") && svg.contains("keep"));
    let speedscope: Value = serde_json::from_slice(&make("out.speedscope.json", &[])).unwrap();
    assert_eq!(speedscope["profiles"].as_array().unwrap().len(), 5);
    let again = make("again.heap", &[]);
    assert_eq!(again, fs::read(&heap).unwrap());
    let mut profile = Vec::new();
    let zipped = make("out.pb.gz", &[]);
    flate2::read::GzDecoder::new(&*zipped)
        .read_to_end(&mut profile)
        .unwrap();
    for name in [
        "inuse_objects",
        "inuse_space",
        "alloc_space",
        "peak_space",
        "keep",
    ] {
        let found = profile
            .windows(name.len())
            .any(|part| part == name.as_bytes());
        assert!(found, "no {name}");
    }
    let refused =
        output(
            larder()
                .arg("profile")
                .arg(&heap)
                .args(["--sort", "lifetimes", "--format", "svg"]),
        );
    assert_fails(&refused, 125, &["--sort", "choose"]);
    let unknown = output(larder().arg("profile").arg(&heap).args(["-o", "nothing"]));
    assert_fails(&unknown, 125, &["nothing", "--format"]);
}

#[test]
fn what_is_no_profile_is_reported_in_one_line() {
    let directory = temporary();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let newer = b"heap profile: 0: 0 [0: 0] @ heapprofile\n# larder 9; mean 1\n";
    for (path, words) in [
        (
            directory.path().join("none"),
            ["no such file", "name a heap profile"],
        ),
        (directory.path().to_owned(), ["not a regular file", "name"]),
        (write("empty", b""), ["is empty", "again"]),
        (write("zip", b"\x1f\x8b\x08\x00"), ["pprof", "compressed"]),
        (write("text\x1b[2J", b"\nhello\n"), ["line 2", "\\x1b"]),
        (write("newer", newer), ["version 9", "newer larder"]),
    ] {
        assert_fails(&output(larder().arg("profile").arg(path)), 125, &words);
    }
    assert_fails(&output(larder().arg("profile")), 125, &["FILE"]);
    let gone = output(larder().args(["profile", "--", "/no/such/program"]));
    assert_fails(&gone, 127, &["/no/such/program"]);
    let many = larder()
        .args(["profile", "--format", "heap", "--", "sh", "-c"])
        .arg("ls /dev/null >&2; ls /dev/null >&2; exit 0")
        .output()
        .unwrap();
    assert_eq!(code(&many), 125);
    assert!(
        stderr(&many).contains(" processes have written"),
        "{}",
        stderr(&many)
    );
    let killed = output(larder().args(["profile", "--", "sh", "-c", "kill -9 $$"]));
    assert_fails(&killed, 125, &["137", "wrote no heap profile"]);
}

#[test]
fn what_is_whole_of_a_damaged_profile_is_used_and_its_names_are_only_shown() {
    let directory = temporary();
    let file = directory.path().join("hurt");
    let text = "heap profile: 1: 10 [1: 10] @ heapprofile\n1: 10 [1: 10] @ 0x1500\n1: 2 [x\n\
                MAPPED_LIBRARIES:\n1000-2000 r-xp 00000000 00:00 0 /usr/lib/\x1b]0;evil\x07\n";
    fs::write(&file, text).unwrap();
    let read = output(larder().arg("profile").arg(&file));
    assert_success(&read);
    assert!(
        stderr(&read).contains("line 3") && stderr(&read).contains("1 line left out"),
        "{}",
        stderr(&read)
    );
    let shown = stdout(&read);
    assert!(
        shown.contains("\\x1b]0;evil\\x07+0x4ff") && !shown.contains('\x1b'),
        "{shown}"
    );
    assert!(shown.contains("In use: 10 bytes in 1 object"), "{shown}");
    fs::write(&file, &text[..70]).unwrap();
    let cut = output(larder().arg("profile").arg(&file));
    assert!(stderr(&cut).contains("cut off"), "{}", stderr(&cut));
}

/// Leaks at one line in each round, beside a cache that the first round fills, one that was full before,
/// and one whose entries come and go.
const LEAKING: &str = r#"
#include <stdlib.h>
#include <unistd.h>
static void *volatile sink, *cache[300], *early[5000], *busy[5000];
__attribute__((noinline)) static void leak(void) { sink = malloc(1000); }  // @leak
__attribute__((noinline)) static void fill(int i) { cache[i] = malloc(1000); }
__attribute__((noinline)) static void before(int i) { early[i] = malloc(1000); }  // @before
__attribute__((noinline)) static void churn(int i) { free(busy[i]); busy[i] = malloc(1000); }
int main(void) {
    char c;
    for (int i = 0; i < 5000; i++) before(i), churn(i);
    if (write(1, "ready\n", 6) != 6) return 1;
    for (int i = 0; read(0, &c, 1) == 1; i++) {
        for (int k = 0; k < 2000; k++) {
            leak();
            if (i == 0 && k < 300) fill(k);
            for (int n = 0; n < 5; n++) churn(rand() % 5000);
        }
        if (write(1, "done\n", 5) != 5) return 1;
    }
}
"#;

fn start(program: &Path, mean: &str) -> Running {
    let mut command = larder();
    command.env("LARDER_PROFILE_BYTES", mean);
    Running::once_it_says("ready\n", command.arg("run").arg(program))
}

fn profile(process: &Running, options: &[&str]) -> Output {
    let id = process.id().to_string();
    output(larder().arg("profile").arg(id).args(options))
}

/// The same with `--seconds 1`: in each of the intervals the process has a round.
fn profile_rounds(rounds: u32, process: &mut Running, options: &[&str]) -> Output {
    let directory = temporary();
    let clock = Clock::new(directory.path());
    let mut command = larder();
    command.args(["profile", &process.id().to_string(), "--seconds", "1"]);
    clock.drive(command.args(options));
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let profile = command.spawn().expect("it starts");
    for _ in 0..rounds {
        clock.wait_for(0.1, 1);
        process.round();
        clock.pass(Duration::from_secs(1));
    }
    profile.wait_with_output().expect("it ends")
}

#[test]
fn a_running_process_is_read_from_outside_and_its_leak_is_distinguished_from_caches() {
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin"];
    let program = compile(directory.path(), "leaking.c", LEAKING, &flags);
    let mut process = start(&program, "4096");
    let once = profile(&process, &["--json"]);
    assert_success(&once);
    let report: Value = serde_json::from_slice(&once.stdout).expect("JSON");
    assert_eq!(report["profiles"][0]["process"], process.id());
    let before = site(&report, "before");
    assert_eq!(before["line"], line_of(LEAKING, "before"));
    let [low, high] = [0, 1].map(|end| before["figures"]["in_use_bytes_95"][end].as_f64().unwrap());
    let middle = before["figures"]["in_use"]["bytes"].as_f64().unwrap();
    let truth = 5000.0 * 1024.0;
    assert!(truth > middle - 3.0 * (middle - low) && truth < middle + 3.0 * (high - middle));

    // The cache is full when the first interval ends.
    let text = stdout(&profile_rounds(1, &mut process, &[]));
    for part in [
        "Allocated in 1.0 s",
        "Growth since the base, of the same process: +",
        "leak  ",
    ] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let growing = profile_rounds(3, &mut process, &["--growing=3", "--json"]);
    assert_eq!(code(&growing), 1, "{}", stderr(&growing));
    let report: Value = serde_json::from_slice(&growing.stdout).expect("JSON");
    assert_eq!(report["site_count"], 1, "{report:#}");
    let leak = site(&report, "leak");
    assert_eq!(leak["each"].as_array().unwrap().len(), 3);
    assert!(
        leak["each"]
            .as_array()
            .unwrap()
            .iter()
            .all(|growth| growth["significant"] == true)
    );
    assert_eq!(leak["line"], line_of(LEAKING, "leak"));

    // What is written of it is a base for later.
    let file = directory.path().join("then.heap");
    assert_success(&profile(&process, &["-o", file.to_str().unwrap()]));
    let later = profile(&process, &["--json", "--base", file.to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&later.stdout).expect("JSON");
    assert_eq!(report["base"], "same process");
}

#[test]
fn a_process_that_cannot_be_read_is_reported() {
    let directory = temporary();
    let program = compile(directory.path(), "leaking.c", LEAKING, &["-O1"]);
    let process = start(&program, "0");
    assert_fails(
        &profile(&process, &[]),
        125,
        &["takes no samples", "LARDER_PROFILE_BYTES"],
    );
    let own = std::process::id().to_string();
    let other = output(larder().args(["profile", &own]));
    assert_fails(&other, 125, &[&own, "larder run"]);
    for (words, reported) in [
        (&["profile", "4194304999"][..], "no such process"),
        (&["profile", "4194303"], "no such process"),
        (&["profile", "1", "--seconds", "0"], "seconds"),
        (&["profile", "1", "--growing=1"], "--growing"),
        (&["profile", "heap", "--growing"], "need a process"),
        (
            &["profile", "1", "--growing", "--format", "svg"],
            "text or json",
        ),
        (
            &["profile", "1", "--seconds", "1", "--format", "heap"],
            "one moment",
        ),
    ] {
        assert_fails(&output(larder().args(words)), 125, &[reported]);
    }
}
