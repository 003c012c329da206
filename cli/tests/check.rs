//! `larder check` and `larder history`: budgets kept and broken, written and refused, and what is
//! kept of the runs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::*;
use serde_json::Value;

/// Twenty turns of a loop; with PLANTED an allocation more in each.
const SOURCE: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *volatile sink;
static char buffer[64];
static void turn(int number) {
#ifdef PLANTED
    char *scratch = malloc(48 + number % 2);  // @planted
#else
    char *scratch = buffer;
#endif
    memset(scratch, number, 48);
    sink = scratch;
#ifdef PLANTED
    free(scratch);
#endif
}
int main(int count, char **words) {
    void *kept[100];
    for (int i = 0; i < 100; i++) kept[i] = malloc(20);
    for (int i = 0; i < 21; i++) turn(i);
    for (int i = 0; i < 100; i++) free(kept[i]);
    if (count > 1 && strcmp(words[1], "leak") == 0) sink = malloc(77);
    if (count > 1 && strcmp(words[1], "fail") == 0) return 3;
    if (count > 1 && strcmp(words[1], "die") == 0) abort();
    return 0;
}
"#;

const FLAGS: [&str; 3] = ["-g", "-O1", "-fno-builtin"];

fn program(directory: &Path, name: &str, planted: bool) -> PathBuf {
    let mut flags = FLAGS.to_vec();
    if planted {
        flags.push("-DPLANTED");
    }
    let folder = directory.join(name);
    fs::create_dir(&folder).expect("a folder");
    compile(&folder, "turns.c", SOURCE, &flags)
}

fn check(directory: &Path, options: &[&str], command: &[&Path]) -> Output {
    let mut larder = larder();
    larder.current_dir(directory).arg("check").args(options);
    if !command.is_empty() {
        larder.arg("--").args(command);
    }
    output(&mut larder)
}

#[test]
fn a_planted_allocation_a_turn_is_reported_in_five_lines_that_name_it() {
    let directory = temporary();
    let (good, bad) = (
        program(directory.path(), "good", false),
        program(directory.path(), "bad", true),
    );
    assert_success(&check(directory.path(), &["--update"], &[&good]));
    let green = check(directory.path(), &[], &[&good]);
    assert_success(&green);
    assert_eq!(stderr(&green).lines().count(), 1, "{}", stderr(&green));
    assert!(stderr(&green).contains(": within budget: 100 allocations"));

    let red = check(directory.path(), &[], &[&bad]);
    let text = stderr(&red);
    assert_eq!((code(&red), stdout(&red).as_str()), (1, ""), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[0].contains("allocations 121 where 100 is allowed (+21, +21.0 %)"),
        "{text}"
    );
    assert!(
        lines[1].contains("total_bytes 3,018 where 2000 is allowed"),
        "{text}"
    );
    let line = line_of(SOURCE, "planted");
    let place = format!("site: turn at bad/turns.c:{line}: 21 calls");
    assert!(lines[2].contains(&place), "{text}");
    assert!(lines[2].contains("from 0 calls to 21"), "{text}");
    assert!(
        lines[3].contains("called from: main (bad/turns.c:"),
        "{text}"
    );
    assert!(
        lines[4].contains("larder check --update -- ") && lines[4].contains("bad/turns"),
        "{text}"
    );
}

#[test]
fn leaks_are_limited_and_named() {
    let directory = temporary();
    let good = program(directory.path(), "good", false);
    assert_success(&check(directory.path(), &["--update"], &[&good]));
    let red = check(directory.path(), &["--json"], &[&good, Path::new("leak")]);
    assert_eq!(code(&red), 1, "{}", stderr(&red));
    let verdict: Value = serde_json::from_slice(&red.stdout).expect("JSON");
    assert_eq!(verdict["within"], false);
    assert_eq!(verdict["figures"]["leaked_blocks"], 1);
    assert_eq!(verdict["figures"]["leaked_bytes"], 77);
    let exceeded = verdict["exceeded"].as_array().expect("exceeded");
    let leak = exceeded
        .iter()
        .find(|breach| breach["figure"] == "leaked_blocks")
        .expect("the leak");
    assert_eq!(leak["site"]["function"], "main");
    assert_eq!(leak["limit"], "0");
}

#[test]
fn the_commands_own_failure_has_a_code_of_its_own() {
    let directory = temporary();
    let good = program(directory.path(), "good", false);
    assert_success(&check(directory.path(), &["--update"], &[&good]));
    for (word, said) in [("fail", "exit code 3"), ("die", "signal 6")] {
        let failed = check(directory.path(), &[], &[&good, Path::new(word)]);
        assert_eq!(code(&failed), 2, "{}", stderr(&failed));
        assert!(stderr(&failed).contains(said), "{}", stderr(&failed));
    }
    let missing = check(directory.path(), &[], &[Path::new("no-such-program")]);
    assert_fails(&missing, 127, &["no-such-program"]);
}

