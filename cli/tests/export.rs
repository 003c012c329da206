//! `larder export` and `larder flamegraph`: what every format holds adds up to the report, hostile
//! names stay names, damaged traces are exported as far as they go.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::common::*;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Row, RowAccessor};
use serde_json::Value;
use tempfile::TempDir;

const SOURCE: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *volatile kept[64];
static inline __attribute__((always_inline)) void *make(size_t size) {
    return malloc(size);  // @make
}
static void *work(void *unused) {
    for (int i = 0; i < 1000; i++) free(make(100));
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    for (int i = 0; i < 64; i++) kept[i] = calloc(10, 50);  // @kept
    pthread_join(thread, NULL);
    for (int i = 0; i < 32; i++) free(kept[i]);
    char *grown = NULL;
    for (int i = 1; i <= 20; i++) grown = realloc(grown, i * 64);  // @grown
    free(grown);
    free(strdup("hello"));
    return malloc((size_t)-1) ? 1 : 0;
}
"#;

fn recorded() -> (TempDir, PathBuf) {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "sums.c",
        SOURCE,
        &["-g", "-O1", "-fno-builtin", "-pthread"],
    );
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    (directory, trace)
}

#[track_caller]
fn export(trace: &Path, options: &[&str]) -> Vec<u8> {
    let exported = output(larder().arg("export").arg(trace).args(options));
    assert_success(&exported);
    exported.stdout
}

#[track_caller]
fn export_text(trace: &Path, options: &[&str]) -> String {
    String::from_utf8(export(trace, options)).expect("UTF-8")
}

/// What each measure adds up to: its name, its member of the counters.
const TOTALS: [(&str, &str); 5] = [
    ("calls", "allocations"),
    ("bytes", "total_bytes"),
    ("live-bytes", "live_bytes"),
    ("live-blocks", "live_blocks"),
    ("peak", "peak_bytes"),
];

#[test]
fn collapsed_stacks_add_up_to_the_counters() {
    let (_directory, trace) = recorded();
    let counters = &report_json(&trace, &[])["counters"];
    for (measure, counter) in TOTALS {
        let text = export_text(&trace, &["--format", "collapsed", "--value", measure]);
        let values = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
        let sum: u64 = values.map(|value| value.parse::<u64>().unwrap()).sum();
        assert_eq!(counters[counter], sum, "{measure}");
    }
    let calls = export_text(&trace, &["--format", "collapsed"]);
    let inlined = |line: &&str| line.ends_with(";work;make 1000");
    assert!(calls.lines().any(|line| inlined(&line)), "{calls}");
    let temporary = export_text(&trace, &["--format", "collapsed", "--value", "temporary"]);
    assert!(temporary.lines().any(|line| inlined(&line)), "{temporary}");
}

#[derive(Clone, PartialEq, prost::Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Mapping {
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
}

#[test]
fn a_pprof_profile_adds_up_to_the_counters_and_begins_with_the_program() {
    let (directory, trace) = recorded();
    let counters = &report_json(&trace, &[])["counters"];
    let mut bytes = Vec::new();
    let zipped = export(&trace, &["--format", "pprof"]);
    flate2::read::GzDecoder::new(&*zipped)
        .read_to_end(&mut bytes)
        .unwrap();
    let profile: Profile = prost::Message::decode(&*bytes).unwrap();
    let expected = [
        "allocations",
        "total_bytes",
        "live_blocks",
        "live_bytes",
        "peak_bytes",
    ];
    for (index, counter) in expected.into_iter().enumerate() {
        let sum: i64 = profile
            .sample
            .iter()
            .map(|sample| sample.value[index])
            .sum();
        assert_eq!(counters[counter], sum, "{counter}");
    }
    let text = |number: i64| &*profile.string_table[number as usize];
    let program = directory.path().join("sums").canonicalize().unwrap();
    assert_eq!(text(profile.mapping[0].filename), program.to_str().unwrap());
    assert!(text(profile.mapping[0].build_id).len() >= 16);
    assert!(profile.sample.iter().all(|s| !s.location_id.is_empty()));
}

#[test]
fn stacks_that_begin_at_their_site_leave_out_the_plumbing() {
    let (_directory, trace) = recorded();
    let options = ["--format", "json", "--from-site"];
    let text = export_text(&trace, &options);
    let exported: Value = serde_json::from_str(&text).unwrap();
    let stacks = exported["stacks"].as_array().unwrap();
    assert!(!stacks.is_empty());
    for stack in stacks {
        assert_eq!(stack["frames"][0], stack["site"], "{stack}");
    }
    let calls: u64 = stacks.iter().map(|s| s["calls"].as_u64().unwrap()).sum();
    assert_eq!(exported["counters"]["allocations"], calls);
}

