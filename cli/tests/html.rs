//! `larder html` and `larder timeline`: the page in a real browser, hostile names, sizes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::browser::Browser;
use crate::common::written::Written;
use crate::common::*;
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
        "Free on the thread that allocated: produce",
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

/// The texts of a table's cells, row by row, up to the place.
fn table(browser: &mut Browser, id: &str) -> serde_json::Value {
    browser.value(&format!(
        "[...document.querySelectorAll('#{id} tbody tr')].map(row => [...row.cells].slice(0, -1).map(cell => cell.textContent))"
    ))
}

const HIDDEN: &str =
    "['copies', 'syscalls', 'cpu'].filter(id => document.getElementById(id).hidden)";
const TITLES: &str = "[...document.querySelectorAll('#flame select option')].slice(4).map(option => option.textContent)";

const CALLS: &str = r#"
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#define APART __attribute__((noinline)) static
static char from[4096], to[4096];
static volatile size_t none = 0;
APART void pack(void) { for (int i = 0; i < 30; i++) memcpy(to, from, 100 + none); }
APART void fill(void) { for (int i = 0; i < 10; i++) memset(to, 1, 100 + none); }
APART int seek(int fd) { int failed = 0; for (int i = 0; i < 7; i++) failed += lseek(fd, 0, SEEK_SET) < 0; return failed; }
APART void send(int fd) { for (int i = 0; i < 3; i++) if (write(fd, to, 10) != 10) _exit(1); }
APART void wake(void) { for (int i = 0; i < 2; i++) if (syscall(SYS_futex, to, FUTEX_WAKE_PRIVATE, 1) != 0) _exit(1); }
int main(void) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    pack(); fill(); send(ends[1]); wake();
    return seek(ends[0]) == 7 ? 0 : 2;
}
"#;

#[test]
fn copies_and_system_calls_have_tables_and_a_flame_graph() {
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin"];
    let program = compile(directory.path(), "calls.c", CALLS, &flags);
    let options = ["--no-larder", "--copies", "--syscalls"];
    let trace = record(directory.path(), &program, &[], &options);
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "#measure=4");
    assert_eq!(browser.value(HIDDEN), json!(["cpu"]));
    let expected = json!([
        ["75.0 %", "3,000", "30", "100 B", "memcpy by pack"],
        ["25.0 %", "1,000", "10", "100 B", "memset by fill"],
    ]);
    assert_eq!(table(&mut browser, "copies"), expected);
    let calls = table(&mut browser, "syscalls");
    let calls: Vec<_> = calls.as_array().expect("rows").iter().take(2).collect();
    let without_time: Vec<_> = calls
        .iter()
        .map(|row| json!([row[1], row[3], row[4], row[5]]))
        .collect();
    let expected = [
        json!(["7", "0", "7", "lseek by seek"]),
        json!(["3", "30", "0", "write by send"]),
    ];
    assert_eq!(without_time, expected);
    let needless = browser.value(
        "[...document.querySelectorAll('#syscalls h3')].map(title => {
           const row = [...title.parentNode.querySelectorAll('h3, tbody tr')];
           const cells = [...row[row.indexOf(title) + 1].cells].map(cell => cell.textContent);
           return [title.textContent, cells[1], cells[4]];
         })",
    );
    let expected = json!([
        [
            "Callers of tiny ones, of 0 to 16 bytes",
            "3",
            "write by send"
        ],
        ["Callers of failed ones", "7", "lseek by seek"],
        [
            "Callers of futex, which waits for another thread or wakes one",
            "2",
            "futex by wake"
        ],
    ]);
    assert_eq!(needless, expected);
    browser.value("document.querySelector('#copies tr.site').click()");
    let stack = browser.value("document.querySelector('#copies .frames').textContent");
    let line = line_of_text(CALLS, "APART void pack");
    let stack = stack.as_str().expect("a stack");
    assert!(
        stack.contains(&format!("calls.c:{line}")) && stack.contains("main"),
        "{stack}"
    );
    let titles = json!(["bytes copied", "time within system calls"]);
    assert_eq!(browser.value(TITLES), titles);
    let text = browser.value("document.querySelector('#flame .tools .soft').textContent");
    let text = text.as_str().expect("a text");
    assert!(text.starts_with("4,000 bytes copied; frames"), "{text}");
    let width = "[...document.querySelectorAll('#flame .graph div')].find(box => box.textContent === 'pack').style.width";
    assert_eq!(browser.value(width), "75%");
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn processor_time_has_a_table_of_functions_and_samples_say_so() {
    let directory = temporary();
    let trace = Written::new(directory.path(), "written");
    let trace = trace.samples(1, 30).samples(2, 10).copies(1, 5, 2000);
    let page = page(directory.path(), &trace.done());
    let mut browser = Browser::open(&page, "#measure=5");
    assert_eq!(browser.value(HIDDEN), json!(["syscalls"]));
    let expected = json!([
        ["75.0 %", "75.0 %", "30.0 ms", "30", "first"],
        ["25.0 %", "25.0 %", "10.0 ms", "10", "second"],
        ["0.0 %", "100.0 %", "0", "0", "main"],
    ]);
    assert_eq!(table(&mut browser, "cpu"), expected);
    let note = browser.value("document.querySelector('#cpu p').textContent");
    assert_eq!(note, "3 functions, 40.0 ms in 40 samples");
    let note = browser.value("document.querySelector('#copies p:nth-of-type(2)').textContent");
    assert_eq!(note, "Estimated from samples, one in 2.0 KiB on average.");
    let titles = json!(["bytes copied", "processor time"]);
    assert_eq!(browser.value(TITLES), titles);
    let text = browser.value("document.querySelector('#flame .tools .soft').textContent");
    let text = text.as_str().expect("a text");
    assert!(text.starts_with("40.0 ms processor time; frames"), "{text}");
    browser.value("{ const measure = document.querySelector('#flame select'); measure.value = 4; measure.dispatchEvent(new Event('change')); }");
    let text = browser.value("document.querySelector('#flame .tools .soft').textContent");
    assert!(
        text.as_str()
            .is_some_and(|text| text.contains(" bytes copied; frames")),
        "{text}"
    );
    assert_eq!(browser.value("location.hash.includes('measure=4')"), true);
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn a_trace_of_allocations_alone_has_no_other_tables() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "#measure=4");
    assert_eq!(browser.value(HIDDEN), json!(["copies", "syscalls", "cpu"]));
    assert_eq!(browser.value(TITLES), json!([]));
    let measure = browser.value("document.querySelector('#flame select').value");
    assert_eq!(measure, "0");
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
