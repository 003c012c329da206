//! Commands that cannot be run or reached: one line with cause and remedy, and the right code.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::*;

/// The same answer from `run` and from `record`; and `record` leaves nothing behind.
#[track_caller]
fn assert_refused(program: &Path, expected: i32, words: &[&str]) {
    let place = temporary();
    for subcommand in ["run", "record"] {
        let refused = output(
            larder()
                .current_dir(place.path())
                .arg(subcommand)
                .arg("--")
                .arg(program),
        );
        assert_fails(&refused, expected, words);
    }
    assert_eq!(
        fs::read_dir(place.path()).unwrap().count(),
        0,
        "something was left behind"
    );
    let doctor = output(larder().arg("doctor").arg(program));
    assert_eq!(code(&doctor), expected, "{}", stdout(&doctor));
}

const MAIN: &str = "int main(void) { return 0; }\n";

#[test]
fn a_command_that_does_not_exist() {
    assert_refused(
        Path::new("no-such-command-of-larder"),
        127,
        &["not found", "$PATH"],
    );
    assert_refused(
        Path::new("/no/such/place"),
        127,
        &["no such file", "check the path"],
    );
    assert_refused(Path::new("/bin/true/below"), 127, &["no such file"]);
}

#[test]
fn a_static_program() {
    let directory = temporary();
    let program = compile(directory.path(), "static.c", MAIN, &["-static"]);
    assert_refused(&program, 126, &["statically linked", "liblarder.a"]);
    let program = compile(directory.path(), "pie.c", MAIN, &["-static-pie"]);
    assert_refused(&program, 126, &["statically linked"]);
}

#[test]
fn a_setuid_or_setgid_program() {
    let directory = temporary();
    for (mode, word) in [(0o4755, "is setuid"), (0o2755, "is setgid")] {
        let program = directory.path().join(format!("mode-{mode:o}"));
        copy_program("/bin/true", &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        assert_refused(&program, 126, &[word, "run a copy"]);
    }
}

/// The first 20 bytes are what tells architectures apart; the rest is room.
fn elf(class: u8, encoding: u8, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0u8; 128];
    bytes[..4].copy_from_slice(b"\x7fELF");
    bytes[4..7].copy_from_slice(&[class, encoding, 1]);
    let machine = if encoding == 2 {
        machine.to_be_bytes()
    } else {
        machine.to_le_bytes()
    };
    bytes[16..18].copy_from_slice(&[2, 0]);
    bytes[18..20].copy_from_slice(&machine);
    bytes
}

#[test]
fn a_program_of_another_architecture() {
    let directory = temporary();
    let other = if cfg!(target_arch = "x86_64") {
        (183, "aarch64")
    } else {
        (62, "x86-64")
    };
    for (class, encoding, machine, name) in [
        (2, 1, other.0, other.1),
        (1, 1, 3, "i386"),
        (1, 1, 40, "arm"),
        (2, 2, 22, "s390"),
        (2, 1, 0x7777, "ELF machine 30583"),
    ] {
        let program = directory.path().join(format!("elf-{machine}"));
        write_program(&program, &elf(class, encoding, machine));
        assert_refused(&program, 126, &["another architecture", name]);
    }
}

#[test]
fn a_musl_program_and_one_whose_loader_is_not_there() {
    let directory = temporary();
    let loader = directory.path().join("ld-musl-x86_64.so.1");
    fs::write(&loader, "").unwrap();
    let musl = format!("-Wl,--dynamic-linker={}", loader.display());
    let program = compile(directory.path(), "musl.c", MAIN, &[&musl]);
    for subcommand in ["run", "record"] {
        let mut tool = larder();
        tool.env("LARDER_LIB", directory.path());
        let refused = output(tool.arg(subcommand).arg("--").arg(&program));
        assert_fails(&refused, 126, &["/musl", "make musl", "glibc"]);
    }
    let mut doctor = larder();
    let doctor = output(
        doctor
            .env("LARDER_LIB", directory.path())
            .arg("doctor")
            .arg(&program),
    );
    assert_eq!(code(&doctor), 126, "{}", stdout(&doctor));
    let gone = "-Wl,--dynamic-linker=/no/such/ld-linux.so.2";
    let program = compile(directory.path(), "gone.c", MAIN, &[gone]);
    assert_refused(&program, 126, &["/no/such/ld-linux.so.2", "not installed"]);
}

#[test]
fn a_damaged_program() {
    let directory = temporary();
    let whole = fs::read("/bin/true").unwrap();
    for length in [4, 19, 63, 64, 200] {
        let program = directory.path().join(format!("cut-{length}"));
        write_program(&program, &whole[..length]);
        let refused = output(larder().arg("run").arg(&program));
        assert_fails(&refused, 126, &["damaged ELF file"]);
    }
}

#[test]
fn what_is_no_program() {
    let directory = temporary();
    assert_refused(
        directory.path(),
        126,
        &["is a directory", "name a program in it"],
    );
    let plain = directory.path().join("plain");
    fs::write(&plain, MAIN).unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(&plain, 126, &["not executable", "chmod +x"]);
    let text = directory.path().join("text");
    write_program(&text, b"echo hello\n");
    assert_refused(&text, 126, &["neither an ELF program nor a script"]);
    let empty = directory.path().join("empty");
    write_program(&empty, b"");
    assert_refused(&empty, 126, &["neither an ELF program nor a script"]);
    assert_refused(
        Path::new("/dev/null"),
        126,
        &["not a regular file", "name a program"],
    );
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let directory = temporary();
    let program = compile(directory.path(), "static.c", MAIN, &["-static"]);
    let script = directory.path().join("script");
    write_program(&script, format!("#!{}\n", program.display()).as_bytes());
    assert_refused(&script, 126, &["statically linked"]);
    write_program(&script, b"#!/no/such/interpreter -x\n");
    assert_refused(&script, 126, &["#! line", "/no/such/interpreter"]);
    write_program(&script, b"#!/bin/sh\nexit 9\n");
    assert_eq!(code(&output(larder().arg("run").arg(&script))), 9);
}

