//! `larder replay`: the recorded calls are repeated on any malloc; those that cannot be are reported.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::running::ended_if_it_hangs;
use crate::common::*;
use serde_json::Value;

/// Two threads allocate blocks and grow some, two others grow and free them; then threads that start and
/// end.
const EXCHANGE: &str = r#"
    #include <condition_variable>
    #include <cstdlib>
    #include <deque>
    #include <mutex>
    #include <thread>
    #include <vector>
    std::mutex m; std::condition_variable c; std::deque<void*> q; bool done;
    void make() {
      for (int i = 0; i < 20000; ++i) {
        void* p = malloc(16 + i % 500);
        if (i % 7 == 0) p = realloc(p, 5000);
        std::unique_lock<std::mutex> l(m);
        c.wait(l, [] { return q.size() < 300; });
        q.push_back(p); c.notify_all();
      }
    }
    void end() {
      for (int i = 0;; ++i) {
        std::unique_lock<std::mutex> l(m);
        c.wait(l, [] { return done || !q.empty(); });
        if (q.empty()) return;
        void* p = q.front(); q.pop_front(); c.notify_all(); l.unlock();
        if (i % 3 == 0) p = realloc(p, 100 + i % 9000);
        free(p);
      }
    }
    int main() {
      std::thread a(make), b(make), x(end), y(end);
      a.join(); b.join();
      { std::lock_guard<std::mutex> l(m); done = true; }
      c.notify_all(); x.join(); y.join();
      for (int r = 0; r < 20; ++r) std::thread([r] {
        std::vector<int*> v;
        for (int i = 0; i < 100; ++i) v.push_back(new int[r + 1]);
        for (int* p : v) delete[] p;
        void* p; if (posix_memalign(&p, 64, 640) == 0) free(p);
        free(calloc(10, 10)); free(nullptr);
      }).join();
    }
"#;

fn libexec() -> PathBuf {
    let directory = library_directory().join("../libexec/larder");
    assert!(
        directory.join("larder-replay").is_file(),
        "larder-replay is not in {}: run `make build`, or set LARDER_OUT to a staged tree",
        directory.display()
    );
    directory
}

fn replay(trace: &Path, options: &[&str]) -> Command {
    let mut command = larder();
    command.env("LARDER_LIBEXEC", libexec());
    command
        .arg("replay")
        .arg(trace)
        .args(["--run-limit", "60"])
        .args(options);
    command
}

/// Replays on these allocators, once; returns the data of the report.
#[track_caller]
fn figures(trace: &Path, options: &[&str]) -> Value {
    let done = output(replay(trace, &["--json", "--rounds", "1"]).args(options));
    assert_success(&done);
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    report["data"].clone()
}

fn recorded(directory: &Path, source: &str, text: &str) -> PathBuf {
    let program = compile(
        directory,
        source,
        text,
        &["-O1", "-pthread", "-fno-builtin"],
    );
    record(directory, &program, &[], &["--no-larder"])
}

fn one_file(trace: &Path) -> PathBuf {
    let mut files = fs::read_dir(trace).expect("the trace");
    files.next().expect("a file").expect("a file").path()
}

/// The operations of a trace, for larder-replay's standard input.
#[track_caller]
fn operations(directory: &Path, trace: &Path) -> File {
    let path = directory.join("operations");
    let written = output(replay(trace, &["--operations"]).arg(path.as_os_str()));
    assert_success(&written);
    let said = stderr(&written);
    assert!(said.ends_with("B written\n"), "{said}");
    File::open(path).expect("the operations")
}

fn count(value: &Value, name: &str) -> u64 {
    let number = value[name].as_u64();
    number.unwrap_or_else(|| panic!("{name} is no count in {value}"))
}

/// (allocated, reallocated, freed) by the counters of a report.
fn counters(report: &Value) -> (u64, u64, u64) {
    let of = |name| count(&report["counters"], name);
    let made = of("mallocs") + of("callocs") + of("strdups") + of("wcsdups");
    (made, of("reallocs"), of("frees"))
}