#[test]
fn an_update_keeps_comments_and_forms_and_can_be_read_back() {
    let directory = temporary();
    let bad = program(directory.path(), "bad", true);
    let budget = directory.path().join("larder.toml");
    let command = bad.to_str().expect("UTF-8");
    let text = format!(
        "# The turns.\nname = \"turns\"\ncommand = [\"{command}\"]\n\n[limits]\n\
         allocations = \"100 +5%\" # a little room\npeak_bytes = \"<= 1\"\n\n\
         [[site]] # the loop\nfunction = \"tu*\"\nfile = \"turns.c\"\ncalls = 7\n"
    );
    fs::write(&budget, text).expect("the budget");
    fs::set_permissions(&budget, fs::Permissions::from_mode(0o640)).expect("the mode");
    assert_eq!(code(&check(directory.path(), &[], &[])), 1);
    assert_success(&check(directory.path(), &["--update"], &[]));
    let text = fs::read_to_string(&budget).expect("the budget");
    for kept in [
        "# The turns.\n",
        "allocations = \"121 +5%\" # a little room\n",
        "peak_bytes = \"<= 2049\"\n",
        "[[site]] # the loop\n",
        "calls = 21\n",
        "[[recorded]]\n",
    ] {
        assert!(text.contains(kept), "no {kept:?} in: {text}");
    }
    assert!(!text.contains("tiny = 100\n\n[[site]]"), "{text}");
    let mode = fs::metadata(&budget).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let green = check(directory.path(), &[], &[]);
    assert_success(&green);
    assert!(stderr(&green).starts_with("larder: turns: within"));
    assert_success(&check(directory.path(), &["--update"], &[]));
    assert_eq!(fs::read_to_string(&budget).expect("the budget"), text);
}

#[test]
fn bad_budgets_are_refused_with_their_line() {
    let directory = temporary();
    let path = directory.path().join("larder.toml");
    for (text, words) in [
        ("[limits]\nalocations = 1\n", &["line 2", "alocations"][..]),
        ("nam = \"x\"\n", &["line 1", "nam"]),
        ("[limits]\n\n\ntiny = \"few\"\n", &["line 4", "few"]),
        ("[limits]\ntiny = -1\n", &["line 2", "-1"]),
        ("[limits]\ntiny = [1]\n", &["line 2"]),
        ("[limits\n", &["line 1"]),
        ("[[site]]\ncalls = 1\n", &["line 1", "function"]),
        ("name = \"\\u001b[2J\"\nx = 1\n", &["line 2"]),
        ("command = [1]\n", &["line 1"]),
    ] {
        fs::write(&path, text).expect("the budget");
        let refused = check(directory.path(), &[], &[Path::new("true")]);
        assert_fails(&refused, 125, words);
    }
    fs::write(&path, b"name = \"\xff\"").expect("the budget");
    let refused = check(directory.path(), &[], &[Path::new("true")]);
    assert_fails(&refused, 125, &["offset 8"]);
    fs::write(&path, vec![b'#'; 5 << 20]).expect("the budget");
    let refused = check(directory.path(), &[], &[Path::new("true")]);
    assert_fails(&refused, 125, &["larger"]);
    fs::remove_file(&path).expect("gone");
    let missing = check(directory.path(), &[], &[Path::new("true")]);
    assert_fails(&missing, 125, &["no budget yet", "--update"]);
    fs::write(&path, "").expect("the budget");
    let nothing = check(directory.path(), &[], &[]);
    assert_fails(&nothing, 125, &["no command"]);
    fs::remove_file(&path).expect("gone");
    symlink("/dev/full", &path).expect("a link");
    let device = check(directory.path(), &[], &[Path::new("true")]);
    assert_fails(&device, 125, &["not a regular file"]);
}

#[test]
fn names_in_budgets_are_shown_and_not_obeyed() {
    let directory = temporary();
    let good = program(directory.path(), "good", false);
    let budget = "name = \"\\u001b]0;x\\u0007\"\n[limits]\nallocations = 1\n";
    fs::write(directory.path().join("larder.toml"), budget).expect("the budget");
    let red = check(directory.path(), &[], &[&good]);
    assert_eq!(code(&red), 1);
    assert!(!stderr(&red).contains('\u{1b}'), "{}", stderr(&red));
    let table = output(larder().current_dir(directory.path()).arg("history"));
    assert_success(&table);
    assert!(!stdout(&table).contains('\u{1b}'));
}

#[test]
fn a_full_trace_is_judged_as_the_run_is() {
    let directory = temporary();
    let good = program(directory.path(), "good", false);
    assert_success(&check(directory.path(), &["--update"], &[&good]));
    let trace = record(directory.path(), &good, &[], &[]);
    let judged = check(directory.path(), &[trace.to_str().expect("UTF-8")], &[]);
    assert_success(&judged);
    let file = fs::read_dir(&trace).expect("the trace").next();
    let file = file.expect("a file").expect("a file").path();
    let bytes = fs::read(&file).expect("readable");
    // Within its last chunk.
    fs::write(&file, &bytes[..bytes.len() - 20]).expect("writable");
    let cut = check(directory.path(), &[trace.to_str().expect("UTF-8")], &[]);
    assert_eq!(code(&cut), 125);
    assert!(stderr(&cut).contains("not whole"), "{}", stderr(&cut));
}