#[test]
fn a_name_that_would_move_the_cursor_is_shown_escaped() {
    let name = std::ffi::OsStr::from_bytes(b"/no/\x1b[2J\xff place");
    let refused = output(larder().arg("run").arg(name));
    assert_fails(&refused, 127, &["/no/\\x1b[2J\\xff place"]);
}

#[test]
fn libraries_that_are_not_there() {
    let directory = temporary();
    for subcommand in ["run", "record"] {
        let refused = output(
            bare_larder()
                .current_dir(directory.path())
                .args([subcommand, "true"]),
        );
        assert_fails(&refused, 125, &["$LARDER_LIB (not set)", "make build"]);
        let refused = output(
            bare_larder()
                .current_dir(directory.path())
                .env("LARDER_LIB", "\u{1b}nonsense")
                .args([subcommand, "true"]),
        );
        assert_fails(
            &refused,
            125,
            &["$LARDER_LIB (\\x1bnonsense)", "set LARDER_LIB"],
        );
    }
    let doctor = output(bare_larder().arg("doctor"));
    assert_eq!(code(&doctor), 125);
    assert!(
        stdout(&doctor).contains("missing  allocator"),
        "{}",
        stdout(&doctor)
    );
}

#[test]
fn a_malloc_that_is_no_library() {
    let directory = temporary();
    let text = directory.path().join("text.so");
    fs::write(&text, "no library").unwrap();
    let refused = output(
        larder()
            .current_dir(&directory)
            .arg("record")
            .arg("--malloc")
            .arg(&text)
            .arg("true"),
    );
    assert_fails(&refused, 125, &["not a shared library: name an allocator"]);
    let refused = output(larder().current_dir(&directory).args([
        "record",
        "--malloc",
        "/no/such.so",
        "true",
    ]));
    assert_fails(
        &refused,
        125,
        &["/no/such.so", "no such file", "check the path"],
    );
    let mute = compile(
        directory.path(),
        "mute.c",
        "void *malloc(unsigned long); void *f(void) { return malloc(1); }",
        &["-shared", "-fPIC"],
    );
    let refused = output(
        larder()
            .current_dir(&directory)
            .args(["record", "--malloc"])
            .arg(&mute)
            .arg("true"),
    );
    assert_fails(
        &refused,
        125,
        &["mute: defines no malloc: name an allocator's library"],
    );
}

#[test]
fn wrong_usage() {
    for (words, help) in [
        (&["fly"][..], "larder --help"),
        (&["run"], "larder run --help"),
        (&["report", "x", "--top", "many"], "larder report --help"),
        (&["record", "-o"], "larder record --help"),
        (&[], "larder --help"),
    ] {
        assert_fails(&output(larder().args(words)), 125, &[help]);
    }
}

#[test]
fn an_unknown_option_is_not_taken_for_the_command() {
    for (words, option) in [
        (&["run", "--bogus"][..], "--bogus"),
        (&["run", "-x", "ls"], "-x"),
        (&["record", "--outputt", "x", "--", "./n"], "--outputt"),
    ] {
        assert_fails(
            &output(larder().args(words)),
            125,
            &[
                &format!("unexpected argument '{option}' found"),
                &format!("use '-- {option}'"),
            ],
        );
    }
    let refused = output(larder().args(["run", "--", "--bogus"]));
    assert_fails(&refused, 127, &["--bogus: command not found"]);
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let refused = output(larder().arg("--help").stdout(full.unwrap()));
    assert_fails(&refused, 125, &["no space left", "stdout"]);
}

#[test]
fn places_where_no_trace_can_be_made() {
    let directory = temporary();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let record = |place: &Path| output(larder().arg("record").arg("-o").arg(place).arg("true"));
    let there = directory.path().join("there");
    fs::create_dir(&there).unwrap();
    assert_fails(&record(&there), 125, &["exists already", "-o"]);
    let below = directory.path().join("gone/trace");
    assert_fails(&record(&below), 125, &["parent directory does not exist"]);
    let refused = record(Path::new("/proc/x"));
    assert_fails(&refused, 125, &["/proc/x", "name a writable place with -o"]);
    assert!(!stderr(&refused).contains("parent"), "{}", stderr(&refused));
    // The tool and its libraries must be in reach of a user without rights.
    let reach = temporary();
    fs::set_permissions(reach.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = reach.path().join("larder");
    copy_program(env!("CARGO_BIN_EXE_larder"), &tool);
    for name in ["liblarder.so", "liblarder_record.so"] {
        fs::copy(library_directory().join(name), reach.path().join(name)).unwrap();
    }
    let sealed = directory.path().join("sealed");
    fs::create_dir(&sealed).unwrap();
    fs::set_permissions(&sealed, fs::Permissions::from_mode(0o555)).unwrap();
    let refused = output(
        without_rights(&tool)
            .env("LARDER_LIB", reach.path())
            .arg("record")
            .arg("-o")
            .arg(sealed.join("trace"))
            .arg("true"),
    );
    assert_fails(
        &refused,
        125,
        &["permission denied", "name a writable place with -o"],
    );
}
