//! `larder run`: the program cannot tell that it was started by the tool.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use crate::common::*;

#[test]
fn output_and_exit_code_are_the_commands() {
    let ran = output(larder().args(["run", "--", "sh", "-c", "echo out; echo err >&2; exit 37"]));
    assert_eq!(code(&ran), 37);
    assert_eq!(stdout(&ran), "out\n");
    assert_eq!(stderr(&ran), "err\n");
}

#[test]
fn death_by_signal_is_the_commands() {
    let ran = output(larder().args(["run", "--", "sh", "-c", "kill -TERM $$"]));
    assert_eq!(code(&ran), 128 + 15);
    assert_eq!(stderr(&ran), "");
}

#[test]
fn the_command_runs_on_larder() {
    let ran = output(larder().args(["run", "--", "cat", "/proc/self/maps"]));
    assert_success(&ran);
    assert!(stdout(&ran).contains("/liblarder.so"), "{}", stdout(&ran));
}

#[test]
fn a_preload_of_the_caller_is_kept_behind() {
    let directory = temporary();
    let preload = compile(
        directory.path(),
        "other.c",
        "int other;",
        &["-shared", "-fPIC"],
    );
    let ran = output(larder().env("LD_PRELOAD", &preload).args([
        "run",
        "--",
        "sh",
        "-c",
        "echo $LD_PRELOAD",
    ]));
    let value = stdout(&ran);
    let (first, rest) = value.trim().split_once(':').expect("two libraries");
    assert!(first.ends_with("/liblarder.so"), "{value}");
    assert_eq!(rest, preload.to_str().unwrap());
}

#[test]
fn arguments_environment_and_argv0_arrive_unchanged() {
    let directory = temporary();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            for (int i = 0; i < argc; i++) printf("[%s]", argv[i]);
            printf("%s\n", getenv("ODD"));
        }"#;
    let program = compile(directory.path(), "args.c", source, &[]);
    let odd = std::ffi::OsStr::from_bytes(b"a b\xff\n*");
    let ran = output(
        larder()
            .arg("run")
            .arg(&program)
            .arg("--sort")
            .arg("")
            .arg(odd)
            .env("ODD", odd),
    );
    let mut expected = format!("[{}][--sort][][", program.display()).into_bytes();
    expected.extend_from_slice(odd.as_bytes());
    expected.extend_from_slice(b"]");
    expected.extend_from_slice(odd.as_bytes());
    expected.extend_from_slice(b"\n");
    assert_eq!(ran.stdout, expected);
}

#[test]
fn ignored_and_default_signals_are_handed_on() {
    let status = "grep SigIgn /proc/self/status";
    for setup in ["", "trap '' PIPE; ", "trap '' HUP PIPE; "] {
        let plain = output(Command::new("sh").args(["-c", &format!("{setup}exec {status}")]));
        let shell = format!("{setup}exec \"$TOOL\" run -- {status}");
        let ran = output(
            Command::new("sh")
                .args(["-c", &shell])
                .env("TOOL", env!("CARGO_BIN_EXE_larder"))
                .env("LARDER_LIB", library_directory()),
        );
        assert_eq!(stdout(&ran), stdout(&plain), "{setup}");
    }
}

