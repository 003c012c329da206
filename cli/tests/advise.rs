//! Each detector of `larder advise` on programs that must trigger it, and on near misses that must
//! not: `advice/PATTERN.c` and `.cc`. A program runs one case, named by its argument; a function
//! `case_NAME` whose comment says `finds PATTERN at MARK` must give that finding at the line marked
//! `// @MARK`; one that says `nothing` must give none with a cure.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

struct Case {
    name: String,
    /// Pattern and line; `None`: no finding.
    expected: Option<(String, u64)>,
}

/// The cases of a source: lines `// case NAME: finds PATTERN at MARK` or `// case NAME: nothing`.
fn cases(source: &str) -> Vec<Case> {
    let lines = source
        .lines()
        .filter_map(|line| line.strip_prefix("// case "));
    lines
        .map(|line| {
            let (name, expected) = line.split_once(": ").expect("a case has a name");
            let expected = expected.strip_prefix("finds ").map(|found| {
                let (pattern, mark) = found.split_once(" at ").expect("a place");
                (pattern.to_owned(), line_of(source, mark))
            });
            Case {
                name: name.to_owned(),
                expected,
            }
        })
        .collect()
}

/// A program that runs one case, and the recorder for it.
struct Compiled {
    directory: TempDir,
    libraries: TempDir,
    program: PathBuf,
}

impl Compiled {
    fn new(file: &str, source: &str, flags: &[&str]) -> Self {
        let directory = temporary();
        let program = compile_any(directory.path(), file, source, flags);
        let libraries = built_libraries();
        Self {
            directory,
            libraries,
            program,
        }
    }

    fn advice(&self, case: &str, options: &[&str]) -> Value {
        let trace = self.directory.path().join(format!("{case}.trace"));
        let mut record = larder();
        record.env("LARDER_LIB", self.libraries.path());
        record.arg("record").arg("--no-larder").args(options);
        record.arg("-o").arg(&trace).arg("--").arg(&self.program);
        assert_success(&output(record.arg(case)));
        let advised = output(larder().arg("advise").arg("--json").arg(&trace));
        assert_success(&advised);
        serde_json::from_slice(&advised.stdout).expect("JSON")
    }
}

/// Findings with a cure, as pattern and line.
fn found(advice: &Value) -> Vec<(String, u64)> {
    let processes = advice["processes"].as_array().expect("processes");
    processes
        .iter()
        .flat_map(|process| process["findings"].as_array().expect("findings"))
        .map(|finding| {
            let pattern = finding["pattern"].as_str().expect("a pattern").to_owned();
            (pattern, finding["site"]["line"].as_u64().unwrap_or(0))
        })
        .collect()
}

