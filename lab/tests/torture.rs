//! `larder torture`: clean on Larder, a fault on a malloc that is broken on purpose.

use std::path::Path;
use std::process::Command;

use crate::common::*;

/// A malloc over the C library's, with what a test defines in place of some functions.
const BROKEN: &str = r#"
    #include <errno.h>
    #include <stddef.h>
    #include <stdatomic.h>
    #include <string.h>
    #include <unistd.h>
    extern void *__libc_malloc(size_t);
    extern void *__libc_calloc(size_t, size_t);
    extern void *__libc_realloc(void *, size_t);
    extern void __libc_free(void *);
    static atomic_int calls;
    static int strikes(void) { return atomic_fetch_add(&calls, 1) % 2000 == 1999; }
    #ifdef DIRTY_CALLOC
    void *calloc(size_t n, size_t size) {
        char *p = __libc_calloc(n, size);
        if (p && n * size && strikes()) p[n * size - 1] = 1;
        return p;
    }
    #endif
    #ifdef EXITS
    void *malloc(size_t size) { if (strikes()) _exit(66); return __libc_malloc(size); }
    #else
    void *malloc(size_t size) { return __libc_malloc(size); }
    #endif
    #ifdef CHANGED_ERRNO
    void free(void *p) { __libc_free(p); if (strikes()) errno = 5; }
    #else
    void free(void *p) { __libc_free(p); }
    #endif
    #ifndef DIRTY_CALLOC
    void *calloc(size_t n, size_t size) { return __libc_calloc(n, size); }
    #endif
    void *realloc(void *p, size_t size) { return __libc_realloc(p, size); }
"#;

fn torture(options: &[&str]) -> Command {
    let program = library_directory().join("../libexec/larder");
    assert!(
        program.join("larder-torture").is_file(),
        "larder-torture is not in {}: run `make build`, or set LARDER_OUT to a staged tree",
        program.display()
    );
    let mut command = larder();
    command.env("LARDER_LIBEXEC", program);
    command.args(["torture", "--threads", "2", "--seed", "1999"]);
    command.args(options);
    command
}

fn broken(directory: &Path, bug: &str) -> String {
    let library = compile(
        directory,
        "broken.c",
        BROKEN,
        &["-shared", "-fPIC", "-fno-builtin", &format!("-D{bug}")],
    );
    library.to_str().expect("UTF-8").to_owned()
}

#[test]
fn larders_own_malloc_is_clean() {
    let ran = output(&mut torture(&["--seconds", "1"]));
    assert_success(&ran);
    let text = stdout(&ran);
    assert!(
        text.starts_with("malloc: ") && text.contains("/liblarder.so; seed 0x7cf\n"),
        "{text}"
    );
    assert!(
        text.contains("\nclean: ") && text.contains(" fork"),
        "{text}"
    );
    assert_eq!(stderr(&ran), "");
}

#[test]
fn the_c_librarys_malloc_is_clean_and_reported_in_json() {
    let ran = output(&mut torture(&["--no-larder", "--seconds", "1", "--json"]));
    assert_success(&ran);
    let result: serde_json::Value = serde_json::from_str(&stdout(&ran)).expect("JSON");
    assert!(
        result["clean"]["operations"].as_u64().unwrap() > 1000,
        "{result}"
    );
    assert_eq!(result["start"]["seed"], "0x7cf");
}

#[test]
fn a_dirty_calloc_is_found_and_can_be_repeated() {
    let directory = temporary();
    let library = broken(directory.path(), "DIRTY_CALLOC");
    let ran = output(&mut torture(&["--lib", &library, "--seconds", "60"]));
    let text = stdout(&ran);
    assert_eq!(code(&ran), 1, "{text}");
    assert!(
        text.contains("\nfault: dirty-calloc: the byte at offset "),
        "{text}"
    );
    assert!(text.contains("\n  in      calloc, size "), "{text}");
    let repeat = format!("\n  repeat  larder torture --lib {library} --threads 2 --seed 0x7cf ");
    assert!(text.contains(&repeat), "{text}");
}

#[test]
fn a_kind_of_fault_can_be_ignored() {
    let directory = temporary();
    let library = broken(directory.path(), "CHANGED_ERRNO");
    let options = ["--lib", &library, "--seconds", "1"];
    let ran = output(&mut torture(&options));
    assert_eq!(code(&ran), 1, "{}", stdout(&ran));
    assert!(
        stdout(&ran).contains("fault: changed-errno: "),
        "{}",
        stdout(&ran)
    );
    assert_success(&output(
        torture(&options).args(["--ignore", "changed-errno"]),
    ));
}

#[test]
fn an_end_without_a_word_is_a_crash() {
    let directory = temporary();
    let library = broken(directory.path(), "EXITS");
    let ran = output(&mut torture(&[
        "--lib",
        &library,
        "--no-forks",
        "--seconds",
        "60",
    ]));
    assert_eq!(code(&ran), 1, "{}", stdout(&ran));
    assert!(
        stdout(&ran).contains("fault: crash: the torture program ended with exit code 66"),
        "{}",
        stdout(&ran)
    );
}

#[test]
fn wrong_use_is_the_tools_failure() {
    for (options, words) in [
        (&["--lib", "/no/such.so"][..], &["/no/such.so"][..]),
        (&["--lib", "/bin/true"], &["/bin/true"]),
        (&["--program", "/no/such"], &["/no/such"]),
        (&["--threads", "0"], &["--threads"]),
        (&["--seed", "bananas"], &["--seed"]),
    ] {
        let ran = output(&mut torture(options));
        assert!(
            [125, 127].contains(&code(&ran)),
            "{options:?}: {}",
            stderr(&ran)
        );
        assert_fails(&ran, code(&ran), words);
    }
}

#[test]
fn a_missing_torture_program_is_reported() {
    let ran = output(larder().args(["torture"]).env("LARDER_LIBEXEC", "/nowhere"));
    assert_fails(&ran, 125, &["larder-torture", "/nowhere", "make build"]);
}