#[test]
fn a_speedscope_file_has_a_profile_a_measure() {
    let (_directory, trace) = recorded();
    let counters = &report_json(&trace, &[])["counters"];
    let options = ["--format", "speedscope", "--value", "peak"];
    let file: Value = serde_json::from_slice(&export(&trace, &options)).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
    let profiles = file["profiles"].as_array().unwrap();
    for (profile, (_, counter)) in profiles.iter().zip(TOTALS) {
        let sum = |values: &Value| -> u64 {
            let values = values.as_array().unwrap().iter();
            values.map(|value| value.as_u64().unwrap()).sum()
        };
        assert_eq!(counters[counter], sum(&profile["weights"]), "{counter}");
        assert_eq!(profile["endValue"], counters[counter]);
        let samples = profile["samples"].as_array().unwrap().iter();
        let mut numbers = samples.flat_map(|sample| sample.as_array().unwrap());
        assert!(numbers.all(|number| number.as_u64().unwrap() < frames));
    }
    let shown = &profiles[file["activeProfileIndex"].as_u64().unwrap() as usize];
    assert_eq!(shown["name"], "Bytes live at the peak");
}

/// valgrind's viewer itself adds the file up, under node.
#[test]
fn dhats_viewer_takes_the_file_and_adds_up_to_the_counters() {
    let (directory, trace) = recorded();
    let counters = &report_json(&trace, &[])["counters"];
    let file = directory.path().join("dhat.out");
    export(&trace, &["--format", "dhat", "-o", file.to_str().unwrap()]);
    let viewers = ["/usr/libexec/valgrind", "/usr/lib/valgrind"];
    let viewer = viewers.map(|path| Path::new(path).join("dh_view.js"));
    let viewer = viewer.iter().find(|path| path.is_file());
    let viewer = viewer.expect("valgrind's dh_view.js: install valgrind");
    let loader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/exports/dhat.js");
    let viewed = output(
        std::process::Command::new("node")
            .arg(loader)
            .arg(viewer)
            .arg(&file),
    );
    assert_success(&viewed);
    let root: Value = serde_json::from_slice(&viewed.stdout).unwrap();
    assert_eq!(root["blocks"], counters["allocations"]);
    assert_eq!(root["bytes"], counters["total_bytes"]);
    assert_eq!(root["peak_bytes"], counters["peak_bytes"]);
    assert_eq!(root["live_bytes"], counters["live_bytes"]);
    assert_eq!(root["live_blocks"], counters["live_blocks"]);
    let shown = root["shown"].as_str().unwrap();
    assert!(shown.contains("make ("), "{shown}");
    assert!(
        shown.contains("Max:       100 bytes in 1 blocks"),
        "{shown}"
    );
}

