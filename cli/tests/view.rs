//! `larder view`: a recorded trace explored in a pseudoterminal, whose output vt100 draws.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::common::written::Written;
use crate::common::{
    assert_fails, compile, larder, line_of, output, record, report_json, report_text, site_at,
    stdout, temporary,
};
use crate::terminal::{OnTerminal, USUAL};
use larder_base::number::grouped;
use larder_trace::symbols::Function;
use larder_trace::writer::{About, Class, Stack, Writer, WrittenCall};
use larder_trace::{AllocCall, Call};
use tempfile::TempDir;

/// By calls `scan`, `build`, `cache`; by bytes and at the peak `build`, `cache`, `scan`; only `cache` is live at the
/// end.
const PROGRAM: &str = r#"
#include <stdlib.h>
#define APART __attribute__((noinline)) static
static void *volatile kept[300];
static void *volatile built[300];
APART void scan(void) {
  free(malloc(16));  // @scan
}
APART void parse(void) {
  for (int i = 0; i < 1000; ++i) scan();
}
APART void cache(void) {
  for (int i = 0; i < 50; ++i) kept[i] = malloc(10000);  // @cache
}
APART void build(void) {
  for (int i = 0; i < 300; ++i) built[i] = malloc(3000);  // @build
  for (int i = 0; i < 300; ++i) free(built[i]);
}
int main(void) {
  parse();
  cache();
  build();
  return kept[0] == NULL;
}
"#;

fn recorded() -> (TempDir, PathBuf) {
    let directory = temporary();
    let flags = ["-O1", "-g", "-fno-builtin"];
    let program = compile(directory.path(), "work.c", PROGRAM, &flags);
    let trace = record(directory.path(), &program, &[], &["--no-larder"]);
    (directory, trace)
}

/// When its first screen is drawn.
#[track_caller]
fn view(trace: &Path, options: &[&str]) -> OnTerminal {
    let mut command = larder();
    let mut view = OnTerminal::start(command.arg("view").arg(trace).args(options), USUAL);
    view.wait_for("10Quit");
    assert!(view.screen().alternate_screen());
    view
}

/// Ends it by this.
#[track_caller]
fn end(mut view: OnTerminal, keys: &str) {
    view.press(keys);
    assert_eq!(view.ended().code(), Some(0));
}

/// The lines below the head that has these words.
fn below(screen: &vt100::Screen, head: &str) -> Vec<String> {
    let contents = screen.contents();
    let lines = contents.lines().skip_while(|line| !line.contains(head));
    lines.skip(1).map(str::to_owned).collect()
}

/// Presses these; then the table has this head, and its first site is this one.
#[track_caller]
fn sorted(view: &mut OnTerminal, keys: &str, head: &str, first: &str) {
    view.press(keys);
    view.wait_until(&format!("{first} under {head}"), |screen| {
        let rows = below(screen, head);
        rows.first()
            .is_some_and(|row| row.contains(&format!("  {first}  ")))
    });
}

/// Presses these, and waits until the screen has all of this.
#[track_caller]
fn all(view: &mut OnTerminal, keys: &str, words: &[&str]) {
    view.press(keys);
    view.wait_until(&format!("{words:?}"), |screen| {
        let text = screen.contents();
        words.iter().all(|word| text.contains(word))
    });
}

/// Presses these, and waits until the screen has none of this.
#[track_caller]
fn none(view: &mut OnTerminal, keys: &str, words: &str) {
    view.press(keys);
    view.wait_until(&format!("without {words}"), |screen| {
        !screen.contents().contains(words)
    });
}

/// Whether a row with this is selected: drawn in reverse.
fn is_selected(screen: &vt100::Screen, words: &str) -> bool {
    let contents = screen.contents();
    let mut lines = (0..).zip(contents.lines());
    lines.any(|(row, line)| {
        line.contains(words) && screen.cell(row, 0).is_some_and(vt100::Cell::inverse)
    })
}

