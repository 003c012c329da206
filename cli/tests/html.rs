//! `larder html` and `larder timeline`: the page in a real browser, hostile names, sizes.

use std::fs;
use std::process::Command;

use crate::common::browser::Browser;
use crate::common::written::Written;
use crate::common::*;
use crate::explore::{FUNCTIONS, Reader, line_of_text, page, recorded};
use serde_json::json;

#[test]
fn an_address_with_a_sorting_and_a_filter_opens_so() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(
        &page,
        "#tab=sites&sort=bytes&order=up&filter=m&measure=1&site=0",
    );
    assert_eq!(browser.value(FUNCTIONS), json!(["middle", "many", "large"]));
    assert_eq!(browser.value("document.querySelector('select').value"), "1");
    assert!(browser.text("aside").contains("page.c"));
    let hash = "#tab=__proto__&sort=__proto__&measure=99&filter=%00&site=-1&thread=1&from=9&to=1";
    let mut browser = Browser::open(&page, hash);
    assert_eq!(browser.text("nav [aria-selected=true]"), "Summary");
    browser.open("Sites");
    assert_eq!(browser.value(FUNCTIONS), json!([]));
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

/// The texts of a table's cells, row by row: the name, and the figures.
fn table(browser: &mut Browser, id: &str) -> serde_json::Value {
    browser.value(&format!(
        "[...document.querySelectorAll('#{id} tbody tr')].map(row => [...row.cells].map(cell => (cell.querySelector('button') || cell).textContent))"
    ))
}

const MISSING: &str =
    "['copies', 'syscalls', 'cpu', 'threads'].filter(id => !document.getElementById(id))";
