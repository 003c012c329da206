//! What `larder-lab` does is typed after `larder`, and nobody can tell that it is another program.

mod common;

use std::fs;

use common::*;

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

#[test]
fn its_failures_are_the_tools() {
    build_lab();
    let wrong = output(larder().args(["bench", "--no-such"]));
    assert_fails(&wrong, 125, &["--no-such", "see `larder --help`"]);
    let wrong = output(larder().arg("lab"));
    assert_fails(&wrong, 125, &["no subcommand given: `larder lab --help`"]);
    let missing = output(larder().args(["replay", "/no/such.trace"]));
    assert_fails(&missing, 125, &["/no/such.trace"]);
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