#[track_caller]
fn check(file: &str, flags: &[&str], options: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/advice")
        .join(file);
    let source = fs::read_to_string(&path).expect("the program's source");
    let program = Compiled::new(file, &source, flags);
    let cases = cases(&source);
    assert!(
        cases.iter().any(|case| case.expected.is_none()),
        "no near miss"
    );
    let mut wrong = Vec::new();
    for case in cases {
        let advice = program.advice(&case.name, options);
        let found = found(&advice);
        let right = match &case.expected {
            Some(expected) => found.first() == Some(expected),
            None => found.is_empty(),
        };
        if !right {
            wrong.push(format!("{}: {:?}, not {found:?}", case.name, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{file} {flags:?}:\n{}", wrong.join("\n"));
}

const C: &[&str] = &["-g", "-O1", "-fno-builtin", "-pthread"];

#[test]
fn blocks_that_live_within_a_call() {
    check("short.c", C, &[]);
    check("short.c", &["-g", "-O2", "-fno-builtin", "-pthread"], &[]);
}

/// One buffer a call of the lender is left.
#[test]
fn a_caller_with_several_lines_lends_one_buffer() {
    let source = include_str!("advice/short.c");
    let program = Compiled::new("short.c", source, C);
    let advice = program.advice("lent", &[]);
    let finding = &advice["processes"][0]["findings"][0];
    assert_eq!(finding["saves"]["calls"], 500, "{finding:#}");
    let cure = finding["cure"].as_str().expect("a cure");
    let lends = "let copy_both lend one buffer to the 2 lines that call it";
    assert!(cure.contains(lends), "{cure}");
}

#[test]
fn buffers_that_grow() {
    check("growth.c", C, &[]);
}

#[test]
fn the_line_that_lets_buffers_grow_is_named() {
    let source = include_str!("advice/growth.c");
    let program = Compiled::new("growth.c", source, C);
    for (case, line) in [("elsewhere", Some("enlarged")), ("doubling", None)] {
        let advice = program.advice(case, &[]);
        let related = &advice["processes"][0]["findings"][0]["related"][0]["line"];
        let expected = line.map(|mark| line_of(source, mark));
        assert_eq!(related.as_u64(), expected, "{case}: {advice:#}");
    }
}

#[test]
fn containers_that_grow_and_objects_that_are_made_in_pairs() {
    check("containers.cc", &["-g", "-O1"], &[]);
}

#[test]
fn blocks_that_are_made_together() {
    check("pairs.c", C, &[]);
}

#[test]
fn one_cure_for_several_callers_or_lines_is_one_finding() {
    let source = include_str!("advice/pairs.c");
    let program = Compiled::new("pairs.c", source, C);
    let cases = [
        ("two_makers", 1, 300),
        ("object", 1, 600),
        ("two_at_once", 0, 299),
    ];
    for (case, others, calls) in cases {
        let advice = program.advice(case, &[]);
        let finding = &advice["processes"][0]["findings"][0];
        let also = finding["also"].as_array().expect("others");
        assert_eq!(also.len(), others, "{case}: {finding:#}");
        assert_eq!(finding["saves"]["calls"], calls, "{case}: {finding:#}");
        let reported = also.iter().all(|other| !other["evidence"][0].is_null());
        assert!(reported, "{case}: {finding:#}");
    }
}

#[test]
fn values_that_hold_little() {
    check("values.rs", &["-g", "-O"], &[]);
}

/// What a dependency makes the program cannot lend it memory for.
#[test]
fn texts_that_a_dependency_makes() {
    let source = include_str!("advice/values.rs");
    let program = Compiled::new("values.rs", source, &["-g", "-O"]);
    let found_of = |case| found(&program.advice(case, &[]));
    assert_eq!(found_of("given"), [("inline".to_owned(), 4)]);
    assert_eq!(found_of("long"), []);
    assert_eq!(found_of("borrowed"), [("copied".to_owned(), 18)]);
    assert_eq!(found_of("part"), [("inline".to_owned(), 29)]);
}

#[test]
fn values_with_other_owners() {
    check("owners.rs", &["-g", "-O"], &[]);
    let source = include_str!("advice/owners.rs");
    let program = Compiled::new("owners.rs", source, &["-g", "-O"]);
    assert_eq!(found(&program.advice("of_another", &[])), []);
    assert_eq!(found(&program.advice("of_dependency", &[])), []);
    let cells = line_of(include_str!("advice/table.rs"), "cells");
    let cleared = found(&program.advice("cleared", &[]));
    assert_eq!(cleared, [("reuse".to_owned(), cells)]);
    // The counted object itself is one of the function.
    let counted = found(&program.advice("counted", &[]));
    let lines: Vec<u64> = counted.iter().map(|(_, line)| *line).collect();
    assert_eq!(lines, [line_of(source, "counted") + 1], "{counted:?}");
}

#[test]
fn objects_that_a_function_makes() {
    check("objects.c", &["-g", "-O2", "-fno-builtin"], &[]);
}

/// The finding about a whole line covers the blocks of each caller.
#[test]
fn joined_findings_count_a_block_once() {
    let source = include_str!("advice/values.rs");
    let program = Compiled::new("values.rs", source, &["-g", "-O"]);
    let advice = program.advice("callers", &[]);
    let finding = &advice["processes"][0]["findings"][0];
    assert_eq!(finding["site"]["line"], line_of(source, "sentence"));
    let also = finding["also"].as_array().expect("others");
    assert_eq!(also.len(), 1, "{finding:#}");
    assert_eq!(finding["saves"]["calls"], 598, "of 600: {finding:#}");
}

#[test]
fn memory_that_is_wasted_kept_or_lost() {
    check("memory.c", C, &[]);
}

#[test]
fn blocks_that_change_threads() {
    check("threads.c", C, &[]);
}

#[test]
fn what_blocks_hold() {
    check("contents.c", C, &["--contents"]);
}

/// Sums may have begun with calloc's zeros, so that they were overwritten is only a suspicion; and
/// a trace that does not say what blocks held gives none of this.
#[test]
fn contents_are_needed_and_numbers_are_suspected_only() {
    let source = include_str!("advice/contents.c");
    let directory = temporary();
    let program = compile(directory.path(), "contents.c", source, C);
    let libraries = built_libraries();
    let advice = |name: &str, recorded: &[&str], advised: &[&str]| {
        let trace = directory.path().join(name);
        let mut record = larder();
        record.env("LARDER_LIB", libraries.path());
        record.args(["record", "--no-larder"]).args(recorded);
        record.arg("-o").arg(&trace).arg("--").arg(&program);
        assert_success(&output(record.arg(name)));
        let advised = output(larder().arg("advise").args(advised).arg(&trace));
        assert_success(&advised);
        String::from_utf8(advised.stdout).expect("text")
    };
    let all = advice("sums", &["--contents"], &["--all", "--json"]);
    let all: Value = serde_json::from_str(&all).expect("JSON");
    assert_eq!(
        found(&all),
        [("zeroed".to_owned(), line_of(source, "sums"))]
    );
    let process = &all["processes"][0];
    assert_eq!(process["findings"][0]["confidence"], "low");
    assert_eq!(process["has_contents"], true);
    let saves = &process["findings"][0]["saves"];
    assert!(saves["net_ns"].as_f64() > Some(0.0));
    assert!(saves["share"].as_f64() <= Some(1.0), "{saves}");
    let without = advice("names", &[], &[]);
    assert!(!without.contains("Share what is equal"), "{without}");
    assert_eq!(without.matches("--contents").count(), 1, "{without}");
    let with = advice("messages", &["--contents"], &[]);
    assert!(with.contains("Share what is equal"), "{with}");
    assert!(!with.contains("--contents"), "{with}");
}

#[test]
fn arrays_that_alias() {
    check("arrays.c", C, &[]);
}

/// What an allocator costs is measured once; then advice on a trace is the same, byte for byte, also
/// after a file that makes no sense.
#[test]
fn advice_is_the_same_every_time_and_says_what_the_allocator_adds() {
    let source = include_str!("advice/memory.c");
    let directory = temporary();
    let program = compile(directory.path(), "memory.c", source, C);
    let trace = record(directory.path(), &program, &["tiny"], &["--no-larder"]);
    let cache = directory.path().join("cache");
    let advise = |options: &[&str]| {
        let mut command = larder();
        command.env("XDG_CACHE_HOME", &cache).arg("advise");
        let advised = output(command.args(options).arg(&trace));
        assert_success(&advised);
        stdout(&advised)
    };
    let first = advise(&[]);
    // 4,000 blocks of 1 to 8 bytes in chunks of 32.
    assert!(
        first.contains("110,000 bytes that malloc adds (85.9 % of what it takes at the peak)"),
        "{first}"
    );
    assert!(first.contains("\n1 finding would save memory\n"), "{first}");
    let files: Vec<PathBuf> = fs::read_dir(cache.join("larder"))
        .expect("the cache")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let [kept] = &files[..] else {
        panic!("not one file: {files:?}")
    };
    let text = fs::read_to_string(kept).expect("the figures");
    for _ in 0..3 {
        assert_eq!(advise(&[]), first);
    }
    let slow = Regex::new(r"pair_ns 16:\S+").expect("an expression");
    fs::write(kept, &*slow.replace(&text, "pair_ns 16:1000")).expect("the figures");
    let advice = advise(&["--json"]);
    assert!(advice.contains("\"of_ns\": 4000000"), "{advice}");
    fs::write(kept, text.replace("pair_ns", "nonsense")).expect("the figures");
    advise(&[]);
    assert!(
        fs::read_to_string(kept)
            .expect("the figures")
            .contains("pair_ns")
    );
}

/// An allocator with a class of 8 bytes takes no more for 8 bytes, so nothing is to be pooled.
#[test]
fn tiny_blocks_are_judged_by_the_allocator_that_ran() {
    let source = include_str!("advice/memory.c");
    let directory = temporary();
    let program = compile(directory.path(), "memory.c", source, C);
    let trace = record(directory.path(), &program, &["tiny"], &[]);
    let advised = output(larder().arg("advise").arg("--json").arg(&trace));
    assert_success(&advised);
    let advice: Value = serde_json::from_slice(&advised.stdout).expect("JSON");
    assert_eq!(advice["processes"][0]["measured_on"], "liblarder.so");
    assert_eq!(found(&advice), []);
}

/// libstdc++ makes 72,704 bytes when it is loaded, for exceptions that find no memory, and keeps them.
#[test]
fn what_the_cxx_library_keeps_is_not_to_be_freed() {
    let source = "#include <cstdlib>\n#include <string>\nstatic void* volatile kept;\nint main(int n, \
                  char** words) {\n  kept = malloc(9000);  // @kept\n  return (int)std::string(words[0]).size() * 0;\n}\n";
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin-malloc"];
    let program = compile(directory.path(), "kept.cc", source, &flags);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let advised = output(larder().args(["advise", "--all", "--json"]).arg(&trace));
    assert_success(&advised);
    let advice: Value = serde_json::from_slice(&advised.stdout).expect("JSON");
    let peak = advice["processes"][0]["peak_bytes"]
        .as_u64()
        .expect("bytes");
    assert!(peak > 70_000, "no pool: {advice}");
    assert_eq!(
        found(&advice),
        [("leak".to_owned(), line_of(source, "kept"))]
    );
}

/// Where the block is made, the function that has the loop, the line of its call, calls and turns.
type Turns = (u64, String, u64, u64, u64);

/// Cases of `loops.c`: `made at MARK, loop of FUNCTION at MARK, N calls, N turns`, or `nothing`.
fn loop_cases(source: &str) -> Vec<(String, Option<Turns>)> {
    let form = r"^// case (\w+): (?:nothing|made at (\w+), loop of (\w+) at (\w+), (\d+) calls, (\d+) turns)$";
    let form = regex::Regex::new(form).unwrap();
    let lines = source.lines().filter(|line| line.starts_with("// case "));
    lines
        .map(|line| {
            let found = form.captures(line).unwrap_or_else(|| panic!("{line}"));
            let text = |index: usize| found.get(index).map_or("", |part| part.as_str());
            let number = |index: usize| text(index).parse().unwrap();
            let turns = found.get(2).map(|_| {
                let lines = [2, 4].map(|index| line_of(source, text(index)));
                (lines[0], text(3).to_owned(), lines[1], number(5), number(6))
            });
            (text(1).to_owned(), turns)
        })
        .collect()
}

#[test]
fn the_loop_that_makes_the_blocks_is_named_with_its_turns() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/advice/loops.c");
    let source = fs::read_to_string(path).expect("the program's source");
    let mut wrong = Vec::new();
    for level in ["-O0", "-O2"] {
        let flags = ["-g", level, "-fno-builtin", "-pthread"];
        let program = Compiled::new("loops.c", &source, &flags);
        for (name, expected) in loop_cases(&source) {
            let advice = program.advice(&name, &["--syscalls"]);
            let processes = advice["processes"].as_array().expect("processes").iter();
            let found = processes.flat_map(|process| {
                let [cured, busy] = ["findings", "busy"].map(|list| process[list].as_array());
                cured
                    .expect("findings")
                    .iter()
                    .chain(busy.expect("busy lines"))
            });
            let all: Vec<Turns> = found
                .filter(|finding| !finding["loop"].is_null())
                .map(|finding| {
                    let (made, found) = (&finding["site"], &finding["loop"]);
                    (
                        made["line"].as_u64().unwrap_or(0),
                        found["at"]["function"].as_str().unwrap_or("").to_owned(),
                        found["at"]["line"].as_u64().unwrap_or(0),
                        found["calls"].as_u64().unwrap(),
                        found["turns"].as_u64().unwrap(),
                    )
                })
                .collect();
            let right = match &expected {
                Some(expected) => !all.is_empty() && all.iter().all(|found| found == expected),
                None => all.is_empty(),
            };
            if !right {
                wrong.push(format!("{name} {level}: {expected:?}, not {all:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a function allocates: name and size.
type Allocated = (String, Option<(String, u64)>);

/// Lines `// type FUNCTION: NAME, SIZE` and `// type FUNCTION: none` of a source.
fn expected_types(source: &str) -> Vec<Allocated> {
    let lines = source.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("// type "));
    lines
        .map(|line| {
            let (function, allocated) = line.split_once(": ").expect("a function");
            let allocated = allocated.rsplit_once(", ");
            let named = allocated.map(|(name, size)| (name.to_owned(), size.parse().unwrap()));
            (function.to_owned(), named)
        })
        .collect()
}

/// The types of all findings of a function, or of what is inlined into it.
fn types_of(advice: &Value, function: &str) -> Vec<Option<(String, u64)>> {
    let processes = advice["processes"].as_array().expect("processes").iter();
    let findings = processes.flat_map(|p| p["findings"].as_array().expect("findings"));
    let of_function = findings.filter(|finding| {
        let stack = finding["site"]["stack"].as_array().expect("a stack");
        stack.iter().any(|frame| frame["function"] == function)
    });
    of_function
        .map(|finding| {
            let found = &finding["type"];
            let name = found["name"].as_str()?.to_owned();
            Some((name, found["size_bytes"].as_u64()?))
        })
        .collect()
}

fn compile_rust(directory: &Path, file: &str, source: &str, flags: &[&str]) -> PathBuf {
    let path = directory.join(file);
    fs::write(&path, source).expect("the source");
    let table = include_str!("advice/table.rs");
    let clears = "impl Table { pub fn clear(&mut self) { self.cells.clear(); } }\n";
    // The same code would be compiled once.
    let cleared = [&table.replace("60 +", "70 +"), clears].concat();
    for (package, source) in [
        ("dependency", include_str!("advice/dependency.rs")),
        ("table", table),
        ("cleared", &cleared),
    ] {
        let folder = directory.join(format!("registry/src/{package}-1.0.0/src"));
        fs::create_dir_all(&folder).expect("a directory");
        fs::write(folder.join("lib.rs"), source).expect("the source");
    }
    let program = path.with_extension("");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut rustc = std::process::Command::new(compiler);
    rustc
        .args(["--edition=2021", "-o"])
        .arg(&program)
        .arg(&path);
    assert_success(&output(rustc.args(flags)));
    program
}

fn compile_any(directory: &Path, file: &str, source: &str, flags: &[&str]) -> PathBuf {
    match file.ends_with(".rs") {
        true => compile_rust(directory, file, source, flags),
        false => compile(directory, file, source, flags),
    }
}

/// Compiles a program with types, does something to it and its source, and compares what advice
/// says; `known`: which of the expected types are still known.
#[track_caller]
fn check_types(
    file: &str,
    flags: &[&str],
    prepare: impl FnOnce(&Path),
    known: impl Fn(&str) -> bool,
) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/advice")
        .join(file);
    let source = fs::read_to_string(&path).expect("the program's source");
    let directory = temporary();
    let program = compile_any(directory.path(), file, &source, flags);
    prepare(directory.path());
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let advise = |options: &[&str]| {
        let advised = output(larder().arg("advise").args(options).arg(&trace));
        assert_success(&advised);
        String::from_utf8(advised.stdout).expect("text")
    };
    let advice: Value = serde_json::from_str(&advise(&["--all", "--json"])).expect("JSON");
    let mut wrong = Vec::new();
    for (function, expected) in expected_types(&source) {
        let found = types_of(&advice, &function);
        let expected = expected.filter(|(name, _)| known(name));
        if found.is_empty() || found.iter().any(|found| *found != expected) {
            wrong.push(format!("{function}: {expected:?}, not {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{file} {flags:?}:\n{}", wrong.join("\n"));
    advise(&["--all", "--top", "0"])
}

#[test]
fn the_type_that_a_line_of_c_allocates() {
    let nothing = |_: &Path| {};
    for level in ["-O0", "-O2"] {
        let flags = ["-g", level, "-fno-builtin"];
        let text = check_types("types.c", &flags, nothing, |_| true);
        let lines = [
            "allocates struct entry (48 bytes)",
            "elements of vector_t (12 bytes)",
        ];
        for line in lines {
            assert!(text.contains(line), "no {line:?} in:\n{text}");
        }
    }
}

/// Without its source a line says nothing, nor does one that was changed since.
#[test]
fn no_type_is_reported_without_the_source_that_was_compiled() {
    let flags = ["-g", "-O2", "-fno-builtin"];
    let remove = |directory: &Path| fs::remove_file(directory.join("types.c")).expect("removed");
    check_types("types.c", &flags, remove, |_| false);
    let change = |directory: &Path| {
        let source = fs::File::options()
            .append(true)
            .open(directory.join("types.c"));
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        source
            .expect("the source")
            .set_modified(later)
            .expect("a time");
    };
    check_types("types.c", &flags, change, |_| false);
}

#[test]
fn the_type_that_a_container_allocates() {
    let nothing = |_: &Path| {};
    let text = check_types("types.cc", &["-g", "-O2"], nothing, |_| true);
    let lines = [
        "elements of std::pair<int, int> (8 bytes)",
        "allocates Foo with the counts of std::make_shared (40 bytes)",
        "reserve() 32 elements of int (128 bytes): this saves 100 % of the steps (32 elements cover half",
    ];
    for line in lines {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
    check_types("types.cc", &["-g", "-O1"], nothing, |_| true);
}

#[test]
fn the_type_that_a_rust_collection_allocates() {
    for level in ["-Copt-level=0", "-Copt-level=2"] {
        let text = check_types("types.rs", &["-g", level], |_| {}, |_| true);
        let cure = "with_capacity() for 32 elements of types::Foo (768 bytes)";
        assert!(text.contains(cure), "no {cure:?} in:\n{text}");
    }
}

#[test]
fn no_type_is_reported_without_debug_information() {
    let strip = |directory: &Path| {
        let mut strip = std::process::Command::new("strip");
        assert_success(&output(strip.arg("-g").arg(directory.join("types"))));
    };
    let text = check_types("types.cc", &["-g", "-O2"], strip, |_| false);
    assert!(!text.contains("elements of"), "{text}");
    assert!(text.contains("reserve() 128 bytes"), "{text}");
}
