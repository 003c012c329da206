//! `larder html` and `larder timeline`: the page in a real browser, hostile names, sizes.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::browser::Browser;
use common::*;
use serde_json::json;

const SOURCE: &str = r#"
#include <stdlib.h>
#define APART __attribute__((noinline)) static
static void *volatile kept[3];
APART void many(void) { kept[0] = malloc(16); free(kept[0]); }
APART void large(void) { kept[1] = malloc(100000); }
APART void middle(int i) { kept[2] = calloc(1, 1000); if (i) free(kept[2]); }
int main(void) {
    for (int i = 0; i < 5000; i++) many();
    for (int i = 0; i < 30; i++) middle(i);
    large();
    return 0;
}
"#;

fn page(directory: &Path, trace: &Path) -> PathBuf {
    let page = directory.join("page.html");
    let made = output(larder().arg("html").arg(trace).arg("-o").arg(&page));
    assert_success(&made);
    assert_eq!(stdout(&made), "");
    page
}

fn recorded(directory: &Path) -> PathBuf {
    let program = compile(directory, "page.c", SOURCE, &["-g", "-O1"]);
    record(directory, &program, &["an argument"], &["--no-larder"])
}

/// The functions in the table, from top to bottom.
const FUNCTIONS: &str =
    "[...document.querySelectorAll('#sites tr.site')].map(row => row.cells[6].textContent)";

