//! `larder diff --growth`: one program on growing inputs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::diff::*;
use crate::common::*;
use serde_json::{Value, json};
use tempfile::TempDir;

const CLEANER: &str = r#"
APART void fill(int n) { for (int i = 0; i < n; i++) kept = malloc(16); }
APART void clean(int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) { kept = malloc(8); free(kept); }  // @clean
}
APART void start(void) { for (int i = 0; i < 50; i++) kept = malloc(100); }
int main(int argc, char **argv) {
    int n = atoi(argv[argc - 1]);
    start();
    fill(n);
    clean(n);
    return 0;
}
"#;

#[test]
fn a_site_that_grows_with_the_square_is_named() {
    let directory = temporary();
    let run = |n: &str| trace(directory.path(), n, CLEANER, &["-g", "-O1"], &[n]);
    let [small, middle, large] = ["10", "30", "100"].map(run);
    let line = line_of(&format!("{HEAD}{CLEANER}"), "clean");
    let growth = |traces: &[&Path], options: &[&str]| {
        let document = diff_json(traces, &[&["--growth"], options].concat());
        let sites = document["sites"].as_array().unwrap().clone();
        assert_eq!(document["superlinear"], 1, "{document:#}");
        assert_eq!(
            (&sites[0]["site"]["function"], &sites[0]["site"]["line"]),
            (&json!("clean"), &json!(line))
        );
        (document["work_source"].clone(), sites)
    };
    // 55 and 5050 calls.
    let (source, sites) = growth(&[&small, &large], &["--work", "10:100"]);
    assert_eq!((source, sites.len()), (json!("given"), 1));
    assert_eq!(sites[0]["values"], json!([55, 5050]));
    let exponent = sites[0]["exponent"].as_f64().unwrap();
    assert!(
        (exponent - (5050.0f64 / 55.0).log10()).abs() < 1e-9,
        "{exponent}"
    );
    let (source, _) = growth(&[&small, &middle, &large], &["--work", "10:30:100"]);
    assert_eq!(source, "given");
    let all = growth(&[&small, &large], &["--work", "10:100", "--all"]).1;
    let exponent = |name: &str| {
        let site = all
            .iter()
            .find(|row| row["site"]["function"] == name)
            .unwrap();
        site["exponent"].as_f64().unwrap()
    };
    assert!((exponent("fill") - 1.0).abs() < 1e-9 && exponent("start").abs() < 1e-9);
    let text = diff_text(&[&small, &large], &["--growth", "--work", "10:100"]);
    assert!(
        text.contains("55 → 5,050") && text.contains("superlinear"),
        "{text}"
    );
    assert!(
        text.contains(&format!("app.c:{line}")) && !text.contains("fill"),
        "{text}"
    );
}

#[test]
fn without_the_work_it_is_estimated_and_that_is_said() {
    let directory = temporary();
    let source = r#"
APART void a(int n) { for (int i = 0; i < n; i++) kept = malloc(16); }
APART void b(int n) { for (int i = 0; i < 2 * n; i++) kept = malloc(16); }
APART void square(int n) { for (int i = 0; i < n * n; i++) { kept = malloc(8); free(kept); } }
int main(int argc, char **argv) {
    int n = atoi(argv[argc - 1]);
    a(n); b(n); square(n);
    return 0;
}
"#;
    let run = |n: &str| trace(directory.path(), n, source, &["-g", "-O1"], &[n]);
    let [small, large] = ["10", "40"].map(run);
    let document = diff_json(&[&small, &large], &["--growth"]);
    assert_eq!(document["work_source"], "estimated");
    assert_eq!(document["work"], json!([1.0, 4.0]));
    assert_eq!(document["sites"][0]["site"]["function"], "square");
    let exponent = document["sites"][0]["exponent"].as_f64().unwrap();
    assert!((exponent - 2.0).abs() < 1e-9, "{exponent}");
    let text = diff_text(&[&small, &large], &["--growth"]);
    assert!(
        text.contains("estimated as the median growth of 3 sites"),
        "{text}"
    );
    let none = output(larder().arg("diff").args([&small, &small]).arg("--growth"));
    assert_fails(&none, 125, &["no site grows", "--work"]);
}

/// Takes rows of 16 bytes from a file, sorts them, and throws them out from the last to the first,
/// walking from the first each time with a copy of each key on the way.
const TABLE: &str = r#"
#include <fcntl.h>
#include <larder/mark.h>
#include <unistd.h>
struct row { struct row *next; char text[16]; };
static struct row *table;
APART int load(const char *file, int marks) {
    int rows = 0, fd = open(file, O_RDONLY);
    char text[16];
    while (read(fd, text, sizeof text) == sizeof text) {
        if (marks) larder_mark("row");
        if (marks && rows % 7 == 0) larder_mark("week");
        struct row *row = malloc(sizeof *row);
        memcpy(row->text, text, sizeof text);
        row->next = table;
        table = row;
        rows++;
    }
    close(fd);
    return rows;
}
APART void sort(int n) {
    if (n < 2) return;
    sort(n / 2);
    sort(n - n / 2);
    for (int i = 0; i < n; i++) { kept = malloc(24); free(kept); }
}
APART void clean(void) {
    while (table != NULL) {
        struct row **at = &table;
        for (;;) {
            kept = strdup((*at)->text);  // @clean
            free(kept);
            if ((*at)->next == NULL) break;
            at = &(*at)->next;
        }
        free(*at);
        *at = NULL;
    }
}
int main(int argc, char **argv) {
    int rows = load(argv[1], argv[2][0] == 'm');
    write(1, "done\n", 5);
    sort(rows);
    clean();
    return 0;
}
"#;