#[track_caller]
fn selects(view: &mut OnTerminal, keys: &str, words: &str) {
    view.press(keys);
    view.wait_until(&format!("selected: {words}"), |screen| {
        is_selected(screen, words)
    });
}

#[test]
fn each_key_sorts_by_its_column() {
    let (_directory, trace) = recorded();
    let mut view = view(&trace, &[]);
    sorted(&mut view, "", "▼CALLS", "scan");
    sorted(&mut view, "B", "▼BYTES", "build");
    sorted(&mut view, "P", "▼PEAK", "build");
    sorted(&mut view, "L", "▼LIVE", "cache");
    sorted(&mut view, "T", "▼TEMP", "scan");
    sorted(&mut view, "N", "▼SITE", "build");
    sorted(&mut view, "I", "▲SITE", "scan");
    sorted(&mut view, "I", "▼SITE", "build");
    sorted(&mut view, "Y", "▼TINY", "scan");
    // F6.
    sorted(&mut view, "\x1b[17~", "▼SITE", "build");
    sorted(&mut view, ">", "▼CALLS", "scan");
    sorted(&mut view, "<<<", "▼TEMP", "scan");
    sorted(&mut view, "<<", "▼PEAK", "build");
    view.click("BYTES");
    sorted(&mut view, "", "▼BYTES", "build");
    view.click("BYTES");
    view.wait_for("▲BYTES");
    end(view, "q");
    let view = self::view(&trace, &["--sort", "live", "--filter", "CACHE"]);
    let rows = below(view.screen(), "▼LIVE");
    assert!(rows[0].contains("  cache  "), "{rows:#?}");
    assert!(view.line("1 site with \u{201c}CACHE\u{201d}").is_some());
    end(view, "\x03");
}

#[test]
fn figures_and_source_are_those_of_the_report() {
    let (_directory, trace) = recorded();
    let report = report_json(&trace, &[]);
    let mut view = view(&trace, &[]);
    for (mark, keys, extra) in [
        ("scan", "\r", ", 1,000 temporary, 1,000 tiny"),
        ("build", "\x1b[B\r", ", 900,000 bytes at the peak"),
        ("cache", "\x1b[B\r", "500,000 bytes live at the end"),
    ] {
        let line = line_of(PROGRAM, mark);
        let site = site_at(&report, "work.c", line);
        let calls = grouped(site["calls"].as_u64().expect("calls"));
        let bytes = grouped(site["bytes"].as_u64().expect("bytes"));
        let figures = format!("{calls} calls of malloc, {bytes} bytes");
        let (source, site) = (format!("> {line}"), format!("→ {mark}"));
        let shown = [&*figures, extra, &source, "// @", &site, "  main  "];
        all(&mut view, keys, &shown);
        view.turn("\r", "▼CALLS");
    }
    let peak = report["counters"]["peak_bytes"].as_u64().expect("a peak");
    assert!((1_400_000..1_410_000).contains(&peak));
    assert!(view.line("1.3 MiB at the peak").is_some());
    end(view, "q");
}

