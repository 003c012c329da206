//! `larder record`: exit codes, the trace's place and rights, several processes, early ends.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::running::wait_until;
use crate::common::*;
use larder_trace::writer::{About, Writer};

#[test]
fn the_exit_code_and_the_output_are_the_commands() {
    let directory = temporary();
    for (script, expected) in [("echo out; exit 0", 0), ("echo out; exit 37", 37)] {
        let trace = directory.path().join(format!("t{expected}"));
        let recorded = output(
            larder()
                .arg("record")
                .arg("-o")
                .arg(&trace)
                .args(["sh", "-c", script]),
        );
        assert_eq!(code(&recorded), expected, "{}", stderr(&recorded));
        assert_eq!(stdout(&recorded), "out\n");
        let text = stderr(&recorded);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("larder report"), "{text}");
        assert!(text.contains(trace.to_str().unwrap()), "{text}");
    }
}

#[test]
fn death_by_signal_is_reported_as_a_shell_does() {
    let directory = temporary();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let trace = directory.path().join(name);
        let script = format!("kill -{name} $$");
        let recorded = output(
            larder()
                .arg("record")
                .arg("-o")
                .arg(&trace)
                .args(["sh", "-c", &script]),
        );
        assert_eq!(code(&recorded), 128 + number, "{}", stderr(&recorded));
    }
}

#[test]
fn the_trace_is_its_owners_alone_and_named_after_the_program() {
    let directory = temporary();
    let recorded = output(
        larder()
            .current_dir(&directory)
            .args(["record", "--", "true"]),
    );
    assert_success(&recorded);
    let entries: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [trace] = &entries[..] else {
        panic!("{entries:?}")
    };
    let name = trace.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("larder-true-") && name.ends_with(".trace"),
        "{name}"
    );
    assert_eq!(
        fs::metadata(trace).unwrap().permissions().mode() & 0o777,
        0o700
    );
    for file in fs::read_dir(trace).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

const KILLED: &str = r#"
#include <signal.h>
#include <stdlib.h>
static void *volatile kept[100000];
int main(void) {
    for (int i = 0; i < 100000; i++) kept[i] = malloc(48);  // @make
    raise(SIGKILL);
    return 0;
}
"#;

#[test]
fn what_a_killed_program_had_done_is_in_the_trace() {
    let directory = temporary();
    let program = compile(directory.path(), "killed.c", KILLED, &["-g", "-O0"]);
    let trace = directory.path().join("trace");
    let recorded = output(larder().arg("record").arg("-o").arg(&trace).arg(&program));
    assert_eq!(code(&recorded), 128 + 9);
    let report = report_json(&trace, &[]);
    let site = site_at(&report, "killed.c", line_of(KILLED, "make"));
    let calls = site["calls"].as_u64().unwrap();
    assert!(calls > 90_000 && calls <= 100_000, "{calls}");
    assert_eq!(site["live_blocks"], calls);
    assert_eq!(report["processes"][0]["end"], "not seen");
    assert!(
        report_text(&trace, &[]).contains("its end was not recorded"),
        "the early end is not reported"
    );
}

/// One of its threads never ends.
const UNENDING: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_barrier_t made;
static void *volatile kept;
static void *wait_for_ever(void *argument) {
    for (int i = 0; i < 1000; i++) kept = malloc(24);  // @waiting
    pthread_barrier_wait(&made);
    for (;;) pause();
    return argument;
}
int main(void) {
    pthread_t thread;
    pthread_barrier_init(&made, NULL, 2);
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    for (int i = 0; i < 200000; i++) free(malloc((size_t)rand() % 4000 + 1));  // @main
    pthread_barrier_wait(&made);
    return 0;
}
"#;