fn rows(path: &Path) -> Vec<Row> {
    let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let rows = file.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

#[test]
fn parquets_events_and_stacks_add_up_to_the_counters() {
    let (directory, trace) = recorded();
    let counters = &report_json(&trace, &[])["counters"];
    let folder = directory.path().join("tables");
    export(
        &trace,
        &["--format", "parquet", "-o", folder.to_str().unwrap()],
    );
    let stacks = rows(&folder.join("stacks.parquet"));
    let column = |name: &str| -> i64 {
        let sum = stacks.iter().map(|row| {
            let mut columns = row.get_column_iter();
            let index = columns.position(|(column, _)| column == name).unwrap();
            row.get_long(index).unwrap()
        });
        sum.sum()
    };
    assert_eq!(counters["allocations"], column("calls"));
    assert_eq!(counters["total_bytes"], column("bytes"));
    assert_eq!(counters["peak_bytes"], column("peak_bytes"));
    assert_eq!(counters["live_blocks"], column("live_blocks"));

    let events = rows(&folder.join("events.parquet"));
    let number = |row: &Row, index: usize| row.get_long(index).unwrap_or(0);
    let makes = |row: &&Row| matches!(row.get_string(4).unwrap().as_str(), "alloc" | "realloc");
    let made: Vec<&Row> = events.iter().filter(makes).collect();
    assert_eq!(counters["allocations"], made.len());
    let bytes: i64 = made.iter().map(|row| number(row, 8)).sum();
    assert_eq!(counters["total_bytes"], bytes);
    let freed: i64 = events.iter().map(|row| number(row, 9)).sum();
    assert_eq!(counters["live_bytes"], bytes - freed);
    let failed = events
        .iter()
        .filter(|row| row.get_string(4).unwrap() == "failed");
    assert_eq!(counters["failed"], failed.count());

    let mut known: Vec<i64> = stacks.iter().map(|row| number(row, 0)).collect();
    known.sort_unstable();
    let distinct = known.len();
    known.dedup();
    assert_eq!(known.len(), distinct, "a stack's number is its own");
    assert!(
        events
            .iter()
            .all(|row| known.binary_search(&number(row, 10)).is_ok())
    );
}

#[test]
fn hostile_names_stay_names() {
    const NAME: &str = "a;b<script>\u{1b}[2J 12";
    let directory = temporary();
    let source = "#include <stdlib.h>\nint main(void) { return !malloc(77); }";
    let plain = compile(directory.path(), "plain.c", source, &["-s"]);
    let program = directory.path().join(NAME);
    copy_program(plain, &program);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);

    let text = export_text(&trace, &["--format", "collapsed", "--value", "bytes"]);
    let line = text
        .lines()
        .find(|line| line.ends_with(" 77"))
        .expect(&text);
    assert!(line.ends_with("[a:b<script>\\x1b[2J_12] 77"), "{line}");
    for format in ["collapsed", "speedscope", "dhat", "json"] {
        let text = export_text(&trace, &["--format", format]);
        assert!(!text.contains('\u{1b}'), "{format}");
    }
    let drawn = output(larder().arg("flamegraph").arg(&trace));
    assert_success(&drawn);
    let picture = stdout(&drawn);
    assert!(picture.contains("a:b&lt;script&gt;"), "{picture}");
    assert!(!picture.contains("a:b<script>") && !picture.contains('\u{1b}'));
}

#[test]
fn a_cut_trace_is_exported_as_far_as_it_goes() {
    let (directory, trace) = recorded();
    let file = fs::read_dir(&trace)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let bytes = fs::read(&file).unwrap();
    // Within its last chunk.
    fs::write(&file, &bytes[..bytes.len() - 20]).unwrap();
    let folder = directory.path().join("tables");
    let folder = folder.to_str().unwrap();
    for options in [
        &["--format", "collapsed"][..],
        &["--format", "pprof"],
        &["--format", "speedscope"],
        &["--format", "dhat"],
        &["--format", "json"],
        &["--format", "parquet", "-o", folder],
    ] {
        let exported = output(larder().arg("export").arg(&trace).args(options));
        assert_success(&exported);
        assert!(stderr(&exported).contains("warning"), "{options:?}");
    }
    let json: Value = serde_json::from_slice(&export(&trace, &["--format", "json"])).unwrap();
    assert_eq!(json["complete"], false);
    assert!(!json["messages"].as_array().unwrap().is_empty());
}

#[test]
fn wrong_usage_is_reported_in_one_line() {
    let (directory, trace) = recorded();
    let run = |options: &[&str]| output(larder().arg("export").arg(&trace).args(options));
    let fails = |options: &[&str], words: &[&str]| assert_fails(&run(options), 125, words);
    fails(&["--format", "parquet"], &["-o", "directory"]);
    fails(&["--format", "json", "--value", "bytes"], &["--value"]);
    fails(&["--format", "xml"], &["xml"]);
    let gone = directory.path().join("no/such/file");
    let gone = gone.to_str().unwrap();
    fails(&["--format", "json", "-o", gone], &["no/such/file", "-o"]);
    fails(
        &["--format", "parquet", "-o", gone],
        &["no/such/file", "-o"],
    );
    let none = output(larder().args(["flamegraph", "--pid", "1"]).arg(&trace));
    assert_fails(&none, 125, &["no process 1"]);
}