#[test]
fn stdin_is_the_commands() {
    let mut child = larder()
        .args(["run", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("larder");
    use std::io::Write;
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through");
}

#[test]
fn libraries_in_a_path_that_preload_cannot_carry_are_loaded_all_the_same() {
    let directory = temporary();
    let runtime = directory.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    for name in ["with space", "with:colon", "with$dollar"] {
        let lib = directory.path().join(name);
        fs::create_dir(&lib).unwrap();
        fs::copy(
            library_directory().join("liblarder.so"),
            lib.join("liblarder.so"),
        )
        .unwrap();
        let ran = output(
            bare_larder()
                .env("LARDER_LIB", &lib)
                .env("XDG_RUNTIME_DIR", &runtime)
                .args(["run", "--", "cat", "/proc/self/maps"]),
        );
        assert_success(&ran);
        assert_eq!(stderr(&ran), "");
        assert!(
            stdout(&ran).contains(&format!("{name}/liblarder.so")),
            "{}",
            stdout(&ran)
        );
    }
}

#[test]
fn the_tool_finds_the_libraries_beside_itself() {
    let prefix = temporary();
    for part in ["bin", "lib"] {
        fs::create_dir(prefix.path().join(part)).unwrap();
    }
    let tool = prefix.path().join("bin/larder");
    copy_program(env!("CARGO_BIN_EXE_larder"), &tool);
    let lib = prefix.path().join("lib/liblarder.so");
    fs::copy(library_directory().join("liblarder.so"), &lib).unwrap();
    // Through a link in another place, as /usr/local/bin has them.
    let link = prefix.path().join("link");
    std::os::unix::fs::symlink(&tool, &link).unwrap();
    let ran = output(Command::new(&link).env_remove("LARDER_LIB").args([
        "run",
        "cat",
        "/proc/self/maps",
    ]));
    assert_success(&ran);
    assert!(stdout(&ran).contains(lib.canonicalize().unwrap().to_str().unwrap()));
}

#[test]
fn nonsense_in_larders_variables_never_stops_the_program() {
    let ran = output(
        larder()
            .env("LARDER_NO_SUCH_OPTION", "\u{1b}[31m")
            .env("LARDER_PURGE_DECAY_MS", "-17 bananas")
            .args(["run", "--", "sh", "-c", "echo fine; exit 5"]),
    );
    assert_eq!(code(&ran), 5);
    assert_eq!(stdout(&ran), "fine\n");
}

#[test]
fn a_path_with_spaces_and_bytes_that_are_not_utf8_is_run() {
    let directory = temporary();
    let odd = directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"a dir\xff"));
    fs::create_dir(&odd).unwrap();
    let program = odd.join("my echo");
    copy_program("/bin/echo", &program);
    let ran = output(larder().arg("run").arg(&program).arg("hello"));
    assert_success(&ran);
    assert_eq!(stdout(&ran), "hello\n");
}

#[track_caller]
fn report_of_abort(ran: &Output) -> String {
    assert_eq!(code(ran), 128 + 6, "{}", stderr(ran));
    stderr(ran)
}

#[test]
fn hardened_stops_what_the_allocator_alone_lets_pass() {
    const SOURCE: &str = "#include <malloc.h>\n#include <stdlib.h>\nint main(int count, char** words) {\n  \
        volatile char* p = malloc(40);\n  volatile char* q = malloc(40);\n  \
        if (count == 2) p[malloc_usable_size((void*)p)] = words[1][0];\n  \
        free((void*)p);\n  free((void*)q);\n  if (count == 3) q[24] = 1;\n}\n";
    let directory = temporary();
    let program = compile(directory.path(), "beyond.c", SOURCE, &["-O0"]);
    let run = |option: &[&str], words: &[&str]| {
        let mut command = larder();
        command.arg("run").args(option).arg("--").arg(&program);
        output(command.args(words))
    };
    assert_success(&run(&["--hardened"], &[]));
    assert_success(&run(&[], &["x"]));
    assert_success(&run(&[], &["x", "y"]));
    let report = report_of_abort(&run(&["--hardened"], &["x"]));
    assert!(
        report.contains("): bytes beside the object were overwritten, an object of 48 bytes")
            && report.contains("/beyond+0x"),
        "{report}"
    );
    // Nothing is freed after it: the end of the process tells.
    let report = report_of_abort(&run(&["--hardened"], &["x", "y"]));
    assert!(
        report.contains("): the object was written to after it was freed, an object of 48 bytes"),
        "{report}"
    );
    assert_fails(
        &run(&["--hardened", "--guard"], &[]),
        125,
        &["--hardened", "--guard"],
    );
}

