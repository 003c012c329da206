//! The source around sites: found, moved, newer than the program, missing; and short names of templates.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::*;
use serde_json::json;

const SOURCE: &str = r#"#include <stdlib.h>
static void *volatile kept;
int main(void) {
	for (int i = 0; i < 2000; i++) {
		kept = malloc(16);  // @loop
		free(kept);
	}
	kept = malloc(5000);  // @lost
	kept = 0;
	return 0;
}
"#;
/// With the gutter.
const SHOWN: [&str; 3] = [
    "          4 | for (int i = 0; i < 2000; i++) {",
    "        > 5 |         kept = malloc(16);  // @loop",
    "          6 |         free(kept);",
];

/// A program whose source is older than it, and its trace.
fn recorded(directory: &Path) -> (PathBuf, PathBuf) {
    let program = compile(directory, "around.c", SOURCE, &["-g", "-O0"]);
    set_age(&directory.join("around.c"), 3600);
    let trace = record(directory, &program, &[], &["--no-larder"]);
    (directory.join("around.c"), trace)
}

fn set_age(file: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    let file = File::options().append(true).open(file).unwrap();
    file.set_modified(then).unwrap();
}

fn shown(command: &str, trace: &Path, options: &[&str]) -> String {
    let shown = output(larder().arg(command).arg(trace).args(options));
    assert_success(&shown);
    assert_eq!(stderr(&shown), "", "{command}");
    stdout(&shown)
}

#[test]
fn the_lines_around_a_site_are_shown_below_it_once() {
    let directory = temporary();
    let (_, trace) = recorded(directory.path());
    let text = report_text(&trace, &[]);
    let place = format!("around.c:{}", line_of(SOURCE, "loop"));
    let after = &text[text.find(&place).expect("the site")..];
    let lines: Vec<&str> = after.lines().skip(1).take(3).collect();
    assert_eq!(lines, SHOWN);
    assert_eq!(text.matches(SHOWN[1]).count(), 1, "{text}");
    assert!(!text.contains('\x1b') && !text.contains("newer"), "{text}");
    for options in [&["--sort", "calls"][..], &["--sort", "tiny"]] {
        assert!(report_text(&trace, options).contains(SHOWN[1]));
    }
    let report = report_json(&trace, &[]);
    let site = site_at(&report, "around.c", line_of(SOURCE, "loop"));
    assert_eq!(site["source"]["first"], 4);
    assert_eq!(site["source"]["newer"], false);
    assert_eq!(site["source"]["lines"][2], "        free(kept);");
    let none = ["--no-source"];
    assert!(!report_text(&trace, &none).contains("> 5 |"));
    let site = site_at(&report_json(&trace, &none), "around.c", 5);
    assert_eq!(site["source"], json!(null));
}

#[test]
fn findings_and_the_page_have_the_source() {
    let directory = temporary();
    let (_, trace) = recorded(directory.path());
    let text = shown("advise", &trace, &[]);
    assert!(text.contains(&SHOWN.join("\n")), "{text}");
    assert!(!shown("advise", &trace, &["--no-source"]).contains("> 5 |"));
    let advice = shown("advise", &trace, &["--json"]);
    let advice: serde_json::Value = serde_json::from_str(&advice).unwrap();
    let finding = &advice["processes"][0]["findings"][0];
    assert_eq!(finding["source"]["first"], 4, "{finding:#}");
    let page = directory.path().join("page.html");
    assert_success(&output(
        larder().arg("html").arg(&trace).arg("-o").arg(&page),
    ));
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains(r"kept = malloc(16);  // @loop"), "no source");
}

#[test]
fn leaks_and_profiles_have_the_source() {
    let directory = temporary();
    recorded(directory.path());
    let program = directory.path().join("around");
    for command in [
        &["leaks", "--exit-code", "0", "--"][..],
        &["profile", "--mean", "1", "--"],
    ] {
        let found = output(larder().args(command).arg(&program));
        let text = stdout(&found);
        assert!(
            text.contains("> 8 | kept = malloc(5000);  // @lost"),
            "{text}"
        );
    }
}

#[test]
fn a_source_that_moved_is_found_by_the_source_path() {
    let directory = temporary();
    let (source, trace) = recorded(directory.path());
    let here = directory.path().display().to_string();
    let moved = directory.path().join("moved");
    fs::create_dir(&moved).unwrap();
    fs::rename(&source, moved.join("around.c")).unwrap();
    assert!(
        !report_text(&trace, &[]).contains("> 5 |"),
        "nothing is shown"
    );
    for path in [
        format!("/none={here}:{here}/moved"),
        format!("{here}={here}/moved"),
    ] {
        let text = report_text(&trace, &["--source-path", &path]);
        assert!(text.contains(&SHOWN.join("\n")), "{path}: {text}");
    }
    let refused = output(
        larder()
            .arg("report")
            .arg(&trace)
            .args(["--source-path", "/no/such"]),
    );
    assert_fails(
        &refused,
        125,
        &["--source-path '/no/such'", "check the path"],
    );
    let picture = ["--no-source", "-o", "x.svg"];
    let refused = output(larder().arg("report").arg(&trace).args(picture));
    assert_fails(&refused, 125, &["--no-source", "leave it out"]);
}

#[test]
fn a_source_newer_than_the_program_is_noted_once() {
    let directory = temporary();
    let (source, trace) = recorded(directory.path());
    fs::write(&source, SOURCE.replace("free(kept);", "free(kept); // new")).unwrap();
    set_age(&directory.path().join("around"), 3600);
    let text = report_text(&trace, &[]);
    assert!(text.contains("free(kept); // new"), "{text}");
    let note = "around.c is newer than around: its lines may have moved";
    assert_eq!(text.matches(note).count(), 1, "{text}");
    assert_eq!(
        text.matches("> 8 |").count(),
        1,
        "the other site has no note: {text}"
    );
    let report = report_json(&trace, &[]);
    assert_eq!(site_at(&report, "around.c", 5)["source"]["newer"], true);
}

#[test]
fn names_of_templates_are_short_unless_asked_for() {
    let source = r#"
#include <map>
#include <string>
#include <vector>
template <class T> __attribute__((noinline)) void *fill(T &to) {
    to[typename T::key_type(40, 'x')].push_back(1);
    return malloc(33);  // @in
}
int main() {
    std::map<std::string, std::vector<int>> all;
    free(fill(all));
}
"#;
    let directory = temporary();
    let program = compile(directory.path(), "short.cc", source, &["-g", "-O0"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let line = line_of(source, "in");
    let name = |options: &[&str]| {
        site_at(&report_json(&trace, options), "short.cc", line)["function"].clone()
    };
    assert_eq!(name(&[]), "fill<std::map<std::string, std::vector<int>>>");
    let full = name(&["--full-names"]);
    let full = full.as_str().unwrap();
    assert!(
        full.contains("std::less<std::__cxx11::basic_string<char"),
        "{full}"
    );
    // Either form names it.
    for pattern in ["fill<std::map<std::string,*", full] {
        let skipped = report_json(&trace, &["--skip", pattern]);
        let sites = skipped["sites"].as_array().unwrap();
        assert!(sites.iter().all(|site| site["line"] != line), "{pattern}");
        assert_success(&output(larder().arg("callers").arg(pattern).arg(&trace)));
    }
}