#[test]
fn the_file_of_an_ended_process_has_no_holes_and_every_record() {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "unending.c",
        UNENDING,
        &["-g", "-O0", "-pthread"],
    );
    let trace = directory.path().join("trace");
    let recorded = output(larder().arg("record").arg("-o").arg(&trace).arg(&program));
    assert_success(&recorded);
    let report = report_json(&trace, &[]);
    assert_eq!(report["losses"]["complete"], true, "{report:#}");
    for (name, calls) in [("waiting", 1000), ("main", 200_000)] {
        let site = site_at(&report, "unending.c", line_of(UNENDING, name));
        assert_eq!(site["calls"], calls);
    }
    let files = larder_trace::trace_files(&trace).unwrap();
    let [file] = files.as_slice() else {
        panic!("{files:?}");
    };
    let meta = fs::metadata(file).unwrap();
    assert!(meta.blocks() * 512 >= meta.len(), "{meta:?}");
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(file).unwrap();
    let region = bytes.windows(5).position(|found| found == b"LCHK\x04");
    assert_eq!(region, None);
}

const FORKING: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
int main(int argc, char **argv) {
    if (argc > 1) {
        kept = malloc(3000);  // @exec
        return 0;
    }
    void *parents = malloc(1000);  // @parent
    if (fork() == 0) {
        free(parents);
        kept = malloc(2000);  // @child
        execl(argv[0], argv[0], "again", NULL);
        _exit(1);
    }
    int status;
    wait(&status);
    return status;
}
"#;

#[test]
fn children_and_what_they_execute_are_recorded_each() {
    let directory = temporary();
    let program = compile(directory.path(), "forking.c", FORKING, &["-g", "-O0"]);
    let trace = record(directory.path(), &program, &[], &[]);
    let report = report_json(&trace, &[]);
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3, "{processes:#?}");
    for (mark, bytes) in [("parent", 1000), ("child", 2000), ("exec", 3000)] {
        assert_eq!(
            site_at(&report, "forking.c", line_of(FORKING, mark))["bytes"],
            bytes
        );
    }
    assert_eq!(report["counters"]["peak_bytes"], 3000);
    let child = &processes
        .iter()
        .find(|process| process["origin"] == "fork")
        .unwrap()["pid"];
    let of_child = report_json(&trace, &["--pid", &child.to_string()]);
    assert_eq!(of_child["processes"].as_array().unwrap().len(), 2);
    assert_eq!(of_child["counters"]["total_bytes"], 5000);
}

/// Numbers of processes start again from the lowest, so a child's may be below its parent's.
#[test]
fn the_program_that_was_started_is_named_whatever_its_number() {
    let directory = temporary();
    let trace = directory.path().join("wrapped.trace");
    fs::create_dir(&trace).expect("the trace");
    for (pid, word, start_wall_ns) in [(3, "late", 30), (32_700, "started", 10), (300, "child", 20)]
    {
        let file = fs::File::create(trace.join(format!("{pid}-0.ltrace"))).expect("a file");
        let about = About {
            pid,
            executable: word.as_bytes(),
            argv: &[word.as_bytes(), b"word"],
            start_wall_ns,
        };
        let writer = Writer::new(file, &about).expect("the header");
        writer.finish().expect("the file");
    }
    let text = report_text(&trace, &[]);
    assert!(text.starts_with("started word\n"), "{text}");
    let report = report_json(&trace, &[]);
    let processes = report["processes"].as_array().expect("processes");
    let pids: Vec<_> = processes
        .iter()
        .map(|process| process["pid"].as_u64())
        .collect();
    assert_eq!(pids, [Some(32_700), Some(300), Some(3)]);
    let compared = output(larder().arg("diff").arg(&trace).arg(&trace));
    assert!(
        stdout(&compared).contains("started word"),
        "{}",
        stdout(&compared)
    );
}