#[test]
fn trees_of_callers_and_callees_open_and_close() {
    let (_directory, trace) = recorded();
    let mut view = view(&trace, &[]);
    all(&mut view, "c", &["CALLERS OF scan", "100.0 %", "▸ parse"]);
    assert!(view.line("main").is_none());
    all(&mut view, "\r", &["▾ parse", "  ▸ main"]);
    none(&mut view, "\r", "▸ main");
    all(&mut view, " ", &["▾ parse", "  ▸ main"]);
    none(&mut view, " ", "▸ main");
    // Right opens, Left closes, or goes to the branch that this one is on.
    all(&mut view, "\x1b[C", &["▾ parse", "  ▸ main"]);
    selects(&mut view, "\x1b[B", "main");
    all(&mut view, "+", &["▾ main", "[no caller]"]);
    selects(&mut view, "\x1b[B", "[no caller]");
    // It has no function.
    selects(&mut view, "c", "[no caller]");
    selects(&mut view, "\x1b[D", "main");
    none(&mut view, "-", "[no caller]");
    selects(&mut view, "\x1b[D", "parse");
    selects(&mut view, "j", "main");
    all(
        &mut view,
        "e",
        &["CALLEES OF main", "▸ parse", "▸ build", "▸ cache"],
    );
    let rows = below(view.screen(), "CALLEES OF main");
    for (row, figures) in rows.iter().zip([
        " 74.1 %     1.0K    15.6K  ▸ parse",
        " 22.2 %      300   878.9K  ▸ build",
        "  3.7 %       50   488.3K  ▸ cache",
    ]) {
        assert_eq!(row.trim_end(), figures);
    }
    view.click("▸ build");
    selects(&mut view, "", "build");
    view.click("▸ build");
    view.wait_for("▸ malloc");
    view.turn("\x1b", "▼CALLS");
    all(&mut view, "e", &["CALLEES OF scan", "▸ malloc"]);
    all(
        &mut view,
        "c",
        &["CALLERS OF malloc", "▸ scan", "▸ build", "▸ cache"],
    );
    end(view, "q");
}

#[test]
fn findings_come_with_their_cures() {
    let (_directory, trace) = recorded();
    let mut view = view(&trace, &[]);
    all(&mut view, "f", &["WHAT IS NEEDLESS", ": scan"]);
    let advice = stdout(&output(larder().arg("advise").arg(&trace)));
    let mut lines = advice.lines().map(str::trim);
    let cure = lines.find_map(|line| line.strip_prefix("cure   "));
    let cure = format!("cure: {:.60}", cure.expect("a cure"));
    let shown = ["saves ", &cure, "confidence high", "→ scan", "// @scan"];
    all(&mut view, "\r", &shown);
    // On a narrow screen the lines are longer than it is.
    view.resize((40, 50));
    view.wait_until("narrow", |screen| {
        let text = screen.contents();
        !text.contains("10Quit") && text.contains("enlarge it") && text.contains("confidence high")
    });
    view.resize(USUAL);
    let list = |screen: &vt100::Screen| {
        let text = screen.contents();
        let is_list = text.contains("WHAT IS NEEDLESS") && !text.contains("confidence high");
        is_list && text.contains(": scan") && text.contains("10Quit")
    };
    view.press("\x1b");
    view.wait_until("the findings", list);
    view.click(": scan");
    view.wait_for("confidence high");
    view.press("\x1b");
    view.wait_until("the findings", list);
    view.turn("f", "▼CALLS");
    end(view, "q");
}

#[test]
fn keys_move_filter_and_help() {
    let (_directory, trace) = recorded();
    let mut view = view(&trace, &[]);
    selects(&mut view, "j", "  build  ");
    selects(&mut view, "k", "  scan  ");
    selects(&mut view, "\x1b[6~", "  cache  ");
    selects(&mut view, "\x1b[5~", "  scan  ");
    selects(&mut view, "\x1b[F", "  cache  ");
    // The selection stays with its site.
    view.turn("L", "▼LIVE");
    selects(&mut view, "", "  cache  ");
    selects(&mut view, "C\x1b[H", "  scan  ");
    view.click("  build  ");
    selects(&mut view, "", "  build  ");
    view.click("  build  ");
    view.wait_for("→ build");
    view.turn("\x1b", "▼CALLS");
    view.turn("/", "Filter: _");
    view.turn("CACq\x7f", "Filter: CAC_");
    none(&mut view, "", "scan  ");
    view.turn("\r", "1 site with \u{201c}CAC\u{201d}");
    view.turn("\x1b", "  scan  ");
    view.turn("?", "KEYS AND COLUMNS");
    view.wheel(true);
    view.wait_until("further down", |screen| {
        !screen.contents().contains("PgUp PgDn")
    });
    view.wheel(false);
    view.wait_for("PgUp PgDn");
    view.turn("\x0c", "KEYS AND COLUMNS");
    view.turn("?", "▼CALLS");
    // There is no shell to stop for.
    view.turn("\x1a", "10Quit");
    // F10.
    end(view, "\x1b[21~");
}