#[test]
fn the_calls_are_those_that_the_report_counts() {
    let directory = temporary();
    let trace = recorded(directory.path(), "exchange.cc", EXCHANGE);
    let report = report_json(&trace, &[]);
    let data = figures(&trace, &["--allocator", "larder", "--allocator", "glibc"]);
    let calls = &data["calls"];
    let of = |name| count(calls, name);
    assert_eq!(
        (of("makes"), of("reallocs"), of("frees")),
        counters(&report)
    );
    assert_eq!(
        of("peak_live_bytes"),
        count(&report["counters"], "peak_bytes")
    );
    assert_eq!(
        of("end_live_bytes"),
        count(&report["counters"], "live_bytes")
    );
    assert_eq!(of("bytes"), count(&report["counters"], "total_bytes"));
    assert!(of("null_frees") >= 20, "{calls}");
    assert_eq!((of("threads"), of("unknown_frees"), of("lost")), (25, 0, 0));
    let figures = data["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), 2);
    for figure in figures {
        let run = &figure["runs"][0];
        assert!(count(run, "handed_over") > 40_000, "{run}");
        assert!(run["peak_kib"].as_f64() > Some(300.0), "{run}");
        assert!(figure["fragmentation"].as_f64() > Some(1.0), "{figure}");
    }
}

#[test]
fn the_replay_recorded_makes_the_same_calls() {
    let directory = temporary();
    let trace = recorded(directory.path(), "exchange.cc", EXCHANGE);
    let again = directory.path().join("again.trace");
    let ran = output(
        larder()
            .args(["record", "--no-larder", "-o"])
            .arg(&again)
            .arg("--")
            .arg(libexec().join("larder-replay"))
            .stdin(operations(directory.path(), &trace)),
    );
    assert_success(&ran);
    let (made, realloced, freed) = counters(&report_json(&trace, &[]));
    let (made_again, realloced_again, freed_again) = counters(&report_json(&again, &[]));
    assert_eq!((realloced_again, freed_again), (realloced, freed));
    // The replay's C++ library and its threads' descriptors are added.
    let own = made_again - made;
    assert!((1..=40).contains(&own), "{own}");
}

/// larder-replay, built with a sanitizer.
fn sanitized(directory: &Path, sanitizer: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay");
    let program = directory.join("sanitized");
    let built = output(
        Command::new("g++")
            .args([
                "-std=c++20",
                "-O1",
                "-g",
                "-pthread",
                "-fsized-deallocation",
            ])
            .arg(format!("-fsanitize={sanitizer}"))
            .args(["main.cc", "pace.cc", "resident.cc", "thread.cc"].map(|f| root.join(f)))
            .arg("-o")
            .arg(&program),
    );
    assert_success(&built);
    program
}

/// A file of operations of one slot: its words, the header of its only chunk, and the number of threads,
/// which all use that chunk.
fn written_operations(words: &[u64], counted: u64, next: u64, threads: u64) -> Vec<u8> {
    let (header_bytes, chunk_header_bytes) = (40, 16);
    let table = header_bytes + chunk_header_bytes + words.len() as u64 * 8;
    let mut bytes = b"LRDOPS01".to_vec();
    let fields = [1, threads, table, threads, counted, next];
    let table = (0..threads).map(|_| header_bytes);
    let all = fields.into_iter().chain(words.iter().copied()).chain(table);
    bytes.extend(all.flat_map(u64::to_le_bytes));
    bytes
}

#[test]
fn damaged_operations_are_refused() {
    let directory = temporary();
    let program = sanitized(directory.path(), "address,undefined");
    let run = |bytes: &[u8]| {
        let path = directory.path().join("operations");
        fs::write(&path, bytes).unwrap();
        output(ended_if_it_hangs(&program).stdin(File::open(path).unwrap()))
    };
    let (malloc, free) = (6 | 100 << 32, 16);
    let whole = written_operations(&[malloc, free], 2, 0, 1);
    let ran = run(&whole);
    assert_success(&ran);
    assert!(stdout(&ran).contains("\"makes\": 1"), "{}", stdout(&ran));

    let mut many_slots = whole.clone();
    many_slots[8..16].copy_from_slice(&(1u64 << 26).to_le_bytes());
    let damaged = [
        ("its own next", written_operations(&[], 0, 40, 1)),
        (
            "a next behind the file",
            written_operations(&[], 0, 1 << 20, 1),
        ),
        (
            "fewer words",
            written_operations(&[malloc, free], 4000, 0, 1),
        ),
        (
            "a thread without end",
            written_operations(&[5 | 1 << 32], 1, 0, 2),
        ),
        (
            "no such thread",
            written_operations(&[5 | 9 << 32], 1, 0, 2),
        ),
        (
            "no such operation",
            written_operations(&[malloc, 19], 2, 0, 1),
        ),
        ("slots", many_slots),
        ("no table", whole[..whole.len() - 8].to_vec()),
    ];
    for (what, bytes) in damaged {
        let ran = run(&bytes);
        assert_eq!(code(&ran), 2, "{what}: {}", stderr(&ran));
        assert!(
            stderr(&ran).contains("the operations are damaged"),
            "{what}"
        );
        assert_eq!(stdout(&ran), "", "{what}");
    }
}

#[test]
fn sanitizers_find_nothing_in_a_replay_of_threads() {
    let directory = temporary();
    let trace = recorded(directory.path(), "exchange.cc", EXCHANGE);
    for sanitizer in ["thread", "address,undefined"] {
        let program = sanitized(directory.path(), sanitizer);
        let mut command = Command::new(&program);
        command
            .stdin(operations(directory.path(), &trace))
            .env("TSAN_OPTIONS", "halt_on_error=1")
            .env("UBSAN_OPTIONS", "halt_on_error=1");
        let ran = output(&mut command);
        assert_success(&ran);
        assert_eq!(stderr(&ran), "");
    }
}

#[test]
fn a_table_and_a_plot_are_written() {
    let directory = temporary();
    let program = "#include <stdlib.h>\nint main(void) { free(malloc(7)); }";
    let trace = recorded(directory.path(), "small.c", program);
    let out = directory.path().join("out");
    let done =
        output(replay(&trace, &["--allocator", "larder", "--rounds", "2", "--out"]).arg(&out));
    assert_success(&done);
    let text = stdout(&done);
    assert!(
        text.contains("1 allocations, 0 reallocs, 1 frees of 1 threads"),
        "{text}"
    );
    assert_eq!(
        text,
        fs::read_to_string(out.join("replay.md")).expect("replay.md")
    );
    let plot = fs::read_to_string(out.join("replay.svg")).expect("replay.svg");
    assert!(
        plot.starts_with("<svg") && plot.contains(">larder<"),
        "{plot}"
    );
}

#[test]
fn a_cut_trace_is_replayed_as_far_as_it_is_whole() {
    let directory = temporary();
    let trace = recorded(directory.path(), "exchange.cc", EXCHANGE);
    let whole = figures(&trace, &["--allocator", "larder"]);
    let file = one_file(&trace);
    let bytes = fs::read(&file).expect("the file");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("the file");
    let half = figures(&trace, &["--allocator", "larder"]);
    let of = |data: &Value, name| count(&data["calls"], name);
    let made = of(&half, "makes");
    assert!(made > 1000 && made < of(&whole, "makes"), "{made}");
    // Streams are cut at different times.
    assert!(of(&half, "unknown_frees") > 0, "{}", half["calls"]);
}

#[test]
fn a_trace_without_calls_is_reported() {
    let directory = temporary();
    let program = "#include <stdlib.h>\nint main(void) { free(malloc(7)); }";
    let trace = recorded(directory.path(), "small.c", program);
    let file = one_file(&trace);
    let bytes = fs::read(&file).expect("the file");
    fs::write(&file, &bytes[..4096]).expect("the file");
    let done = output(&mut replay(&trace, &[]));
    assert_fails(&done, 125, &["no call that can be replayed", "--pid"]);
    let done = output(&mut replay(&trace, &["--pid", "1"]));
    assert_fails(&done, 125, &["has no process 1"]);
    fs::write(&file, &bytes[..100]).expect("the file");
    assert_fails(
        &output(&mut replay(&trace, &[])),
        125,
        &["cut at 100 bytes"],
    );
}

#[test]
fn more_memory_than_available_is_reported() {
    let directory = temporary();
    // Never written to, so the kernel grants it.
    let program = "#include <stdlib.h>\nvoid *keep[1024];\n\
        int main(void) { for (int i = 0; i < 1024; i++) if (!(keep[i] = malloc(2ul << 30))) return 1; }";
    let trace = recorded(directory.path(), "vast.c", program);
    let glibc = ["--allocator", "glibc", "--rounds", "1"];
    let done = output(&mut replay(&trace, &glibc));
    assert_fails(&done, 125, &["2097152 MiB live", "--touch edges"]);
    let done = output(replay(&trace, &glibc).args(["--touch", "none"]));
    assert_success(&done);
    let limited = output(
        Command::new("prlimit")
            .arg("--as=8000000000")
            .arg(tool())
            .arg("replay")
            .arg(&trace)
            .args(glibc)
            .args(["--touch", "none"])
            .env("LARDER_LIB", library_directory())
            .env("LARDER_LIBEXEC", libexec()),
    );
    assert_fails(
        &limited,
        125,
        &["glibc: ", "malloc of 2147483648 bytes has failed"],
    );
}

/// A malloc over the C library's that fails from its 500th call on.
const EXHAUSTED: &str = r#"
    #include <stddef.h>
    extern void *__libc_malloc(size_t);
    extern void *__libc_calloc(size_t, size_t);
    extern void *__libc_realloc(void *, size_t);
    extern void __libc_free(void *);
    static int calls;
    void *malloc(size_t size) { return ++calls < 500 ? __libc_malloc(size) : NULL; }
    void free(void *p) { __libc_free(p); }
    void *calloc(size_t n, size_t size) { return __libc_calloc(n, size); }
    void *realloc(void *p, size_t size) { return __libc_realloc(p, size); }
"#;

#[test]
fn an_allocator_that_fails_is_reported_beside_the_others() {
    let directory = temporary();
    let program = "#include <stdlib.h>\n\
        int main(void) { for (int i = 0; i < 1000; i++) free(malloc(i + 1)); }";
    let trace = recorded(directory.path(), "loop.c", program);
    let flags = ["-shared", "-fPIC", "-fno-builtin"];
    let exhausted = compile(directory.path(), "exhausted.c", EXHAUSTED, &flags);
    let exhausted = format!("exhausted={}", exhausted.display());
    let words = [
        "--allocator",
        "glibc",
        "--allocator",
        &exhausted,
        "--rounds",
        "2",
    ];
    let done = output(&mut replay(&trace, &words));
    assert_eq!(code(&done), 1, "{}", stderr(&done));
    let text = stdout(&done);
    assert!(
        text.contains("- exhausted failed: larder-replay: malloc of "),
        "{text}"
    );
    assert!(text.contains("\n| glibc "), "{text}");
    let words = ["--allocator", &exhausted];
    assert_fails(
        &output(&mut replay(&trace, &words)),
        125,
        &["no allocator", "has failed"],
    );
}

#[test]
fn an_allocator_that_is_not_loaded_is_reported() {
    let directory = temporary();
    let program = "#include <stdlib.h>\nint main(void) { free(malloc(7)); }";
    let trace = recorded(directory.path(), "small.c", program);
    let none = compile(
        directory.path(),
        "none.c",
        "int none;",
        &["-shared", "-fPIC"],
    );
    let no_library = directory.path().join("text.so");
    fs::write(&no_library, "text").expect("the file");
    for library in [none, no_library] {
        let word = format!("new={}", library.display());
        let done = output(&mut replay(&trace, &["--allocator", &word]));
        assert_fails(
            &done,
            125,
            &["new: malloc comes from ", "libc.so.6", "--allocator"],
        );
    }
    let done = output(&mut replay(&trace, &["--allocator", "new=/nowhere.so"]));
    assert_fails(&done, 125, &["new: /nowhere.so: "]);
    let done = output(&mut replay(&trace, &["--allocator", "nothing"]));
    assert_fails(&done, 125, &["no allocator is called 'nothing'"]);
}