#[test]
fn what_runs_on_larder_below_the_recorder_is_recorded() {
    let directory = temporary();
    let source = "#include <stdlib.h>\nvoid *volatile kept;\n\
                  int main(void) { kept = malloc(4321); return 0; }  // @make\n";
    let program = compile(directory.path(), "n.c", source, &["-g"]);
    let tool = env!("CARGO_BIN_EXE_larder");
    let library = library_directory();
    let arguments = ["run", "--", program.to_str().unwrap()];
    let trace = directory.path().join("nested.trace");
    let recorded = output(
        larder()
            .env("LARDER_LIB", &library)
            .args(["record", "-o"])
            .arg(&trace)
            .arg("--")
            .arg(tool)
            .args(arguments),
    );
    assert_success(&recorded);
    let report = report_json(&trace, &[]);
    assert_eq!(
        site_at(&report, "n.c", line_of(source, "make"))["bytes"],
        4321
    );
}

#[test]
fn of_a_program_with_a_malloc_of_its_own_the_reason_for_nothing_is_reported() {
    let directory = temporary();
    let source = r#"
        #include <stddef.h>
        static char memory[4096];
        static size_t used;
        void *malloc(size_t size) { used += (size + 15) & ~15ul; return memory + used - size; }
        void free(void *block) { (void)block; }
        int main(void) { free(malloc(100)); return 0; }"#;
    let flags = ["-fno-builtin", "-rdynamic"];
    let program = compile(directory.path(), "own.c", source, &flags);
    let recorded = output(
        larder()
            .current_dir(&directory)
            .args(["record", "-o", "own.trace", "--"])
            .arg(&program),
    );
    assert_success(&recorded);
    let text = stderr(&recorded);
    assert_eq!(text.lines().count(), 1, "{text}");
    for words in ["0 events", "a malloc of its own", "larder report own.trace"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_place_with_spaces_and_bytes_that_are_not_utf8() {
    let directory = temporary();
    let odd = directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"a dir\xff:x"));
    fs::create_dir(&odd).unwrap();
    let program = odd.join("my true");
    copy_program("/bin/true", &program);
    let trace = odd.join("the trace");
    let recorded = output(larder().arg("record").arg("-o").arg(&trace).arg(&program));
    assert_success(&recorded);
    assert!(
        stderr(&recorded).contains("a dir\\xff:x/the trace"),
        "{}",
        stderr(&recorded)
    );
    let reported = output(larder().arg("report").arg(&trace));
    assert_success(&reported);
    assert!(
        stdout(&reported).contains("a dir\\xff:x"),
        "{}",
        stdout(&reported)
    );
}

#[test]
fn a_file_size_limit_stops_the_recording_not_the_program() {
    let directory = temporary();
    let source = r#"
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 2000000; i++) free(malloc((size_t)rand() % 4000 + 1));
    return 11;
}
"#;
    let program = compile(directory.path(), "many.c", source, &["-g", "-O0"]);
    let trace = directory.path().join("trace");
    let script = "ulimit -f 512; exec \"$0\" record -o \"$1\" \"$2\"";
    let recorded = output(
        Command::new("bash")
            .args(["-c", script, env!("CARGO_BIN_EXE_larder")])
            .args([&trace, &program])
            .env("LARDER_LIB", library_directory()),
    );
    assert_eq!(code(&recorded), 11, "{}", stderr(&recorded));
    let reported = output(larder().arg("report").arg(&trace).arg("--json"));
    assert_success(&reported);
    assert!(
        stderr(&reported).contains("recording stopped"),
        "{}",
        stderr(&reported)
    );
    let report: serde_json::Value = serde_json::from_slice(&reported.stdout).unwrap();
    assert!(
        report["losses"]["stopped"].is_string(),
        "{:#}",
        report["losses"]
    );
    assert!(report["losses"]["calls"].as_u64().unwrap() > 0);
}