/// It has read all that it shows but the findings.
#[test]
fn the_trace_is_read_once() {
    let (_directory, trace) = recorded();
    let mut view = view(&trace, &[]);
    fs::remove_dir_all(&trace).expect("removed");
    view.turn("\r", "→ scan");
    view.turn("c", "CALLERS OF scan");
    view.turn("\x1b", "▼CALLS");
    view.turn("f", "no such file");
    view.turn("\r", "no such file");
    view.turn("\x1b", "▼CALLS");
    end(view, "q");
}

#[test]
fn the_screen_follows_the_terminals_size() {
    let (_directory, trace) = recorded();
    let mut view = view(&trace, &[]);
    for (size, head, is_wide) in [
        ((24, 80), "▼CALLS", false),
        ((60, 200), "  BYTES", true),
        ((5, 20), "▼CALLS", false),
    ] {
        view.resize(size);
        view.wait_until("drawn", |screen| {
            let text = screen.contents();
            text.contains(head) && text.contains("F1Help") && text.contains("PEAK") == is_wide
        });
    }
    view.press("B");
    view.wait_until("sorted by bytes", |screen| {
        let text = screen.contents();
        let lines: Vec<&str> = text.lines().collect();
        text.contains("▼BYTES") && lines.len() == 5 && lines[4].starts_with("F1Help")
    });
    for small in [(2, 10), (1, 1), (0, 0)] {
        view.resize(small);
        view.press("fc?\r");
    }
    view.resize(USUAL);
    view.wait_until("large", |screen| {
        let text = screen.contents();
        text.contains("larder view: ") && text.contains("▼BYTES") && text.contains("10Quit")
    });
    end(view, "q");
}

/// A call of a function of this name.
fn named(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join("named.ltrace");
    let file = BufWriter::new(File::create_new(&path).expect("a new file"));
    let about = About {
        pid: 1,
        executable: b"/nowhere/\x1b[2Jprogram",
        argv: &[],
        start_wall_ns: 0,
    };
    let mut writer = Writer::new(file, &about).expect("a trace");
    let module = writer.module(b"/nowhere/program", &[], 1 << 36, 2 << 36);
    let module = module.expect("a module");
    let function = Function {
        name: name.as_bytes(),
        file: "/nowhere/\u{202e}\x1b[2J文件.c".as_bytes(),
        line: 7,
    };
    let named = writer.symbols(module, 1 << 36, &[function]);
    named.expect("a symbol");
    writer.thread(1, 1).expect("a thread");
    let stack = writer.stack(Stack::EMPTY, (1 << 36) + 1);
    let call = WrittenCall {
        call: Call::Alloc(AllocCall::Malloc),
        class: Class::Alloc,
        stack,
        time: 2,
        address: 1 << 20,
        size: 100,
        extra: 0,
        old: 0,
    };
    writer.call(&call).expect("written");
    writer.finish().expect("written");
    path
}

#[test]
fn names_are_shown_and_not_obeyed_however_wide_and_long() {
    let directory = temporary();
    let name = format!("読む{}\x1b[2J\u{202e}", "長い".repeat(3000));
    let trace = named(directory.path(), &name);
    let mut view = view(&trace, &[]);
    for (keys, page) in [
        ("", "  読む長い"),
        ("\r", "→ 読む長い"),
        ("c", "CALLERS OF 読む長い"),
        ("\x1b", "▼CALLS"),
        ("e", "CALLEES OF 読む長い"),
    ] {
        all(&mut view, keys, &["larder view: ", page, "10Quit"]);
        assert!(!view.screen().contents().contains('\u{202e}'));
    }
    for size in [(5, 20), (24, 80), (60, 200)] {
        view.resize(size);
        view.wait_until("drawn", |screen| {
            let text = screen.contents();
            text.contains('読') == (size.1 > 20) && text.contains("F1Help")
        });
    }
    end(view, "q");
}