const TITLES: &str =
    "[...document.querySelectorAll('select option')].slice(6).map(option => option.textContent)";

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
    let mut browser = Browser::open(&page, "#tab=copies&measure=6");
    assert_eq!(browser.value(MISSING), json!(["cpu", "threads"]));
    let expected = json!([
        ["memcpy by pack", "75.0 %", "3,000", "30", "100 B"],
        ["memset by fill", "25.0 %", "1,000", "10", "100 B"],
    ]);
    assert_eq!(table(&mut browser, "copies"), expected);
    browser.open("System calls");
    let calls = table(&mut browser, "syscalls");
    let calls = calls.as_array().expect("rows");
    let without_time: Vec<_> = calls[..2]
        .iter()
        .map(|row| json!([row[2], row[4], row[5], row[0]]))
        .collect();
    let expected = [
        json!(["7", "0", "7", "lseek by seek"]),
        json!(["3", "30", "0", "write by send"]),
    ];
    assert_eq!(without_time, expected);
    let needless = browser.value(
        "[...document.querySelectorAll('#syscalls h3')].map(title => {
           const all = [...title.parentNode.querySelectorAll('h3, tbody tr')];
           const row = all[all.indexOf(title) + 1];
           return [title.textContent, row.cells[2].textContent, row.querySelector('button').textContent];
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
    browser.open("Copies");
    browser.click("#copies", "memcpy by pack");
    let line = line_of_text(CALLS, "APART void pack");
    let stack = browser.text("aside .frames");
    assert!(
        stack.contains(&format!("calls.c:{line}")) && stack.contains("main"),
        "{stack}"
    );
    let titles = json!(["bytes copied", "time within system calls"]);
    assert_eq!(browser.value(TITLES), titles);
    browser.click("aside", "→ Flame graph");
    let text = browser.text("#flame p");
    assert!(text.starts_with("4,000 bytes copied; frames"), "{text}");
    let lit = "document.querySelector('#flame [aria-selected]').textContent";
    assert_eq!(browser.value(lit), "pack");
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
    let mut browser = Browser::open(&page, "#tab=cpu&measure=7");
    assert_eq!(browser.value(MISSING), json!(["syscalls", "threads"]));
    let expected = json!([
        ["first", "75.0 %", "75.0 %", "30.0 ms", "30"],
        ["second", "25.0 %", "25.0 %", "10.0 ms", "10"],
        ["main", "0.0 %", "100.0 %", "0", "0"],
    ]);
    assert_eq!(table(&mut browser, "cpu"), expected);
    let notes = browser.text("#cpu");
    assert!(
        notes.contains("3 functions, 40.0 ms in 40 samples"),
        "{notes}"
    );
    browser.click("#cpu", "first");
    let chosen = browser.text("aside");
    assert!(chosen.contains("100.0 %main"), "{chosen}");
    browser.open("Copies");
    let notes = browser.text("#copies");
    assert!(
        notes.contains("Estimated from samples, one in 2.0 KiB on average."),
        "{notes}"
    );
    let titles = json!(["bytes copied", "processor time"]);
    assert_eq!(browser.value(TITLES), titles);
    browser.open("Flame graph");
    let text = browser.text("#flame p");
    assert!(text.starts_with("40.0 ms processor time; frames"), "{text}");
    browser.measure(6);
    let text = browser.text("#flame p");
    assert!(text.contains(" bytes copied; frames"), "{text}");
    assert_eq!(browser.value("location.hash.includes('measure=6')"), true);
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn a_trace_of_allocations_alone_has_no_other_tables() {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "#measure=6");
    let missing = json!(["copies", "syscalls", "cpu", "threads"]);
    assert_eq!(browser.value(MISSING), missing);
    assert_eq!(browser.value(TITLES), json!([]));
    let measure = browser.value("document.querySelector('select').value");
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
    let mut browser = Browser::open(&page, "#tab=sites");
    let rows = "document.querySelectorAll('#sites tr.site').length";
    assert_eq!(browser.value(rows), 25);
    browser.value("document.querySelector('#sites .boxed').click()");
    // One call each is no share of anything, but of the 32 tiny blocks; and ten are in the timeline.
    assert_eq!(browser.value(rows), 42);
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

/// What a line of a list may take, and the heading, on a telephone.
#[test]
fn long_paths_and_commands_are_cut_where_they_would_fill_a_narrow_screen() {
    let directory = temporary();
    let deep = directory
        .path()
        .join(["a_folder_with_a_long_name"; 6].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let source = "#include <stdlib.h>\n#include <string.h>\nint main(void) { for (int i = 0; i < 5000; i++) { char *text = malloc(50); memset(text, i, 50); free(text); } return 0; }\n";
    let program = compile(&deep, "deep.c", source, &["-g", "-O1", "-fno-builtin"]);
    let trace = record(
        directory.path(),
        &program,
        &["one", "argument"],
        &["--no-larder"],
    );
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "");
    browser.show(420, "light");
    let heading = "[document.querySelector('h1')].map(h => [h.textContent, h.scrollHeight <= h.clientHeight])[0]";
    assert_eq!(browser.value(heading), json!(["deep one argument", true]));
    for view in ["Summary", "Findings", "Sites"] {
        browser.open(view);
        let lines = "Math.max(...[...document.querySelectorAll('.place, .finding h3')].map(line => line.getClientRects().length))";
        let heights = "Math.max(...[...document.querySelectorAll('.finding h3')].map(title => title.clientHeight), 0)";
        let (lines, height) = (
            browser.value(lines).as_f64(),
            browser.value(heights).as_f64(),
        );
        assert!(
            lines <= Some(3.0) && height <= Some(100.0),
            "{view}: {lines:?} {height:?}"
        );
        assert!(browser.text("main").contains("/deep.c:3"), "{view}");
    }
    browser.value("document.querySelector('.site').click()");
    let path = browser.text("aside .place");
    assert!(
        path.ends_with(&format!(
            "{}/deep.c:3",
            ["a_folder_with_a_long_name"; 6].join("/")
        )),
        "{path}"
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}