#[test]
fn a_flame_graph_shows_its_total_and_a_differential_one_the_change() {
    let (directory, trace) = recorded();
    let counters = &report_json(&trace, &[])["counters"];
    let calls = counters["allocations"].as_u64().unwrap();
    let drawn = output(larder().arg("flamegraph").arg(&trace));
    assert_success(&drawn);
    let picture = stdout(&drawn);
    assert!(
        picture.contains(&format!("total_samples=\"{calls}\"")),
        "{picture}"
    );
    assert!(picture.contains("make (1,000 calls,"), "{picture}");

    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    let more = SOURCE.replace("i < 1000", "i < 1500");
    let flags = ["-g", "-O1", "-fno-builtin", "-pthread"];
    let program = compile(&other, "sums.c", &format!("\n\n{more}"), &flags);
    let grown = record(&other, &program, &[], &["--no-larder"]);
    let file = directory.path().join("change.svg");
    let compared = output(
        larder()
            .arg("flamegraph")
            .arg(&grown)
            .arg("--diff")
            .arg(&trace)
            .arg("-o")
            .arg(&file),
    );
    assert_success(&compared);
    let picture = fs::read_to_string(&file).unwrap();
    let percent = 500.0 * 100.0 / (calls + 500) as f64;
    assert!(picture.contains(&format!("; +{percent:.2}%)")), "{picture}");
    assert!(
        picture.contains(&format!("main ({} calls, ", calls - 1000)),
        "{picture}"
    );
}

/// Each build has process numbers of its own.
#[test]
fn a_differential_flame_graph_takes_a_process_of_each_trace() {
    const FORKS: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) static void child(void) { for (int i = 0; i < 70; i++) kept = malloc(9); }
int main(void) {
    if (fork() == 0) { child(); exit(0); }
    for (int i = 0; i < 40; i++) kept = malloc(5);
    return wait(NULL) < 0;
}
"#;
    let directories = [temporary(), temporary()];
    let [old, new] = directories.each_ref().map(|directory| {
        let flags = ["-g", "-O1", "-fno-builtin"];
        let program = compile(directory.path(), "forks.c", FORKS, &flags);
        let trace = record(directory.path(), &program, &[], &["--no-larder"]);
        let report = report_json(&trace, &[]);
        let processes = report["processes"].as_array().expect("processes");
        let child = processes
            .iter()
            .find(|process| process["counters"]["allocations"] == 70);
        (trace, child.expect("the child")["pid"].to_string())
    });
    let draw = |options: &[&str]| {
        let mut draw = larder();
        draw.arg("flamegraph").arg(&new.0).args(options);
        output(draw.arg("--diff").arg(&old.0))
    };
    let picture = draw(&["--pid", &new.1, "--diff-pid", &old.1]);
    assert_success(&picture);
    let picture = stdout(&picture);
    assert!(picture.contains("total_samples=\"70\"") && picture.contains("child (70 calls"));
    assert!(picture.contains(">70 → 70 calls;"), "{picture}");
    // Of the other trace all, the 40 of its parent too.
    let beside_all = draw(&["--pid", &new.1]);
    assert_success(&beside_all);
    assert!(stdout(&beside_all).contains(">110 → 70 calls;"));
    assert_fails(&draw(&["--diff-pid", "1"]), 125, &["no process 1"]);
    let alone = output(larder().args(["flamegraph", "--diff-pid", "1"]).arg(&new.0));
    assert_fails(&alone, 125, &["--diff"]);
}

#[test]
fn a_memory_log_of_the_trace_has_the_reports_counters_and_lines() {
    let (directory, trace) = recorded();
    let log = directory.path().join("sums.log");
    export(
        &trace,
        &["--format", "memdebug", "-o", log.to_str().expect("UTF-8")],
    );
    let analysed = output(larder().arg("memdebug").arg("--json").arg(&log));
    // 32 of the blocks are never freed, which the analyser says and exits 1 for.
    assert_eq!(code(&analysed), 1, "{}", stderr(&analysed));
    let analysed: Value = serde_json::from_slice(&analysed.stdout).expect("JSON");
    let report = report_json(&trace, &[]);
    for (logged, counted) in [
        ("mallocs", "mallocs"),
        ("callocs", "callocs"),
        ("reallocs", "reallocs"),
        ("strdups", "strdups"),
        ("frees", "frees"),
        ("allocations", "allocations"),
        ("total_allocated", "total_bytes"),
        ("maximum_allocated", "peak_bytes"),
    ] {
        let (logged, counted) = (&analysed["counters"][logged], &report["counters"][counted]);
        assert_eq!(logged, counted, "{analysed:#}");
    }
    let text = fs::read_to_string(&log).expect("the log");
    let kept = format!("sums.c:{} calloc(10,50)", line_of(SOURCE, "kept"));
    assert_eq!(text.matches(&kept).count(), 64);
    let refused = output(larder().arg("export").arg(&trace).args([
        "--format",
        "memdebug",
        "--wrapper",
        "make=malloc",
    ]));
    assert_fails(&refused, 125, &["--wrapper"]);
}