#[test]
fn the_page_sorts_filters_and_unfolds_in_a_browser() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "");
    let heading = browser.value("document.querySelector('h1').textContent");
    assert!(
        heading.as_str().unwrap().ends_with("page an argument"),
        "{heading}"
    );
    let findings = browser.value("document.querySelector('#findings').textContent");
    let findings = findings.as_str().expect("the section");
    assert!(findings.contains("Use the stack: many"), "{findings}");
    assert_eq!(browser.value(FUNCTIONS), json!(["many", "middle", "large"]));
    let click = |key: &str| {
        format!(
            "[...document.querySelectorAll('#sites th button')].find(b => b.textContent === '{key}').click()"
        )
    };
    browser.value(&click("bytes"));
    assert_eq!(browser.value(FUNCTIONS), json!(["large", "many", "middle"]));
    browser.value(&click("bytes"));
    assert_eq!(browser.value(FUNCTIONS), json!(["middle", "many", "large"]));
    browser.value(&click("function"));
    assert_eq!(browser.value(FUNCTIONS), json!(["large", "many", "middle"]));
    assert_eq!(browser.value("location.hash"), "#sort=name&order=up");
    let figures = "[...document.querySelector('#sites tr.site').cells].slice(1, 6).map(cell => cell.textContent)";
    assert_eq!(
        browser.value(figures),
        json!(["1", "100,000", "100,000", "0", "100,000"])
    );
    let shown = "[...document.querySelectorAll('#flame .graph .hit')].map(box => box.textContent)";
    browser.value("{ const box = document.querySelector('#sites input'); box.value = 'MANY page.c'; box.dispatchEvent(new Event('input')); }");
    assert_eq!(browser.value(FUNCTIONS), json!(["many"]));
    browser.value("{ const box = document.querySelector('#sites input'); box.value = 'many'; box.dispatchEvent(new Event('input')); }");
    assert_eq!(browser.value(shown), json!(["many"]));
    browser.value("document.querySelector('#sites tr.site').click()");
    let line = line_of_text(SOURCE, "APART void many");
    let stack = browser.value("document.querySelector('#sites .frames .at').textContent");
    assert!(
        stack.as_str().unwrap().ends_with(&format!("page.c:{line}")),
        "{stack}"
    );
    // The root and `main` are full wide; a click on a frame makes it so.
    let width = "[...document.querySelectorAll('#flame .graph div')].find(box => box.textContent === 'middle').style.width";
    assert_ne!(browser.value(width), "100%");
    browser.value("[...document.querySelectorAll('#flame .graph div')].find(box => box.textContent === 'middle').click()");
    assert_eq!(browser.value(width), "100%");
    let counters =
        "[...document.querySelectorAll('.figure')].map(row => row.textContent).join('\\n')";
    let counters = browser.value(counters);
    assert!(
        counters.as_str().unwrap().contains("Allocations5,031"),
        "{counters}"
    );
    assert!(
        browser
            .value("document.querySelectorAll('svg.timeline path').length")
            .as_u64()
            >= Some(2)
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn a_program_of_several_threads_has_all_of_them_on_its_page() {
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
#define APART __attribute__((noinline)) static
static void *volatile kept[3][500];
APART void *produce(void *row) {
    for (int i = 0; i < 500; i++) ((void *volatile *)row)[i] = malloc(2000);
    return NULL;
}
APART void consume(void) {
    for (int i = 0; i < 1500; i++) free(kept[i / 500][i % 500]);
}
int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, produce, (void *)kept[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    consume();
    return 0;
}
"#;
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin", "-pthread"];
    let program = compile(directory.path(), "threads.c", source, &flags);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "");
    let mut text = |of: &str| {
        let text = browser.value(&format!("document.querySelector('{of}').textContent"));
        text.as_str().unwrap_or_else(|| panic!("{of}")).to_owned()
    };
    assert!(text("#head").contains("4 threads"), "{}", text("#head"));
    let findings = text("#findings");
    for part in [
        "Free where it was made: produce",
        "1,500",
        "1.00 calls an iteration of the loop in produce",
        "1,500 iterations or more",
    ] {
        assert!(findings.contains(part), "{part}: {findings}");
    }
    // What lived at the peak: all three rows, and what the threads themselves needed.
    let peak = report_json(&trace, &[])["counters"]["peak_bytes"].clone();
    assert!(peak.as_u64().unwrap() >= 3_000_000, "{peak}");
    let timeline = text("svg.timeline");
    assert!(
        timeline.contains("produce, ") && timeline.contains("up to 2.9 MiB"),
        "{timeline}"
    );
    let figures = "[...document.querySelector('#sites tr.site').cells].slice(1, 6).map(cell => cell.textContent)";
    assert_eq!(
        browser.value(figures),
        json!(["1,500", "3,000,000", "3,000,000", "0", "0"])
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

fn line_of_text(source: &str, text: &str) -> usize {
    source
        .lines()
        .position(|line| line.contains(text))
        .expect("the line")
        + 1
}

#[test]
fn an_address_with_a_sorting_and_a_filter_opens_so() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "#sort=bytes&order=up&filter=m&measure=1");
    assert_eq!(browser.value(FUNCTIONS), json!(["middle", "many", "large"]));
    assert_eq!(
        browser.value("document.querySelector('#flame select').value"),
        "1"
    );
    let mut browser = Browser::open(&page, "#sort=__proto__&measure=99&filter=%00");
    assert_eq!(browser.value(FUNCTIONS), json!([]));
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

/// Names of functions, files and arguments that try to be markup, script, or a terminal's commands.
#[test]
fn hostile_names_are_shown_and_do_nothing() {
    const EVIL: &str =
        "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u{1b}[2J{{7*7}}";
    let source = "#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) void *evil(void) { return kept = malloc(77); }
#line 1 \"</script><svg onload=alert(4)>.c\"
int main(void) { evil(); kept = malloc(99); return 0; }
";
    let directory = temporary();
    for flags in [&["-g", "-O1"][..], &["-O1"]] {
        let program = compile(directory.path(), "evil.c", source, flags);
        let _ = fs::remove_dir_all(directory.path().join("test.trace"));
        // In the symbol table; debug information keeps the name.
        let renamed = Command::new("objcopy")
            .arg("--redefine-sym=evil=<img src=x onerror=alert(3)>")
            .arg(&program)
            .status();
        assert!(renamed.is_ok_and(|status| status.success()), "objcopy");
        let trace = record(directory.path(), &program, &[EVIL], &["--no-larder"]);
        let page = page(directory.path(), &trace);
        let mut browser = Browser::open(&page, "");
        let heading = browser.value("document.querySelector('h1').textContent");
        let heading = heading.as_str().unwrap();
        assert!(
            heading.contains(
                "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\x1b[2J{{7*7}}"
            ),
            "{heading}"
        );
        let text = browser.value("document.body.innerText");
        let text = text.as_str().unwrap();
        assert!(
            text.contains("evil") || text.contains("onerror=alert(3)"),
            "{text}"
        );
        assert_eq!(
            browser.value("document.querySelectorAll('img, svg[onload], script').length"),
            2
        );
        assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
        let svg = output(larder().arg("timeline").arg(&trace));
        assert_success(&svg);
        let svg = stdout(&svg);
        assert!(
            !svg.contains("<img") && !svg.contains("<script") && !svg.contains('\u{1b}'),
            "{svg}"
        );
    }
}

#[test]
fn a_page_allows_nothing_but_itself() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "");
    // What gets in regardless is not executed.
    browser.value("{ const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); }");
    browser.value("{ const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i); }");
    assert_eq!(browser.value("typeof window.ran"), "undefined");
    let evaluated = browser.value(
        "(() => { try { return Function('return 1')(); } catch (error) { return error.name; } })()",
    );
    assert_eq!(evaluated, "EvalError");
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        text.contains("default-src 'none'") && !text.contains("unsafe"),
        "{}",
        &text[..1000]
    );
    assert!(!text.contains("http:") && !text.contains("https:"));
}