/// After 1,000 other frees the object is no longer in the quarantine (of 32, of which each lets one go by chance).
#[test]
fn hardened_finds_a_write_to_free_memory_when_it_is_handed_out() {
    const SOURCE: &str = "#include <stdlib.h>\nint main(int count, char** words) {\n  \
        (void)words;\n  volatile char* p = malloc(40);\n  void* others[1000];\n  \
        for (int i = 0; i < 1000; ++i) others[i] = malloc(40);\n  free((void*)p);\n  \
        for (int i = 0; i < 1000; ++i) free(others[i]);\n  if (count > 1) p[24] = 1;\n  \
        for (int i = 0; i < 2000; ++i) if (malloc(40) == p) return 3;\n  return 4;\n}\n";
    let directory = temporary();
    let program = compile(directory.path(), "after.c", SOURCE, &["-O0"]);
    let run = |words: &[&str]| {
        let mut command = larder();
        command.args(["run", "--hardened", "--"]).arg(&program);
        output(command.args(words))
    };
    assert_eq!(code(&run(&[])), 3);
    let report = report_of_abort(&run(&["write"]));
    assert!(
        report.contains("larder: malloc(0x")
            && report.contains("): the object was written to after it was freed"),
        "{report}"
    );
}

#[test]
fn guard_reports_an_overflow_with_its_allocation() {
    const SOURCE: &str = "#include <stdlib.h>\nint main(void) {\n  volatile char* all[200];\n  \
        for (int i = 0; i < 200; ++i) all[i] = malloc(64);\n  \
        for (int i = 0; i < 200; ++i) all[i][64] = 1;\n}\n";
    let directory = temporary();
    let program = compile(directory.path(), "overflow.c", SOURCE, &["-O0"]);
    let run = |words: &[&str]| {
        let sampled = ("LARDER_PROFILE_BYTES", "16");
        let mut command = larder();
        command.env(sampled.0, sampled.1).arg("run").args(words);
        output(command.arg("--").arg(&program))
    };
    let report = report_of_abort(&run(&["--guard"]));
    assert!(
        report.contains("larder: a write at 0x")
            && report.contains("overflow, 0 bytes behind the end of an object of 64 bytes"),
        "{report}"
    );
    assert!(report.contains("larder: the object was allocated here:\n"));
    assert_eq!(report.matches("/overflow+0x").count(), 4, "{report}");
    assert_success(&run(&[]));
    let unsampled = output(
        larder()
            .env("LARDER_PROFILE_BYTES", "0")
            .args(["run", "--guard", "--"])
            .arg(&program),
    );
    assert_success(&unsampled);
    assert_eq!(
        stderr(&unsampled),
        "larder: LARDER_GUARD: nothing is guarded: LARDER_PROFILE_BYTES is 0\n"
    );
    assert_fails(&run(&["--guard", "--fail-nth", "1"]), 125, &["--guard"]);
}

/// Of each command that runs a program and reports on it. With `-o` and as text the report needs no stdout of its own.
#[test]
fn what_a_program_prints_is_apart_from_a_report_for_programs() {
    let directory = temporary();
    let program = ["--", "echo", "its own"];
    let run = |options: &[&str]| {
        let mut command = larder();
        command.current_dir(directory.path()).args(options);
        let run = output(command.args(program));
        assert!(
            [0, 1].contains(&code(&run)),
            "{options:?}: {}",
            stderr(&run)
        );
        run
    };
    run(&["check", "--update"]);
    for options in [
        &["leaks", "--json"][..],
        &["stats", "--json"],
        &["stats", "--format", "prometheus"],
        &["profile", "--json"],
        &["profile", "--mean", "1", "--format", "collapsed"],
        &["check", "--json"],
    ] {
        let ran = run(options);
        assert!(
            !stdout(&ran).contains("its own"),
            "{options:?}: {}",
            stdout(&ran)
        );
        assert!(!stdout(&ran).is_empty(), "{options:?}: {}", stderr(&ran));
        assert!(
            stderr(&ran).contains("its own\n"),
            "{options:?}: {}",
            stderr(&ran)
        );
    }
    for options in [
        &["leaks"][..],
        &["stats", "-o", "stats.json"],
        &["profile", "-o", "profile.json"],
        &["check"],
    ] {
        let ran = run(options);
        assert!(
            stdout(&ran).starts_with("its own\n"),
            "{options:?}: {}",
            stdout(&ran)
        );
    }
}
