//! What `larder-lab` does is typed after `larder`, and nobody can tell that it is another program.

use std::fs;

use crate::common::*;

/// The tool alone, or with a `larder-lab` at `place` that prints its words.
fn tree(place: Option<&str>) -> tempfile::TempDir {
    let tree = temporary();
    fs::create_dir(tree.path().join("bin")).expect("a folder");
    fs::create_dir_all(tree.path().join("libexec/larder")).expect("a folder");
    copy_program(tool(), &tree.path().join("bin/larder"));
    if let Some(place) = place {
        write_program(&tree.path().join(place), b"#!/bin/sh\necho \"$0: $*\"\n");
    }
    tree
}

#[test]
fn it_is_found_beside_the_tool_and_where_it_is_installed() {
    for place in ["bin/larder-lab", "libexec/larder/larder-lab"] {
        let tree = tree(Some(place));
        let tool = tree.path().join("bin/larder");
        for words in ["bench --quick x", "lab grid", "grid", "help replay"] {
            let ran = output(std::process::Command::new(&tool).args(words.split(' ')));
            assert_success(&ran);
            let expected = format!("{place}: {words}\n");
            assert!(stdout(&ran).ends_with(&expected), "{}", stdout(&ran));
        }
    }
}

#[test]
fn where_it_was_looked_for_is_said() {
    let tree = tree(None);
    let ran = output(std::process::Command::new(tree.path().join("bin/larder")).arg("bench"));
    let words = ["larder-lab", "/bin or ", "/libexec/larder: ", "make build"];
    assert_fails(&ran, 125, &words);
}

/// Of the doctor of a tool in such a tree.
fn doctors_finding(tree: &tempfile::TempDir) -> serde_json::Value {
    let tool = tree.path().join("bin/larder");
    let mut doctor = std::process::Command::new(tool);
    doctor.env("LARDER_LIB", library_directory());
    let examined = output(doctor.args(["doctor", "--json"]));
    let document: serde_json::Value = serde_json::from_slice(&examined.stdout).expect("JSON");
    // What records and reports does without it.
    assert_eq!(code(&examined), 0, "{document:#}");
    let findings = document["findings"].as_array().expect("findings");
    let found = findings.iter().find(|f| f["check"] == "larder-lab");
    found.expect("a finding").clone()
}

#[test]
fn doctor_says_whether_it_is_there_and_starts() {
    let place = "libexec/larder/larder-lab";
    let reported = |tree: &tempfile::TempDir, health: &str, found: &str, remedy: &str| {
        let finding = doctors_finding(tree);
        let text = |member: &str| finding[member].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("health"), health, "{finding:#}");
        assert!(text("found").contains(found), "{finding:#}");
        assert!(text("remedy").contains(remedy), "{finding:#}");
    };
    let tree = tree(None);
    reported(&tree, "warning", "larder-lab is not in ", "make build");
    let lab = tree.path().join(place);
    write_program(&lab, b"not a program");
    reported(&tree, "warning", "does not start: ", "make build");
    write_program(&lab, b"#!/bin/sh\necho 'no such library' >&2\nexit 127\n");
    reported(
        &tree,
        "warning",
        "does not start: no such library",
        "make build",
    );
    write_program(&lab, b"#!/bin/sh\necho larder 0.0.1\n");
    reported(&tree, "warning", "of another build", "make install");
    build_lab();
    copy_program(tool().with_file_name("larder-lab"), &lab);
    reported(&tree, "ok", "libexec/larder/larder-lab, starts", "");
}

#[test]
fn its_failures_are_the_tools() {
    build_lab();
    let wrong = output(larder().args(["bench", "--no-such"]));
    assert_fails(&wrong, 125, &["--no-such", "see `larder bench --help`"]);
    let wrong = output(larder().arg("lab"));
    assert_fails(&wrong, 125, &["no subcommand given: `larder lab --help`"]);
    let missing = output(larder().args(["replay", "/no/such.trace"]));
    assert_fails(&missing, 125, &["/no/such.trace"]);
}

#[test]
fn every_command_there_ever_was_is_there() {
    build_lab();
    let commands = "run record report diff advise html timeline export flamegraph doctor bench sweep alias grid \
                    page-map counts instructions startup recording stacks replay check history torture memdebug \
                    profile leaks stats top serve import";
    for name in commands.split_whitespace() {
        let help = output(larder().args([name, "--help"]));
        assert_success(&help);
        assert!(stdout(&help).contains("Usage: larder "), "{name}");
    }
}

#[test]
fn help_says_the_same_of_a_command_as_its_own_help() {
    build_lab();
    let all = stdout(&output(larder().arg("--help")));
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
    for name in ["bench", "replay", "torture", "sweep", "alias", "lab"] {
        let own = stdout(&output(larder().args([name, "--help"])));
        let about = own.lines().next().expect("a line");
        assert!(all.contains(&format!(" {name} {about}")), "{name}: {about}");
        assert!(own.contains(&format!("\nUsage: larder {name} ")), "{own}");
    }
}