#[test]
fn a_program_of_many_sites_makes_a_small_page_that_says_what_is_folded() {
    let mut source = String::from("#include <stdlib.h>\nstatic void *volatile kept;\n");
    let mut calls = String::new();
    for number in 0..3000 {
        source += &format!(
            "__attribute__((noinline)) static void f{number}(void) {{ kept = malloc({number}); }}\n"
        );
        calls += &format!("f{number}();");
    }
    source += &format!("int main(void) {{ {calls} return 0; }}\n");
    let directory = temporary();
    let program = compile(directory.path(), "many.c", &source, &["-g", "-O0"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let page = page(directory.path(), &trace);
    assert!(fs::metadata(&page).unwrap().len() < 2_000_000);
    let mut browser = Browser::open(&page, "");
    let rows = "document.querySelectorAll('#sites tr.site').length";
    assert_eq!(browser.value(rows), 25);
    browser.value("document.querySelector('#sites > button').click()");
    // One call each is no share of anything, but of the 32 tiny blocks.
    assert_eq!(browser.value(rows), 32);
    let folded = browser.value("document.querySelector('#sites .folded').textContent");
    assert!(
        folded.as_str().unwrap().contains("other sites under 0.1 %"),
        "{folded}"
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn the_timeline_alone_names_the_sites_and_the_peak() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let file = directory.path().join("live.svg");
    let made = output(larder().arg("timeline").arg(&trace).arg("-o").arg(&file));
    assert_success(&made);
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg xmlns="), "{svg}");
    let peak = report_json(&trace, &[])["counters"]["peak_bytes"]
        .as_u64()
        .unwrap();
    // calloc's first block stays.
    assert_eq!(peak, 100_000 + 1000);
    assert!(svg.contains("peak 98.6 KiB at"), "{svg}");
    assert!(
        svg.contains("large, ") && svg.contains("up to 97.7 KiB"),
        "{svg}"
    );
}

#[test]
fn what_cannot_be_made_is_reported_in_one_line() {
    let directory = temporary();
    let program = compile(
        directory.path(),
        "none.c",
        "int main(void) { return 0; }",
        &[],
    );
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let none = output(larder().arg("timeline").arg(&trace));
    assert_fails(&none, 125, &["no block was live"]);
    // The page of an empty trace is a page.
    let page = page(directory.path(), &trace);
    let browser = Browser::open(&page, "");
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
    let nowhere = output(
        larder()
            .arg("html")
            .arg(&trace)
            .args(["-o", "/proc/no/such.html"]),
    );
    assert_fails(&nowhere, 125, &["/proc/no/such.html"]);
    assert_fails(
        &output(larder().args(["html", "/nowhere"])),
        125,
        &["/nowhere"],
    );
}
