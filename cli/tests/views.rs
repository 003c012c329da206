//! `-o FILE` of what shows a trace: the ending of the name chooses the format, and the file is the one
//! that the command for this format makes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use tempfile::TempDir;

const SOURCE: &str = r#"
#include <stdlib.h>
int main(int argc, char **argv) {
    void *kept = malloc(1000);
    for (int i = 0; i < 100 * argc; i++) free(malloc(i));
    return kept == argv[0];
}
"#;

/// Of a run, and of one that allocates more.
fn recorded() -> (TempDir, PathBuf, PathBuf) {
    let directory = temporary();
    let program = compile(directory.path(), "few.c", SOURCE, &["-g", "-fno-builtin"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let other = directory.path().join("more.trace");
    fs::rename(&trace, &other).expect("renamed");
    let trace = record(directory.path(), &program, &["more"], &["--no-larder"]);
    (directory, other, trace)
}

/// What a command writes into `file`, as which it must succeed without a word on stdout; a line on stderr
/// names the file.
#[track_caller]
fn written(words: &[&str], traces: &[&Path], file: &Path) -> Vec<u8> {
    let done = output(larder().args(words).args(traces).arg("-o").arg(file));
    assert_success(&done);
    assert_eq!(stdout(&done), "", "{words:?}");
    let (name, said) = (file.display(), stderr(&done));
    assert_eq!(said.matches(" written\n").count(), 1, "{said}");
    assert!(said.contains(&format!("larder: {name}: ")), "{said}");
    fs::read(file).expect("the file")
}

#[track_caller]
fn printed(words: &[&str], traces: &[&Path]) -> Vec<u8> {
    let done = output(larder().args(words).args(traces));
    assert_success(&done);
    assert_eq!(stderr(&done), "");
    done.stdout
}

#[test]
fn the_ending_of_the_file_chooses_what_a_report_makes() {
    let (directory, _, trace) = recorded();
    let file = |name: &str| directory.path().join(name);
    for (name, words) in [
        ("a.txt", &["report"][..]),
        ("a.json", &["report", "--json"]),
        ("a.svg", &["flamegraph"]),
        ("a.pb.gz", &["export", "--format", "pprof"]),
        ("a.folded", &["export", "--format", "collapsed"]),
        ("a.collapsed", &["export", "--format", "collapsed"]),
        ("a.speedscope.json", &["export", "--format", "speedscope"]),
        ("a.dhat", &["export", "--format", "dhat"]),
        ("a.log", &["export", "--format", "memdebug"]),
    ] {
        let made = written(&["report"], &[&trace], &file(name));
        assert!(made == printed(words, &[&trace]), "{name}");
        if words[0] == "export" {
            let exported = written(
                &["export"],
                &[&trace],
                &file("by-export").with_extension(&name[2..]),
            );
            assert!(made == exported, "{name}");
        }
    }
    let page = written(&["report"], &[&trace], &file("a.html"));
    assert!(page == written(&["html"], &[&trace], &file("page")));
    let nowhere = output(larder().arg("html").arg(&trace).args(["-o", "/dev/null"]));
    assert_success(&nowhere);
    assert_eq!(stderr(&nowhere), "", "a device is no file");
    for name in ["report", "export"] {
        let tables = file(name).with_extension("parquet");
        let done = output(larder().arg(name).arg(&trace).arg("-o").arg(&tables));
        assert_success(&done);
        assert!(tables.join("events.parquet").is_file(), "{name}");
        let said = format!(
            "larder: {}: events.parquet, stacks.parquet written\n",
            tables.display()
        );
        assert_eq!(stderr(&done), said);
    }
}

#[test]
fn what_sites_are_ranked_by_is_what_a_picture_shows() {
    let (directory, other, trace) = recorded();
    let file = directory.path().join("a.svg");
    let drawn = written(&["report", "--sort", "live"], &[&trace], &file);
    let expected = printed(&["flamegraph", "--value", "live-bytes"], &[&trace]);
    assert!(drawn == expected);
    let drawn = written(&["diff", "--sort", "bytes"], &[&other, &trace], &file);
    let against = ["flamegraph", "--value", "bytes", "--diff"];
    assert!(drawn == printed(&against, &[&other, &trace]));
}

#[test]
fn advice_and_differences_go_to_files_by_their_names() {
    let (directory, other, trace) = recorded();
    let file = |name: &str| directory.path().join(name);
    for (words, traces) in [
        (&["advise"][..], &[&*trace][..]),
        (&["diff"], &[&*other, &*trace]),
        (&["diff", "--growth"], &[&*other, &*trace]),
    ] {
        let text = written(words, traces, &file("a.txt"));
        assert!(text == printed(words, traces), "{words:?}");
        let json = written(words, traces, &file("a.json"));
        let with_json = [words, &["--json"]].concat();
        assert!(json == printed(&with_json, traces), "{words:?}");
        // Whatever the name, as it was said.
        assert!(
            json == written(&with_json, traces, &file("a.txt")),
            "{words:?}"
        );
    }
    let page = written(&["advise"], &[&trace], &file("a.html"));
    assert!(page == written(&["html"], &[&trace], &file("page.html")));
    // No colour, whatever the environment says of a terminal.
    let done = output(
        larder()
            .env("CLICOLOR_FORCE", "1")
            .arg("report")
            .arg(&trace)
            .arg("-o")
            .arg(file("a.txt")),
    );
    assert_success(&done);
    assert!(!fs::read(file("a.txt")).expect("the file").contains(&0x1b));
}

/// Options, the name of the file, and what the error has to say; of a trace, or with `diff` of two.
type Wrong<'a> = (&'a [&'a str], &'a str, &'a [&'a str]);

#[track_caller]
fn assert_wrong(cases: &[Wrong<'_>]) {
    let (directory, other, trace) = recorded();
    for (words, name, reported) in cases {
        let file = directory.path().join(name);
        let before = (words[0] == "diff").then_some(&other);
        let mut command = larder();
        command.args(*words).args(before).arg(&trace);
        assert_fails(&output(command.arg("-o").arg(&file)), 125, reported);
        assert!(!file.exists(), "{words:?}");
    }
}

#[test]
fn a_name_without_a_format_of_the_command_is_an_error() {
    assert_wrong(&[
        (&["report"], "a", &["does not choose", ".parquet or .log"]),
        (&["report"], "a.png", &["does not choose", ".html"]),
        (&["report"], "a.heap", &["this command writes no .heap"]),
        (
            &["advise"],
            "a.pb.gz",
            &["no .pb.gz", ".txt, .json or .html"],
        ),
        (&["diff"], "a.html", &["no .html", ".txt, .json or .svg"]),
        (&["html"], "a.svg", &["no .svg", "end it in .html"]),
        (&["flamegraph"], "a.json", &["no .json", "end it in .svg"]),
        (&["timeline"], "a.html", &["no .html", "end it in .svg"]),
        (&["export"], "a.html", &["no .html", "or give --format"]),
        (&["export"], "a.", &["does not choose", "or give --format"]),
    ]);
    let neither = output(larder().args(["export", "a.trace"]));
    assert_fails(&neither, 125, &["--format"]);
}

#[test]
fn an_option_that_the_format_knows_nothing_of_is_an_error() {
    assert_wrong(&[
        (&["report", "--top", "3"], "a.svg", &["--top", "leave it"]),
        (
            &["report", "--sort", "calls"],
            "a.html",
            &["--sort", "leave it"],
        ),
        (
            &["report", "--sort", "tiny"],
            "a.svg",
            &["--sort", "choose"],
        ),
        (
            &["report", "--sort", "peak"],
            "a.dhat",
            &["--sort", "leave it"],
        ),
        (
            &["report", "--wrapper", "f=malloc"],
            "a.log",
            &["--wrapper"],
        ),
        (&["advise", "--stacks"], "a.html", &["--stacks", "leave it"]),
        (&["diff", "--growth"], "a.svg", &["--growth", "leave it"]),
    ]);
}
