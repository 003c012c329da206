//! The page of `larder html` as a reader explores it, in a real browser: what leads where, by mouse and keyboard.

use std::path::{Path, PathBuf};

use crate::common::browser::Browser;
use crate::common::written::Written;
use crate::common::*;
use serde_json::json;
use tempfile::TempDir;

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

pub fn page(directory: &Path, trace: &Path) -> PathBuf {
    let page = directory.join("page.html");
    let made = output(larder().arg("html").arg(trace).arg("-o").arg(&page));
    assert_success(&made);
    assert_eq!(stdout(&made), "");
    page
}

pub fn recorded(directory: &Path) -> PathBuf {
    let program = compile(directory, "page.c", SOURCE, &["-g", "-O1"]);
    record(directory, &program, &["an argument"], &["--no-larder"])
}

/// The page of `SOURCE`, with this at the end of its address; the folder has to outlive the browser.
fn opened(address: &str) -> (TempDir, Browser) {
    let directory = temporary();
    let trace = recorded(directory.path());
    let page = page(directory.path(), &trace);
    let browser = Browser::open(&page, address);
    (directory, browser)
}

pub fn line_of_text(source: &str, text: &str) -> usize {
    source
        .lines()
        .position(|line| line.contains(text))
        .expect("the line")
        + 1
}

/// The functions in the table, from top to bottom.
pub const FUNCTIONS: &str =
    "[...document.querySelectorAll('#sites tr.site button')].map(name => name.textContent)";
const CHOSEN: &str =
    "[...document.querySelectorAll('#sites tr.chosen button')].map(name => name.textContent)";
/// The frames of the flame graph that are on a chosen stack, and those that were chosen.
const LIT: &str =
    "[...document.querySelectorAll('#flame .lit, #flame .at')].map(box => box.textContent)";
const AT: &str =
    "[...document.querySelectorAll('#flame [aria-selected]')].map(box => box.textContent)";
const HITS: &str = "[...document.querySelectorAll('#flame .hit')].map(box => box.textContent)";
const FOCUSED: &str = "document.activeElement.textContent";

/// What a reader does, by the elements that a reader sees.
pub trait Reader {
    /// Clicks the button within `of` that has this name.
    fn click(&mut self, of: &str, name: &str);
    fn open(&mut self, tab: &str);
    fn search(&mut self, words: &str);
    fn measure(&mut self, number: usize);
    fn text(&mut self, of: &str) -> String;
    /// The middle of an element, or a share of its width and height from the upper left.
    fn point(&mut self, of: &str, across: f64, down: f64) -> (f64, f64);
}

impl Reader for Browser {
    fn click(&mut self, of: &str, name: &str) {
        let found = self.value(&format!(
            "(() => {{
               const named = [...document.querySelectorAll('{of} button, {of} summary')].filter(button =>
                 !button.closest('[hidden]') && (button.ariaLabel || button.textContent) === '{name}');
               named[0]?.click();
               return named.length;
             }})()"
        ));
        assert!(found.as_u64() > Some(0), "no button '{name}' within {of}");
    }

    fn open(&mut self, tab: &str) {
        self.click("nav", tab);
    }

    fn search(&mut self, words: &str) {
        self.value(&format!(
            "{{ const box = document.querySelector('input[type=search]'); box.value = '{words}'; box.dispatchEvent(new Event('input')); }}"
        ));
    }

    fn measure(&mut self, number: usize) {
        self.value(&format!(
            "{{ const box = document.querySelector('select'); box.value = {number}; box.dispatchEvent(new Event('change')); }}"
        ));
    }

    fn text(&mut self, of: &str) -> String {
        let text = self.value(&format!("document.querySelector('{of}').textContent"));
        text.as_str().unwrap_or_else(|| panic!("{of}")).to_owned()
    }

    fn point(&mut self, of: &str, across: f64, down: f64) -> (f64, f64) {
        let point = self.value(&format!(
            "(() => {{ const box = document.querySelector('{of}').getBoundingClientRect();
               return [box.left + box.width * {across}, box.top + box.height * {down}]; }})()"
        ));
        let of = |index: usize| point[index].as_f64().expect("a number");
        (of(0), of(1))
    }
}