/// A program that counts its rows by marks, if an argument asks for it, and reads them.
struct Counting {
    directory: TempDir,
    source: String,
    program: PathBuf,
}

impl Counting {
    fn new() -> Self {
        let directory = temporary();
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
        let source = format!("{HEAD}{TABLE}");
        let flags = ["-g", "-O1", "-fno-builtin", include];
        let program = compile(directory.path(), "app.c", &source, &flags);
        Self {
            directory,
            source,
            program,
        }
    }

    /// Traces of 64 rows and of 1,024.
    fn runs(&self, marks: &str, options: &[&str]) -> [PathBuf; 2] {
        [64, 1024].map(|rows: usize| {
            let name = format!("{rows}{marks}{options:?}");
            let place = self.directory.path().join(name);
            fs::create_dir(&place).unwrap();
            let input = place.join("rows");
            fs::write(&input, vec![b'x'; rows * 16]).unwrap();
            let arguments = [input.to_str().unwrap(), marks];
            let options = [&["--no-larder"], options].concat();
            record(&place, &self.program, &arguments, &options)
        })
    }
}

/// Where the work comes from, the work, and all of it.
fn growth(traces: &[PathBuf; 2], options: &[&str]) -> (Value, Value, Value) {
    let traces = [&*traces[0], &*traces[1]];
    let document = diff_json(&traces, &[&["--growth"], options].concat());
    (
        document["work_source"].clone(),
        document["work"].clone(),
        document,
    )
}

#[test]
fn the_work_is_the_mark_that_is_passed_most() {
    let counting = Counting::new();
    let both = counting.runs("marks", &["--syscalls"]);
    // The cleaner alone: n log n grows by an exponent of 1.18 here, the rest as the rows do.
    let (source, work, document) = growth(&both, &[]);
    assert_eq!((source, work), (json!("mark:row"), json!([64.0, 1024.0])));
    assert_eq!(document["superlinear"], 1, "{document:#}");
    let site = &document["sites"][0]["site"];
    let line = line_of(&counting.source, "clean");
    assert_eq!(
        (&site["function"], &site["line"]),
        (&json!("clean"), &json!(line))
    );
    assert_eq!(
        document["sites"][0]["values"],
        json!([64 * 65 / 2, 1024 * 1025 / 2])
    );
    let (source, work, _) = growth(&both, &["--work", "mark:week"]);
    assert_eq!((source, work), (json!("mark:week"), json!([10.0, 147.0])));
    assert_eq!(growth(&both, &["--work", "estimate"]).0, "estimated");
    let counted = counting.runs("marks", &["--aggregate"]);
    let (source, work, document) = growth(&counted, &[]);
    assert_eq!((source, work), (json!("mark:row"), json!([64.0, 1024.0])));
    assert_eq!(document["superlinear"], 1, "{document:#}");

    let text = diff_text(&[&both[0], &both[1]], &["--growth"]);
    let said = "the work is the passes of the mark 'row': --work names another measure";
    assert!(text.contains(said), "{text}");
    let text = diff_text(&[&both[0], &both[1]], &["--growth", "--work", "read"]);
    assert!(text.contains("the work is the bytes read\n"), "{text}");
}

#[test]
fn without_marks_the_work_is_what_was_read_or_an_estimate() {
    let counting = Counting::new();
    let read = counting.runs("none", &["--syscalls"]);
    let (source, work, document) = growth(&read, &[]);
    assert_eq!((source, work), (json!("read"), json!([1024.0, 16384.0])));
    assert_eq!(document["superlinear"], 1, "{document:#}");
    // Of each run the file's open and close, a read that finds the end, and the line that it writes.
    let (source, work, _) = growth(&read, &["--work", "calls"]);
    assert_eq!((source, work), (json!("calls"), json!([68.0, 1028.0])));
    let (source, work, _) = growth(&counting.runs("none", &[]), &[]);
    assert_eq!((source, work[0].clone()), (json!("estimated"), json!(1.0)));
}

#[test]
fn work_that_the_traces_do_not_count_is_refused() {
    let counting = Counting::new();
    let both = counting.runs("marks", &["--syscalls"]);
    let bare = counting.runs("none", &[]);
    let refused = |traces: &[PathBuf; 2], work: &str, words: &[&str]| {
        let mut diff = larder();
        diff.args(["diff", "--growth", "--work", work]).args(traces);
        assert_fails(&output(&mut diff), 125, words);
    };
    refused(&both, "write", &["bytes written do not grow", "(5, 5)"]);
    refused(&bare, "read", &["has no bytes read", "--syscalls"]);
    let no_mark = ["has no passes of the mark 'row'", "it has none"];
    refused(&bare, "mark:row", &no_mark);
    refused(&both, "mark:\x1b", &["'\\x1b'", "it has row, week"]);
}
