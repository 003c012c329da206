//! Lines of Python in every view, beside native ones.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use serde_json::Value;

const PYTHON: &str = "/usr/bin/python3";

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


def main():
    for _ in range(200):
        block()
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
    fn new() -> Self {
        assert!(Path::new(PYTHON).exists(), "no python3: run scripts/setup");
        let directory = temporary();
        let flags = ["-g", "-O0", "-shared", "-fPIC"];
        let library = compile(directory.path(), "extension.c", EXTENSION, &flags);
        let script = directory.path().join("script.py");
        fs::write(&script, SCRIPT).expect("written");
        let arguments = [&script, &library].map(|path| path.to_str().expect("a path"));
        let trace = record(directory.path(), Path::new(PYTHON), &arguments, &[]);
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
fn a_line_of_python_is_charged_in_every_view() {
    let recorded = Recorded::new();
    let report = report_json(&recorded.trace, &[]);
    let line = line_of(SCRIPT, "block");
    let site = site_at(&report, "script.py", line);
    assert_eq!(site["function"], "block");
    assert_eq!(site["calls"], 400);
    assert_eq!(site["bytes"], 400 * 50_001);
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
    for stack in ["<module>;main;block;", "Thread.run;main;Native.größe;"] {
        let flat = folded.replace(";_PyFunction_Vectorcall", "");
        assert!(flat.contains(stack), "no {stack} in {folded}");
    }
    let speedscope = recorded.written("export", "stacks.speedscope.json");
    let speedscope: Value = serde_json::from_str(&speedscope).expect("JSON");
    let frames = speedscope["shared"]["frames"].as_array().expect("frames");
    assert!(frames.iter().any(|frame| frame["name"] == "Native.größe"));
}

#[test]
fn callers_and_advice_name_functions_of_python() {
    let recorded = Recorded::new();
    let run = |arguments: &[&str]| {
        let ran = output(larder().args(arguments).arg(&recorded.trace));
        assert_success(&ran);
        stdout(&ran)
    };
    let callers = run(&["callers", "block", "--depth", "2"]);
    for function in ["main  in [python]", "  <module>  in [python]"] {
        assert!(callers.contains(function), "{callers}");
    }
    let advice = run(&["advise"]);
    let line = line_of(SCRIPT, "parse");
    assert!(advice.contains(&format!("script.py:{line}")), "{advice}");
}

#[test]
fn cures_that_python_has_no_words_for_are_weak() {
    let recorded = Recorded::new();
    let advice = output(
        larder()
            .args(["advise", "--all", "--json"])
            .arg(&recorded.trace),
    );
    assert_success(&advice);
    let advice: Value = serde_json::from_str(&stdout(&advice)).expect("JSON");
    let findings = advice["processes"][0]["findings"]
        .as_array()
        .expect("findings");
    let of_script = findings.iter().filter(|finding| {
        let file = finding["site"]["file"].as_str();
        file.is_some_and(|file| file.ends_with("script.py"))
    });
    let confidences: Vec<&Value> = of_script.map(|finding| &finding["confidence"]).collect();
    assert!(!confidences.is_empty(), "{findings:?}");
    assert!(confidences.iter().all(|one| *one == "low"), "{findings:?}");
}