#[test]
fn a_finding_leads_to_its_site_source_stack_frames_and_area() {
    let (_directory, mut browser) = opened("");
    assert!(browser.text("h1").ends_with("page an argument"));
    let summary = browser.text("#summary");
    for part in [
        "peak98.6 KiB",
        "allocations5,031",
        "Use the stack: many",
        "saves 5,000 calls",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    assert_eq!(browser.text("aside"), "");
    let finding = "[...document.querySelectorAll('#summary .finding button')].find(b => b.textContent.startsWith('Use the stack: many')).click()";
    browser.value(finding);
    let line = line_of_text(SOURCE, "APART void many");
    let chosen = browser.text("aside");
    for part in [
        format!("page.c:{line}"),
        format!("> {line} | APART void many(void)"),
        "calls5,000 (99.4 %)".to_owned(),
        "Use the stack".to_owned(),
        "saves 5,000 calls".to_owned(),
        "100.0 %main".to_owned(),
    ] {
        assert!(chosen.contains(&part), "{part}: {chosen}");
    }
    browser.click("aside", "→ Sites");
    assert_eq!(browser.value(CHOSEN), json!(["many"]));
    browser.click("aside", "The stack with most calls");
    let stack = "[...document.querySelectorAll('aside .frames li')].map(line => line.querySelector('button').textContent)";
    assert_eq!(browser.value(stack), json!(["→ many", "main"]));
    browser.click("aside", "→ Flame graph");
    assert_eq!(browser.value(LIT), json!(["main", "many"]));
    assert_eq!(browser.value(AT), json!(["many"]));
    browser.click("aside", "→ Timeline");
    let pressed = "[...document.querySelectorAll('#timeline .legend [aria-pressed=true]')].map(b => b.textContent)";
    assert_eq!(browser.value(pressed), json!(["many"]));
    assert!(
        browser
            .text("#timeline")
            .contains("The strong part of the bars is calls of many; the bright area")
    );
    assert!(
        browser
            .value("document.querySelectorAll('#timeline .own').length")
            .as_u64()
            > Some(0)
    );
    browser.click("aside", "→ Findings");
    let marked = browser.text("#findings .finding.chosen");
    assert!(
        marked.contains("Use the stack: many") && marked.contains("cure:"),
        "{marked}"
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn a_frame_of_a_stack_leads_to_its_function_and_choosing_ends() {
    let (_directory, mut browser) = opened("#tab=sites&site=0");
    browser.click("aside", "The stack with most calls");
    browser.click("aside .frames", "main");
    let chosen = browser.text("aside");
    for part in [
        "Callees by calls99.4 %many",
        "Sites below it5,000many",
        "30middle",
    ] {
        assert!(chosen.contains(part), "{part}: {chosen}");
    }
    browser.open("Sites");
    assert_eq!(browser.value(CHOSEN), json!(["many", "middle", "large"]));
    browser.click(".chips", "Chosen: main. Choose nothing");
    assert_eq!(browser.value(CHOSEN), json!([]));
    assert_eq!(browser.text("aside"), "");
    browser.value("document.querySelector('#sites tr.site').click()");
    assert_eq!(browser.value(CHOSEN), json!(["many"]));
    browser.click("aside", "Choose nothing");
    assert_eq!(browser.value(CHOSEN), json!([]));
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn the_summary_leads_to_all_findings_a_span_and_a_site() {
    let (_directory, mut browser) = opened("");
    browser.click("#summary", "many");
    assert!(browser.text("aside").contains("page.c"));
    browser.click("#summary", "select a span");
    assert_eq!(browser.value(FOCUSED), "Timeline");
    assert_eq!(
        browser.value("document.getElementById('summary').hidden"),
        true
    );
    // The tabs by keyboard.
    browser.press("ArrowLeft");
    assert_eq!(browser.value(FOCUSED), "Flame graph");
    browser.press("Home");
    assert_eq!(browser.value(FOCUSED), "Summary");
    browser.press("End");
    assert_eq!(browser.value(FOCUSED), "Recording");
    browser.press("ArrowLeft");
    assert_eq!(browser.value(FOCUSED), "Sizes");
    let sizes = browser.text("#sizes");
    for part in ["16–315,00080,000", "512–10233030,000"] {
        assert!(sizes.contains(part), "{part}: {sizes}");
    }
    let open = "document.querySelectorAll('section:not([hidden])').length";
    assert_eq!(browser.value(open), 1);
    assert_eq!(
        browser.value("document.querySelectorAll('nav [tabindex=\"0\"]').length"),
        1
    );
    browser.open("Recording");
    let counters = browser.text("#recording");
    assert!(counters.contains("Allocations5,031"), "{counters}");
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn sites_are_sorted_and_searched() {
    let (_directory, mut browser) = opened("#tab=sites");
    assert_eq!(browser.value(FUNCTIONS), json!(["many", "middle", "large"]));
    browser.click("#sites thead", "bytes");
    assert_eq!(browser.value(FUNCTIONS), json!(["large", "many", "middle"]));
    browser.click("#sites thead", "bytes");
    assert_eq!(browser.value(FUNCTIONS), json!(["middle", "many", "large"]));
    // Callers and callees are by the same.
    assert_eq!(browser.value("document.querySelector('select').value"), "1");
    browser.click("#sites thead", "function, line");
    assert_eq!(browser.value(FUNCTIONS), json!(["large", "many", "middle"]));
    assert_eq!(
        browser.value("location.hash"),
        "#tab=sites&sort=name&order=up"
    );
    let figures = "[...document.querySelector('#sites tr.site').cells].slice(2).map(cell => cell.textContent)";
    assert_eq!(
        browser.value(figures),
        json!(["1", "100,000", "100,000", "100,000", "0", "0"])
    );
    browser.search("MANY page.c");
    assert_eq!(browser.value(FUNCTIONS), json!(["many"]));
    browser.open("Findings");
    let found = "[...document.querySelectorAll('#findings h3')].map(title => title.textContent.split(' ')[3])";
    assert_eq!(browser.value(found), json!(["many"]));
    browser.search("no such words");
    assert_eq!(browser.value(found), json!([]));
    browser.open("Sites");
    // `/` leads to the search.
    browser.value("document.activeElement.blur()");
    browser.press("/");
    assert_eq!(browser.value("document.activeElement.type"), "search");
    browser.measure(5);
    browser.search("");
    assert_eq!(
        browser.value("location.hash"),
        "#tab=sites&sort=tiny&order=up&measure=5"
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn the_flame_graph_is_read_by_mouse_and_by_keyboard() {
    let (_directory, mut browser) = opened("#tab=flame");
    let width = "[...document.querySelectorAll('#flame .graph div')].find(box => box.textContent === 'middle').style.width";
    assert_ne!(browser.value(width), "100%");
    browser.value("[...document.querySelectorAll('#flame .graph div')].find(box => box.textContent === 'middle').click()");
    assert_eq!(browser.value(width), "100%");
    assert!(browser.text("aside").contains("calls30 (0.6 %)"));
    assert_eq!(browser.value(FOCUSED), "middle");
    browser.click("#flame", "whole");
    assert_ne!(browser.value(width), "100%");
    browser.value("document.querySelector('#flame [data-focus]').focus()");
    let mut keys = Vec::new();
    for key in [
        "ArrowDown",
        "ArrowDown",
        "ArrowRight",
        "ArrowLeft",
        "ArrowUp",
        "Home",
    ] {
        browser.press(key);
        keys.push(browser.value(FOCUSED));
    }
    assert_eq!(
        json!(keys),
        json!(["main", "many", "middle", "many", "main", "all"])
    );
    // The whole name, the line and the figures of the one that the keyboard is at.
    browser.press("ArrowDown");
    browser.press("ArrowDown");
    let line = line_of_text(SOURCE, "APART void many");
    let about = browser.text("#flame .hover");
    assert!(
        about.starts_with("many\n") && about.contains(&format!("page.c:{line}")),
        "{about}"
    );
    assert!(about.ends_with("5,000 calls, 99.4 %"), "{about}");
    assert_eq!(browser.value("document.activeElement.title"), json!(about));
    browser.press("Enter");
    assert_eq!(
        browser.value(CHOSEN),
        json!([]),
        "the table is drawn when it is opened"
    );
    assert!(browser.text("aside").contains("calls5,000"));
    assert_eq!(browser.value("document.activeElement.style.width"), "100%");
    browser.press("Escape");
    assert_eq!(browser.value(FOCUSED), "all");
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn the_flame_graph_is_inverted_and_searched() {
    let (_directory, mut browser) = opened("#tab=flame");
    browser.click("#flame", "inverted");
    let level = |name: &str| {
        format!(
            "[...document.querySelectorAll('#flame .graph div')].filter(box => box.textContent === '{name}').map(box => box.ariaLevel)"
        )
    };
    assert_eq!(browser.value(&level("main")), json!(["3", "3"]));
    assert_eq!(browser.value(&level("many")), json!(["2"]));
    browser.search("Ma");
    assert_eq!(browser.value(HITS), json!(["many", "main", "main"]));
    browser.click("#flame", "next match");
    assert_eq!(browser.value(FOCUSED), "many");
    browser.click("#flame", "next match");
    assert_eq!(browser.value(FOCUSED), "main");
    assert!(browser.text("#flame p").contains("3 frames match"));
    browser.measure(2);
    assert!(
        browser
            .text("#flame p")
            .starts_with("101,000 bytes at the peak")
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

/// A template, and a library that calls back.
const TEMPLATES: &str = r#"
#include <stdlib.h>
extern "C" void *volatile kept = nullptr;
template <typename T> __attribute__((noinline)) void hold(T) { kept = malloc(sizeof(T)); }
static int compare(const void *a, const void *) { hold(a); return 0; }
struct Less { bool operator<(int) const __attribute__((noinline)) { hold(1.5); return false; } };
template <typename T> __attribute__((noinline)) int operator+(Less, T) { kept = malloc(1); return 0; }
int main() {
    int row[2] = {1, 2};
    qsort(row, 2, sizeof *row, compare);
    return (Less() < 1) + (Less() + 2.5);
}
"#;

#[test]
fn arguments_of_templates_and_libraries_are_folded() {
    let directory = temporary();
    let program = compile(directory.path(), "fold.cc", TEMPLATES, &["-g", "-O1"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "#tab=flame");
    let labels = "[...document.querySelectorAll('#flame .graph div')].map(box => box.textContent)";
    let find = |browser: &mut Browser, part: &str| -> Vec<String> {
        let labels = browser.value(labels);
        let all = labels.as_array().expect("labels").iter();
        all.filter_map(|label| Some(label.as_str()?.to_owned()))
            .filter(|label| label.contains(part))
            .collect()
    };
    assert_eq!(
        find(&mut browser, "hold<"),
        ["hold<void const*>", "hold<double>"]
    );
    let library = find(&mut browser, "sort");
    assert!(!library.is_empty());
    browser.click("#flame", "fold templates");
    assert_eq!(find(&mut browser, "hold<"), ["hold<…>", "hold<…>"]);
    assert_eq!(
        find(&mut browser, "operator"),
        ["Less::operator<", "operator+<…>"]
    );
    browser.click("#flame", "fold libraries");
    assert_eq!(find(&mut browser, "[libc"), ["[libc.so.6]"]);
    assert_eq!(find(&mut browser, "sort"), [""; 0]);
    assert_eq!(find(&mut browser, "compare"), ["compare"]);
    browser.click("#flame", "fold libraries");
    assert_eq!(find(&mut browser, "sort"), library);
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

/// Two functions, one after the other.
fn in_turn(directory: &Path) -> PathBuf {
    let trace = Written::new(directory, "turns");
    let trace = trace.allocations_of(1, 400).allocations_of(2, 100);
    page(directory, &trace.done())
}

const SPAN: &str = "(() => { const given = new URLSearchParams(location.hash.slice(1)); return [given.get('from'), given.get('to')]; })()";

#[test]
fn a_span_of_the_timeline_is_what_the_other_views_count() {
    let directory = temporary();
    let page = in_turn(directory.path());
    let mut browser = Browser::open(&page, "#tab=timeline");
    browser.show(1400, "light");
    // The last tenth, when `second` alone allocates.
    let (from, to) = (
        browser.point("#timeline .chart svg", 0.91, 0.5),
        browser.point("#timeline .chart svg", 0.99, 0.5),
    );
    browser.drag(from, to);
    assert_eq!(
        browser.value("document.querySelectorAll('#timeline .outside').length"),
        2
    );
    browser.open("Sites");
    assert_eq!(browser.value(FUNCTIONS), json!(["second"]));
    let figures = "[...document.querySelector('#sites tr.site').cells].slice(1).map(cell => cell.textContent + (cell.className ? ' ' + cell.className : ''))";
    let figures = browser.value(figures);
    let calls: u64 = figures[1]
        .as_str()
        .and_then(|calls| calls.parse().ok())
        .expect("calls");
    assert!((30..70).contains(&calls), "{figures}");
    assert_eq!(figures[0], "100.0 %");
    assert_eq!(
        figures[2],
        json!(format!("{},{:03}", calls / 10, calls % 10 * 100)),
        "{figures}"
    );
    // What a span has no figures of is marked, and is of the whole run.
    assert_eq!(figures[4], "10,000 soft");
    assert!(
        browser
            .text("#sites p")
            .contains("The other columns are of the whole run")
    );
    browser.open("Flame graph");
    let labels = "[...document.querySelectorAll('#flame .graph div')].map(box => box.textContent)";
    assert_eq!(browser.value(labels), json!(["all", "main", "second"]));
    let caption = browser.text("#flame p");
    assert!(
        caption.starts_with(&format!("{calls} calls; only ")),
        "{caption}"
    );
    browser.measure(2);
    assert_eq!(
        browser.value(labels),
        json!(["all", "main", "first", "second"])
    );
    let caption = browser.text("#flame p");
    assert!(
        caption.contains("of the whole run: a part of it has calls and bytes alone"),
        "{caption}"
    );
    browser.open("Sizes");
    assert!(
        browser
            .text("#sizes")
            .contains("Of the whole run: sizes are not told apart")
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn a_keyboard_selects_a_span_and_a_click_the_whole_run() {
    let directory = temporary();
    let page = in_turn(directory.path());
    let mut browser = Browser::open(&page, "#tab=timeline&from=1&to=4");
    browser.click("#timeline", "whole run");
    assert_eq!(browser.value(SPAN), json!([null, null]));
    browser.value("document.querySelector('#timeline input').focus()");
    for _ in 0..3 {
        browser.press("ArrowRight");
    }
    assert_eq!(browser.value(SPAN), json!(["3", "32"]));
    let shown = browser.value("document.activeElement.nextSibling.textContent");
    assert_eq!(browser.value("document.activeElement.ariaValueText"), shown);
    browser.value("document.querySelectorAll('#timeline input')[1].focus()");
    browser.press("Home");
    for _ in 0..5 {
        browser.press("ArrowRight");
    }
    assert_eq!(browser.value(SPAN), json!(["0", "6"]));
    browser.open("Sites");
    assert_eq!(browser.value(FUNCTIONS), json!(["first"]));
    let chip = browser.value("document.querySelector('.chips button').ariaLabel");
    let chip = chip.as_str().expect("a name");
    assert!(
        chip.starts_with("Only ") && chip.ends_with(". Show the whole run"),
        "{chip}"
    );
    browser.click(".chips", chip);
    assert_eq!(browser.value(FUNCTIONS), json!(["first", "second"]));
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn a_click_on_the_timeline_chooses_the_site_below_it() {
    let directory = temporary();
    let page = in_turn(directory.path());
    let mut browser = Browser::open(&page, "#tab=timeline");
    browser.show(1400, "light");
    // At the end `first` has four fifths, from below.
    let at = browser.point("#timeline .chart svg", 0.97, 0.6);
    browser.drag(at, at);
    assert!(browser.text("aside").starts_with("first"));
    assert_eq!(
        browser.value("document.querySelectorAll('#timeline .dim').length"),
        1
    );
    assert_eq!(browser.value(SPAN), json!([null, null]));
    browser.click("#timeline .legend", "second");
    assert!(browser.text("aside").starts_with("second"));
    let own = browser.value("document.querySelectorAll('#timeline .own').length");
    assert!((1..20).contains(&own.as_u64().expect("bars")), "{own}");
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

#[test]
fn the_parts_of_a_row_add_up_to_it() {
    let source = "#include <stdlib.h>
int main(void) { for (int i = 0; i < 20000; i++) free(malloc(i % 100 + i / 500)); return 0; }
";
    let directory = temporary();
    let program = compile(directory.path(), "parts.c", source, &["-g", "-fno-builtin"]);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "");
    let sums = "rows.map(row => [0, 1, 2].map(key => row.spans.filter((_, index) => index % 3 === key).reduce((a, b) => a + b, 0)).slice(1).concat(row.weights.slice(0, 2)))";
    let bytes: u64 = (0..20000).map(|i| i % 100 + i / 500).sum();
    assert_eq!(browser.value(sums), json!([[20000, bytes, 20000, bytes]]));
    assert!(browser.value("rows[0].spans.length").as_u64() >= Some(6));
}

#[test]
fn a_deep_stack_has_both_of_its_ends() {
    let source = "#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) static void end(void) { kept = malloc(9); }
__attribute__((noinline)) static int down(int more) { if (more) return down(more - 1) + 1; end(); return 1; }
int main(void) { return down(600) != 601; }
";
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-optimize-sibling-calls"];
    let program = compile(directory.path(), "deep.c", source, &flags);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "#site=0");
    browser.click("aside", "The stack with most calls");
    let stack =
        "[...document.querySelectorAll('aside .frames button')].map(frame => frame.textContent)";
    let stack = browser.value(stack);
    let stack = stack.as_array().expect("frames");
    assert!(stack.len() <= 256, "{}", stack.len());
    assert_eq!(stack[..2], [json!("→ end"), json!("down")]);
}

const THREADS: &str = r#"
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

#[test]
fn threads_are_told_apart() {
    let directory = temporary();
    let flags = ["-g", "-O1", "-fno-builtin", "-pthread"];
    let program = compile(directory.path(), "threads.c", THREADS, &flags);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    let page = page(directory.path(), &trace);
    let mut browser = Browser::open(&page, "");
    let head = browser.text("header");
    assert!(head.contains("4 threads"), "{head}");
    browser.open("Findings");
    let findings = browser.text("#findings");
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
    browser.open("Timeline");
    let timeline = browser.text("#timeline .legend");
    assert!(
        timeline.starts_with("produce") && timeline.contains("up to 2.9 MiB"),
        "{timeline}"
    );
    browser.open("Sites");
    let figures = "[...document.querySelector('#sites tr.site').cells].slice(2).map(cell => cell.textContent)";
    assert_eq!(
        browser.value(figures),
        json!(["1,500", "3,000,000", "3,000,000", "0", "3", "0"])
    );
    browser.open("Threads");
    let rows = "[...document.querySelectorAll('#threads tbody tr')].map(row => [...row.cells].slice(1).map(cell => cell.textContent))";
    let rows = browser.value(rows);
    let of_one = json!(["500", "1,000,000", "0", "0", "0"]);
    assert_eq!(
        json!([rows[0], rows[1], rows[2]]),
        json!([of_one, of_one, of_one])
    );
    let main = rows[3].as_array().expect("the main thread");
    assert_eq!(json!(main[2..4]), json!(["1,500", "1,500"]));
    browser.value("document.querySelector('#threads tbody button').click()");
    assert_eq!(
        browser.value("document.querySelectorAll('#threads tr.chosen').length"),
        1
    );
    browser.open("Sites");
    let one = "[...document.querySelector('#sites tr.site').cells].slice(1, 4).map(cell => cell.textContent)";
    assert_eq!(browser.value(one), json!(["100.0 %", "500", "1,000,000"]));
    browser.open("Threads");
    browser.value("document.querySelector('#threads tbody button').click()");
    assert_eq!(
        browser.value("document.querySelectorAll('#threads tr.chosen').length"),
        0
    );
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}

/// The complaints of a reader without a mouse or with a reader of the screen, as texts.
const UNNAMED: &str = r#"
(() => {
  const faults = [];
  const name = (of) => (of.ariaLabel || of.textContent || document.querySelector(`label[for="${of.id}"]`)?.textContent || '').trim();
  for (const control of document.querySelectorAll('button, input, select, summary, [role=tree], [role=treeitem], [role=tablist], [role=region], [role=img], aside')) {
    if (name(control) === '') faults.push('no name: ' + control.outerHTML.slice(0, 100));
  }
  for (const panel of document.querySelectorAll('[role=tabpanel]')) {
    const tab = document.getElementById(panel.getAttribute('aria-labelledby'));
    if (tab?.role !== 'tab' || tab.getAttribute('aria-controls') !== panel.id) faults.push('no tab: ' + panel.id);
    if (panel.hidden === (tab.ariaSelected === 'true')) faults.push('not selected: ' + panel.id);
  }
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  if (new Set(ids).size < ids.length) faults.push('the same id twice');
  for (const table of document.querySelectorAll('table')) {
    if ([...table.querySelectorAll('th')].some(cell => !cell.scope)) faults.push('a heading of nothing: ' + table.outerHTML.slice(0, 80));
  }
  if (document.querySelectorAll('[tabindex]:not([tabindex="0"]):not([tabindex="-1"])').length) faults.push('an order of its own');
  if (document.querySelector('header').getBoundingClientRect().top + scrollY > 1) faults.push('a gap above');
  const tab = document.querySelector('[aria-selected=true]').getBoundingClientRect();
  if (tab.left < 0 || tab.right > innerWidth) faults.push('the tab is out of view');
  const over = document.documentElement.scrollWidth - innerWidth;
  if (over > 0) faults.push('wider than the window by ' + over);
  // WCAG 2: 4.5 to 1.
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => channels(colour).slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const below = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (channels(colour)[3] !== 0) return colour;
    }
  };
  for (const element of document.querySelectorAll('body *')) {
    const hasText = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!hasText || element.closest('[hidden], script, svg, option') || element.disabled) continue;
    const [a, b] = [getComputedStyle(element).color, below(element)].map(light);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faults.push(contrast.toFixed(1) + ': ' + element.outerHTML.slice(0, 100));
  }
  return faults;
})()
"#;

#[test]
fn every_view_is_read_on_narrow_and_dark_screens_and_by_screen_readers() {
    let (_directory, mut browser) = opened("#site=0&filter=ma");
    for (width, scheme) in [
        (1400, "light"),
        (1400, "dark"),
        (420, "light"),
        (420, "dark"),
    ] {
        browser.show(width, scheme);
        for tab in [
            "Summary",
            "Findings",
            "Sites",
            "Flame graph",
            "Timeline",
            "Sizes",
            "Recording",
        ] {
            browser.open(tab);
            let faults = browser.value(UNNAMED);
            assert_eq!(faults, json!([]), "{tab} at {width}, {scheme}");
        }
    }
    // A file's name may be one long word.
    browser.value("{ const p = document.createElement('p'); p.textContent = 'x'.repeat(300); document.querySelector('#recording').append(p); }");
    assert_eq!(browser.value(UNNAMED), json!([]));
    // The check itself finds faults.
    browser.value("{ const b = document.createElement('button'); b.style.width = '2000px'; document.body.append(b); }");
    browser.value("{ const p = document.createElement('p'); p.textContent = 'x'; p.style.color = getComputedStyle(document.body).backgroundColor; document.body.append(p); }");
    let faults = browser.value(UNNAMED);
    assert_eq!(faults.as_array().map(Vec::len), Some(3), "{faults}");
}

#[test]
fn all_views_are_on_paper() {
    let (_directory, mut browser) = opened("");
    browser.value("addEventListener('beforeprint', () => { window.printed = [...document.querySelectorAll('section')].map(view => !view.hidden && view.innerText.length > 20); })");
    browser.print();
    assert_eq!(browser.value("printed"), json!(vec![true; 7]));
    let open = "document.querySelectorAll('section:not([hidden])').length";
    assert_eq!(browser.value(open), 1);
    assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
}
