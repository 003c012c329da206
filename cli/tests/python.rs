//! Lines of Python in every view, beside native ones.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use serde_json::Value;

/// The machine's own, or those that `tests/machines/python` has found.
fn pythons() -> Vec<PathBuf> {
    let named = std::env::var_os("LARDER_TEST_PYTHONS").unwrap_or("/usr/bin/python3".into());
    let pythons: Vec<PathBuf> = std::env::split_paths(&named).collect();
    for python in &pythons {
        assert!(
            python.exists(),
            "no {}: run scripts/setup",
            python.display()
        );
    }
    pythons
}

const EXTENSION: &str = r#"
#include <stdlib.h>
void make(int count) {
    for (int i = 0; i < count; i++)
        free(malloc(333));  // @make
}
"#;

const SCRIPT: &str = r#"
import ctypes
import json
import sys
import threading

extension = ctypes.CDLL(sys.argv[1])
TEXT = json.dumps(["word" * 200] * 50)


def block():
    return bytearray(50_000)  # // @block


def parse():
    return json.loads(TEXT)  # // @parse


class Native:
    def größe(self):
        extension.make(300)  # // @größe


def numbers():
    for number in range(3000):
        yield number


def total():
    return sum([number for number in numbers()])  # // @total


def text():
    gathered = b""
    for _ in range(60):
        gathered += b"0123456789" * 100  # // @text
    return gathered


def raises():
    try:
        raise ValueError(block())  # // @raises
    except ValueError as error:
        return len(error.args[0])


def main():
    for _ in range(10):
        total()
        text()
    for _ in range(1000):
        block()
    for _ in range(100):
        raises()
    for _ in range(10):
        parse()
    Native().größe()


thread = threading.Thread(target=main)
thread.start()
thread.join()
main()  # // @main
"#;

struct Recorded {
    directory: tempfile::TempDir,
    trace: PathBuf,
}

impl Recorded {
    fn new(python: &Path) -> Self {
        let directory = temporary();
        let flags = ["-g", "-O0", "-shared", "-fPIC"];
        let library = compile(directory.path(), "extension.c", EXTENSION, &flags);
        let script = directory.path().join("script.py");
        fs::write(&script, SCRIPT).expect("written");
        let arguments = [&script, &library].map(|path| path.to_str().expect("a path"));
        let trace = record(directory.path(), python, &arguments, &[]);
        Recorded { directory, trace }
    }

    /// What a command writes of the trace, to a file of this name.
    fn written(&self, command: &str, name: &str) -> String {
        let file = self.directory.path().join(name);
        let mut larder = larder();
        larder.arg(command).arg(&self.trace).arg("-o").arg(&file);
        assert_success(&output(&mut larder));
        fs::read_to_string(&file).expect("text")
    }
}

#[test]
fn lines_of_python_are_in_every_view() {
    for python in pythons() {
        let recorded = Recorded::new(&python);
        a_line_is_charged(&recorded);
        callers_and_advice_name_functions(&recorded);
        cures_are_in_pythons_words(&recorded);
    }
}

fn a_line_is_charged(recorded: &Recorded) {
    let report = report_json(&recorded.trace, &[]);
    let line = line_of(SCRIPT, "block");
    let site = site_at(&report, "script.py", line);
    assert_eq!(site["function"], "block");
    assert_eq!(site["calls"], 2200);
    // Since Python 3.15 a bytearray has a bytes object.
    assert!(site["bytes"].as_u64() >= Some(2200 * 50_001), "{site}");
    let parse = site_at(&report, "script.py", line_of(SCRIPT, "parse"));
    assert_eq!(parse["function"], "parse", "not json's own lines");
    assert!(parse["bytes"].as_u64() > Some(20 * 50 * 800), "{parse}");
    let native = site_at(&report, "extension.c", line_of(EXTENSION, "make"));
    assert_eq!(native["calls"], 600);

    let text = report_text(&recorded.trace, &["--sort", "bytes", "--top", "1"]);
    assert!(
        text.contains("> 12 |     return bytearray(50_000)"),
        "{text}"
    );
    let mut lines = text.lines();
    let outermost = lines.rfind(|line| line.starts_with("          "));
    let outermost = outermost.expect("a stack");
    assert!(
        !outermost.contains("in python3."),
        "the interpreter's start: {text}"
    );

    let page = recorded.written("html", "page.html");
    assert!(
        page.contains(&format!("script.py:{line}")),
        "no line of the page"
    );
    let folded = recorded.written("export", "stacks.folded");
    // Between these, older versions have native functions; before 3.11 names have no classes.
    let mine = ["<module>", "main", "block", "run", "größe"];
    let is_mine = |frame: &&str| mine.contains(frame);
    let flat = folded.lines().map(|line| {
        let frames = line
            .split(';')
            .map(|frame| frame.rsplit('.').next().unwrap_or_default());
        frames.filter(is_mine).collect::<Vec<_>>().join(";")
    });
    let flat: Vec<String> = flat.collect();
    for stack in ["<module>;main;block", "run;main;größe"] {
        assert!(
            flat.iter().any(|line| line.ends_with(stack)),
            "no {stack} in {folded}"
        );
    }
    let speedscope = recorded.written("export", "stacks.speedscope.json");
    let speedscope: Value = serde_json::from_str(&speedscope).expect("JSON");
    let frames = speedscope["shared"]["frames"].as_array().expect("frames");
    let names = frames.iter().filter_map(|frame| frame["name"].as_str());
    assert!(names.into_iter().any(|name| name.ends_with("größe")));
}