#[test]
fn a_trace_with_no_event_has_no_site() {
    let directory = temporary();
    let trace = Written::new(directory.path(), "empty").done();
    let mut view = view(&trace, &[]);
    view.wait_for("no site");
    view.turn("\r\x1b[Bce", "no site");
    view.turn("f", "Nothing needless was found.");
    view.turn("\r\x1b", "no site");
    end(view, "q");
}

#[test]
fn a_damaged_trace_is_read_as_far_as_a_report_reads_it() {
    let (_directory, trace) = recorded();
    let file = fs::read_dir(&trace).expect("files").next();
    let file = file.expect("a file").expect("a file").path();
    let mut bytes = fs::read(&file).expect("bytes");
    bytes.truncate(bytes.len() - 100);
    fs::write(&file, bytes).expect("written");
    let report = report_text(&trace, &[]);
    let loss = report
        .lines()
        .find_map(|line| line.strip_prefix("warning: "));
    let loss = loss.expect("a loss").chars().take(60).collect::<String>();
    let mut view = view(&trace, &[]);
    view.wait_for(&loss);
    end(view, "q");
}

#[test]
fn of_a_trace_of_counters_it_shows_what_they_know() {
    let directory = temporary();
    let flags = ["-O1", "-g", "-fno-builtin"];
    let program = compile(directory.path(), "work.c", PROGRAM, &flags);
    let options = ["--no-larder", "--aggregate"];
    let trace = record(directory.path(), &program, &[], &options);
    let mut view = view(&trace, &[]);
    view.wait_for("only counted (record --aggregate)");
    sorted(&mut view, "", "▼CALLS", "scan");
    sorted(&mut view, "B", "▼BYTES", "build");
    sorted(&mut view, "L", "▼LIVE", "cache");
    sorted(&mut view, "Y", "▼TINY", "scan");
    for (key, head) in [("P", "▼PEAK"), ("T", "▼TEMP")] {
        view.turn(key, head);
        let rows = below(view.screen(), head);
        let row = rows.iter().find(|row| row.contains("  build  "));
        let cells: Vec<&str> = row.expect("a site").split_whitespace().collect();
        assert_eq!(cells[..7], ["300", "878.9K", "?", "0", "?", "0", "build"]);
    }
    assert!(view.line("(1,000 tiny), 1.3 MiB at the peak").is_some());
    all(
        &mut view,
        "C\r",
        &["1,000 calls of malloc, 16,000 bytes, 1,000 tiny", "→ scan"],
    );
    view.turn("\r", "▼CALLS");
    all(&mut view, "c", &["CALLERS OF scan", "▸ parse"]);
    view.turn("\x1b", "▼CALLS");
    all(&mut view, "f", &["holds counters", "without --aggregate"]);
    end(view, "q");
}

#[test]
fn without_a_terminal_it_names_the_report() {
    let directory = temporary();
    let trace = Written::new(directory.path(), "empty").done();
    let refused = output(larder().arg("view").arg(&trace));
    assert_fails(&refused, 125, &["no terminal", "larder report"]);
    let mut dumb = larder();
    let mut dumb = OnTerminal::start(dumb.arg("view").arg(&trace).env("TERM", "dumb"), USUAL);
    dumb.wait_for("use larder report");
    assert_eq!(dumb.child.wait().code(), Some(125));
    let mut gone = OnTerminal::start(larder().arg("view").arg("/nowhere"), USUAL);
    gone.wait_for("no such file");
    assert_eq!(gone.child.wait().code(), Some(125));
}