#[test]
fn a_signal_sent_to_the_tool_reaches_the_command() {
    let directory = temporary();
    let trace = directory.path().join("trace");
    let ready = directory.path().join("ready");
    let script = "trap 'exit 42' TERM; : > \"$0\"; while :; do sleep 0.05; done";
    let tool = larder()
        .arg("record")
        .arg("-o")
        .arg(&trace)
        .args(["sh", "-c", script])
        .arg(&ready)
        .stderr(Stdio::piped())
        .spawn()
        .expect("larder");
    wait_until("begun", || ready.exists());
    let kill = Command::new("kill")
        .args(["-TERM", &tool.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let ended = tool.wait_with_output().unwrap();
    assert_eq!(code(&ended), 42, "{}", stderr(&ended));
}

#[test]
fn doctor_finds_a_library_that_is_a_link_to_another_folder() {
    let directory = temporary();
    for name in ["liblarder.so", "liblarder_record.so"] {
        let file = std::fs::canonicalize(library_directory().join(name)).expect("built");
        std::os::unix::fs::symlink(file, directory.path().join(name)).expect("a link");
    }
    let mut doctor = larder();
    doctor.env("LARDER_LIB", directory.path());
    let examined = output(doctor.arg("doctor"));
    assert_eq!(code(&examined), 0, "{}", stdout(&examined));
}

#[test]
fn doctor_finds_everything_and_tries_a_recording() {
    let examined = output(larder().args(["doctor", "--json"]));
    let document: serde_json::Value = serde_json::from_slice(&examined.stdout).expect("JSON");
    assert_eq!(code(&examined), 0, "{document:#}");
    let findings = document["findings"].as_array().unwrap();
    for check in ["allocator", "recorder", "trial recording"] {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        assert_eq!(finding.expect(check)["health"], "ok", "{finding:?}");
    }
    let examined = output(larder().arg("doctor").arg(env!("CARGO_BIN_EXE_larder")));
    assert_success(&examined);
    assert!(
        stdout(&examined).contains("debug information"),
        "{}",
        stdout(&examined)
    );
}

#[test]
fn with_syscalls_the_results_of_input_and_output_are_in_the_trace() {
    let (libraries, directory) = (built_libraries(), temporary());
    let program = compile(
        directory.path(),
        "copy.c",
        "#include <unistd.h>
int main(void) { char b[3]; return read(0, b, 3) != 3 || write(1, b, 3) != 3; }",
        &[],
    );
    let trace = directory.path().join("t");
    for (option, expected) in [(&[][..], 0), (&["--syscalls"], 2)] {
        let _ = fs::remove_dir_all(&trace);
        let mut command = bare_larder();
        command.env("LARDER_LIB", libraries.path());
        command.arg("record").arg("-o").arg(&trace).args(option);
        command
            .arg(&program)
            .stdin(fs::File::open("/dev/zero").unwrap());
        assert_success(&output(&mut command));
        let files = larder_trace::trace_files(&trace).unwrap();
        let trace = larder_trace::Trace::open(&files[0]).unwrap();
        let mut events = trace.events();
        let mut results = Vec::new();
        while let Some(event) = events.next() {
            if let larder_trace::Action::SystemCall { call, result, .. } = event.action
                && call.counts_bytes()
            {
                results.push((call.name(), result));
            }
        }
        assert_eq!(results, [("read", 3), ("write", 3)][..expected]);
    }
}

const SHARING: &str = r#"
#include <pthread.h>
#include <stdlib.h>
static void *volatile shared[64];
static void *make(void *argument) {
    for (int i = 0; i < 20000; i++) {
        free(shared[i % 64]);
        shared[i % 64] = realloc(malloc((size_t)i % 300), 400);  // @made
        free(calloc(3, 50));  // @short
    }
    return argument;
}
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 2; i++) {
        pthread_create(&thread, NULL, make, NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}
"#;

#[test]
fn without_times_a_trace_is_smaller_and_says_the_rest() {
    let directory = temporary();
    let flags = ["-g", "-O0", "-pthread"];
    let program = compile(directory.path(), "sharing.c", SHARING, &flags);
    let record = |name: &str, options: &[&str]| {
        let trace = directory.path().join(name);
        let mut command = larder();
        command.arg("record").args(options).arg("-o").arg(&trace);
        let recorded = output(command.arg(&program));
        assert_success(&recorded);
        assert_eq!(stderr(&recorded).lines().count(), 1, "{recorded:?}");
        trace
    };
    let (full, small) = (record("full", &[]), record("small", &["--no-times"]));
    let bytes = |trace: &PathBuf| {
        let files = larder_trace::trace_files(trace).unwrap();
        fs::metadata(&files[0]).unwrap().len()
    };
    assert!(bytes(&small) * 2 < bytes(&full), "{} bytes", bytes(&small));
    let reports = [&full, &small].map(|trace| report_json(trace, &[]));
    for what in ["counters", "site_count"] {
        assert_eq!(reports[0][what], reports[1][what], "{what}");
    }
    assert_eq!(reports[1]["losses"]["complete"], true);
    assert_eq!(reports[1]["processes"][0]["threads"], 3);
    assert!(reports[1]["processes"][0]["duration_ns"].as_u64() > Some(1_000_000));
    for (name, calls) in [("made", 80_000), ("short", 40_000)] {
        let site = site_at(&reports[1], "sharing.c", line_of(SHARING, name));
        assert_eq!(site["calls"], calls);
    }
    let advice = [&full, &small].map(|trace| {
        let advised = output(larder().args(["advise", "--json"]).arg(trace));
        assert_success(&advised);
        let advice: serde_json::Value = serde_json::from_str(&stdout(&advised)).unwrap();
        advice["processes"][0]["findings"].clone()
    });
    assert!(advice[0].as_array().is_some_and(|found| !found.is_empty()));
    assert_eq!(advice[0], advice[1]);
    for (command, lack) in [
        (&["timeline"][..], "the timeline counts events"),
        (&["html"], "the timeline counts events"),
        (&["export", "--format", "dhat"], "lifetimes are 0"),
        (&["export", "--format", "parquet"], "lifetimes are 0"),
        (&["flamegraph"], ""),
        (&["export", "--format", "pprof"], ""),
    ] {
        let shown = directory.path().join(command.join(" "));
        let shown = output(larder().args(command).arg(&small).arg("-o").arg(shown));
        assert_success(&shown);
        let said = stderr(&shown);
        assert_eq!(
            said.matches("no times").count(),
            usize::from(!lack.is_empty()),
            "{said}"
        );
        assert!(said.contains(lack), "{command:?}: {said}");
    }
}

const LEAVING: &str = r#"
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    free(malloc(100));
    int begun[2];
    char ends;
    if (pipe(begun) != 0) return 1;
    // The child lets go of this process's file when it begins its own.
    if (fork() > 0) return read(begun[0], &ends, 1) != 1;
    free(malloc(200));
    if (write(begun[1], "", 1) != 1) return 1;
    close(1);
    close(2);
    // Until the test is over.
    return (int)read(atoi(argv[1]), &ends, 1);
}
"#;

#[test]
fn a_file_of_a_process_that_still_runs_keeps_its_times() {
    let directory = temporary();
    let program = compile(directory.path(), "leaving.c", LEAVING, &["-O0"]);
    let trace = directory.path().join("trace");
    let (waits, ends) = std::io::pipe().unwrap();
    let mut command = larder();
    command.args(["record", "--no-times", "-o"]).arg(&trace);
    command.arg(&program).arg("0").stdin(waits);
    let recorded = output(&mut command);
    assert_success(&recorded);
    let said = stderr(&recorded);
    let files = larder_trace::trace_files(&trace).unwrap();
    let with_times = files
        .iter()
        .filter(|file| larder_trace::Trace::open(file).unwrap().has_times());
    assert_eq!((files.len(), with_times.count()), (2, 1));
    assert!(
        said.contains("times and addresses stay in 1 file:"),
        "{said}"
    );
    drop(ends);
}