fn git(directory: &Path, words: &[&str]) {
    let done = Command::new("git")
        .current_dir(directory)
        .args(["-c", "user.name=test", "-c", "user.email=test@localhost"])
        .args(words)
        .output()
        .expect("git");
    assert!(done.status.success(), "{}", stderr(&done));
}

#[test]
fn the_history_names_the_commit_where_a_count_moved() {
    let directory = temporary();
    let (good, bad) = (
        program(directory.path(), "good", false),
        program(directory.path(), "bad", true),
    );
    git(directory.path(), &["init", "-q"]);
    git(
        directory.path(),
        &["commit", "-q", "--allow-empty", "-m", "one"],
    );
    assert_success(&check(directory.path(), &["--update"], &[&good]));
    assert_success(&check(directory.path(), &[], &[&good]));
    let three = ["--runs", "3", "--commit", "<b>second</b>"];
    assert_eq!(code(&check(directory.path(), &three, &[&bad])), 1);
    assert_success(&check(directory.path(), &["--no-history"], &[&good]));
    let page = directory.path().join("trend.html");
    let mut larder = larder();
    let shown = output(larder.current_dir(directory.path()).args([
        "history",
        "--json",
        "--html",
        "trend.html",
    ]));
    assert_success(&shown);
    let said = stderr(&shown);
    assert!(
        said.starts_with("larder: trend.html: ") && said.ends_with("iB written\n"),
        "{said}"
    );
    let trends: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let runs = trends[0]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    let commits: Vec<&str> = runs
        .iter()
        .filter_map(|run| run["commit"].as_str())
        .collect();
    assert_eq!(commits[0], commits[1]);
    assert_eq!((commits[0].len(), commits[2]), (40, "<b>second</b>"));
    assert_eq!(runs[0]["dirty"], false);
    assert!(runs[0]["wall_ns"].as_i64() > Some(0));
    let changes = trends[0]["changes"].as_array().expect("changes");
    let allocations = changes.iter().find(|c| c["figure"] == "allocations");
    let allocations = allocations.expect("allocations moved");
    assert_eq!(allocations["commit"], "<b>second</b>");
    assert_eq!(
        (
            allocations["before"].as_f64(),
            allocations["after"].as_f64()
        ),
        (Some(100.0), Some(121.0))
    );
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains("<svg") && page.contains("&lt;b&gt;second"));
    assert!(!page.contains("<b>second") && !page.contains("http"));
}

#[test]
fn writers_side_by_side_lose_nothing() {
    let directory = temporary();
    let good = program(directory.path(), "good", false);
    assert_success(&check(
        directory.path(),
        &["--update", "--no-history"],
        &[&good],
    ));
    let work = || {
        for _ in 0..4 {
            assert_success(&check(directory.path(), &[], &[&good]));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let shown = output(
        larder()
            .current_dir(directory.path())
            .args(["history", "--json"]),
    );
    let trends: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(trends[0]["runs"].as_array().map(Vec::len), Some(16));
}

#[test]
fn what_is_no_history_is_refused_and_left_alone() {
    let directory = temporary();
    let good = program(directory.path(), "good", false);
    assert_success(&check(
        directory.path(),
        &["--update", "--no-history"],
        &[&good],
    ));
    let other = directory.path().join("other.db");
    fs::write(&other, "this is no database at all, whatever it is called").expect("a file");
    let refused = check(directory.path(), &["--db", "other.db"], &[&good]);
    assert_fails(&refused, 125, &["other.db", "not a database"]);
    let refused = output(
        larder()
            .current_dir(directory.path())
            .args(["history", "--db", "other.db"]),
    );
    assert_fails(&refused, 125, &["not a database"]);
    assert!(
        fs::read_to_string(&other)
            .expect("there")
            .starts_with("this is no")
    );
    let missing = output(larder().current_dir(directory.path()).arg("history"));
    assert_fails(&missing, 125, &["no history yet"]);
    assert!(!directory.path().join(".larder").exists());
    // A history cut in the middle of a page.
    assert_success(&check(directory.path(), &["--db", "cut.db"], &[&good]));
    let cut = directory.path().join("cut.db");
    let bytes = fs::read(&cut).expect("readable");
    fs::write(&cut, &bytes[..bytes.len() / 2 + 100]).expect("writable");
    let refused = check(directory.path(), &["--db", "cut.db"], &[&good]);
    assert_fails(&refused, 125, &["cut.db"]);
    fs::create_dir(directory.path().join("folder.db")).expect("a folder");
    let refused = check(directory.path(), &["--db", "folder.db"], &[&good]);
    assert_fails(&refused, 125, &["folder.db"]);
}