fn callers_and_advice_name_functions(recorded: &Recorded) {
    let run = |arguments: &[&str]| {
        let ran = output(larder().args(arguments).arg(&recorded.trace));
        assert_success(&ran);
        stdout(&ran)
    };
    let callers = run(&["callers", "block", "--depth", "20"]);
    for function in ["main", "raises", "<module>"] {
        let function = format!("  {function}  in [python]");
        assert!(callers.contains(&function), "{callers}");
    }
    let advice = run(&["advise", "--top", "0"]);
    let line = line_of(SCRIPT, "block");
    assert!(advice.contains(&format!("script.py:{line}")), "{advice}");
}

fn cures_are_in_pythons_words(recorded: &Recorded) {
    let mut larder = larder();
    larder.args(["advise", "--all", "--top", "0", "--json"]);
    let advice = output(larder.arg(&recorded.trace));
    assert_success(&advice);
    let advice: Value = serde_json::from_str(&stdout(&advice)).expect("JSON");
    let findings = &advice["processes"][0]["findings"];
    let findings = findings.as_array().expect("findings").iter();
    let of_script = findings.filter(|finding| {
        let file = finding["site"]["file"].as_str();
        file.is_some_and(|file| file.ends_with("script.py"))
    });
    let of_script: Vec<&Value> = of_script.collect();
    let words = |name: &str| {
        let line = line_of(SCRIPT, name);
        let mut here = of_script.iter().filter(|one| one["site"]["line"] == line);
        let finding = here
            .next()
            .unwrap_or_else(|| panic!("no {name}: {of_script:#?}"));
        let words = finding["cure"].as_str().expect("a cure");
        (words, finding["confidence"].as_str().expect("confidence"))
    };
    for (name, part) in [
        ("block", "readinto()"),
        ("total", "without the brackets"),
        ("text", "join() it once"),
    ] {
        let (cure, confidence) = words(name);
        assert!(
            cure.contains(part) && confidence == "medium",
            "{name}: {cure} {confidence}"
        );
    }
    let (cure, confidence) = words("parse");
    assert!(
        cure.contains("no change") && confidence == "low",
        "{cure} {confidence}"
    );
}

/// Ends with a line of how much the process has grown.
const SMALL: &str = r#"
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096


def rows():
    return [{"row": row, "name": "n%d" % row} for row in range(300000)]  # // @rows


before = resident()
kept = rows()
print(resident() - before)
"#;

#[test]
fn the_peak_has_the_small_objects_of_the_interpreters_pools() {
    let directory = temporary();
    let script = directory.path().join("small.py");
    fs::write(&script, SMALL).expect("written");
    for python in pythons() {
        let trace = directory.path().join("small.trace");
        let recorded = output(
            larder()
                .args(["record", "-o"])
                .arg(&trace)
                .args([&python, &script]),
        );
        assert_success(&recorded);
        let grown: f64 = stdout(&recorded).trim().parse().expect("bytes");
        let report = report_json(&trace, &[]);
        let site = site_at(&report, "small.py", line_of(SMALL, "rows"));
        let peak = site["peak_bytes"].as_f64().expect("bytes");
        let share = peak / grown;
        assert!(
            (0.95..1.05).contains(&share),
            "{}: {peak} of {grown}",
            python.display()
        );
        fs::remove_dir_all(&trace).expect("removed");
    }
}
