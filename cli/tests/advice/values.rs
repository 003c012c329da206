// Vectors and texts that hold little, and others.
//
// case kept: finds inline at kept
// case large: nothing
// case local: finds stack at local
// case passed: finds reuse at passed
// case formatted: finds stack at formatted
// case counted: finds inline at counted
// case counted_long: nothing
// case copied_whole: finds copied at cloned
// case copied_and_kept: finds arena at cloned
// case filled: finds arena at cloned
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

#[path = "registry/src/dependency-1.0.0/src/lib.rs"]
mod dependency;

const VALUES: usize = 300;

struct Shape {
    lengths: Vec<u64>,
}

#[inline(never)]
fn shape(i: usize) -> Shape {
    let lengths = vec![i as u64 + 1; 1 + i % 3]; // @kept
    Shape { lengths }
}

fn case_kept() {
    let mut shapes = Vec::with_capacity(VALUES);
    for i in 0..VALUES {
        shapes.push(shape(i));
    }
    // In no order, or they would be rows of an array.
    while !shapes.is_empty() {
        black_box(shapes.swap_remove(shapes.len() * 7 / 11).lengths.len());
    }
}

#[inline(never)]
fn table(i: usize) -> Shape {
    let lengths = vec![i as u64 + 1; 100 + i * 7 % 50];
    Shape { lengths }
}

fn case_large() {
    let mut tables = Vec::with_capacity(VALUES);
    for i in 0..VALUES {
        tables.push(table(i));
    }
    while !tables.is_empty() {
        black_box(tables.swap_remove(tables.len() * 7 / 11).lengths.len());
    }
}

#[inline(never)]
fn local(i: usize) -> u64 {
    let some = vec![i as u64 + 1; 1 + i % 3]; // @local
    black_box(&some).iter().sum()
}

fn case_local() {
    for i in 0..VALUES {
        black_box(local(i));
    }
}

#[inline(never)]
fn filled(i: usize) -> Vec<u64> {
    vec![i as u64 + 2; 2 + i % 3] // @passed
}

// A caller that asks again and again can keep it.
#[inline(never)]
fn case_passed() {
    let mut sum = 0;
    for i in 0..VALUES {
        sum += black_box(filled(i)).len();
    }
    black_box(sum);
}

fn case_given() {
    for i in 0..VALUES {
        black_box(dependency::name(i));
    }
}

fn case_long() {
    for i in 0..VALUES {
        black_box(dependency::sentence(i));
    }
}

struct Point(usize, usize);

// Writes where its caller says.
impl fmt::Display for Point {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "({}, {})", self.0, self.1)
    }
}

#[inline(never)]
fn formatted(i: usize) -> usize {
    let text = format!("{}", Point(i % 7, 3)); // @formatted
    black_box(&text).len()
}

fn case_formatted() {
    for i in 0..VALUES {
        black_box(formatted(i));
    }
}

#[inline(never)]
fn counted(text: &str) -> Arc<str> {
    Arc::from(text) // @counted
}

fn hold(make: impl Fn(usize) -> Arc<str>) {
    let mut texts: Vec<Arc<str>> = Vec::with_capacity(VALUES);
    (0..VALUES).for_each(|i| texts.push(make(i)));
    while !texts.is_empty() {
        black_box(texts.swap_remove(texts.len() * 7 / 11).len());
    }
}

fn case_counted() {
    hold(|i| counted(&"abcdefghijklmnop"[..1 + i % 16]));
}

fn case_counted_long() {
    let text = "abcdefghijklmnop".repeat(9);
    hold(|i| counted(&text[..70 + i % 60]));
}

#[derive(Clone)]
struct Part {
    lengths: Vec<u64>, // @cloned
}

fn parts() -> Vec<Part> {
    let lengths = |i: usize| vec![i as u64; 40 + i % 9];
    let parts = (0..20).map(|i| Part { lengths: lengths(i) });
    parts.collect()
}

// All but one are gone when it returns.
#[inline(never)]
fn longest(parts: &[Part]) -> Part {
    let mut copies = parts.to_vec();
    while copies.len() > 1 {
        let at = usize::from(copies[0].lengths.len() > copies[1].lengths.len());
        copies.remove(at);
    }
    copies.remove(0)
}

fn case_copied_whole() {
    let parts = parts();
    for _ in 0..VALUES {
        black_box(longest(&parts).lengths.len());
    }
}

#[inline(never)]
fn copied(parts: &[Part]) -> Vec<Part> {
    parts.to_vec()
}

fn case_copied_and_kept() {
    let parts = parts();
    for i in 0..VALUES {
        let mut copies = copied(&parts);
        copies[i % 20].lengths[0] = 7;
        black_box(copies.swap_remove(i * 7 % 11).lengths.len());
    }
}

// Elements of their own, which only begin as copies.
#[inline(never)]
fn case_filled() {
    for i in 0..VALUES {
        let part = Part { lengths: vec![i as u64; 40] };
        let mut rows = vec![part; 20];
        rows[i % 20].lengths[0] = 7;
        while !rows.is_empty() {
            black_box(rows.swap_remove(rows.len() * 7 / 11).lengths.len());
        }
    }
}

fn case_borrowed() {
    for i in 0..VALUES {
        black_box(dependency::with_slashes(["a/b", "src/lib.rs", "long/enough/to/need/a/block"][i % 3]));
    }
}

fn case_part() {
    for i in 0..VALUES {
        black_box(dependency::dimensions(&[3, 4, 5][..1 + i % 3]).lengths.len());
    }
}

thread_local! {
    static LAST: std::cell::Cell<String> = const { std::cell::Cell::new(String::new()) };
}

#[inline(never)]
fn sentence(i: usize) -> String {
    let text = "word ".repeat(20 + i % 3); // @sentence
    black_box(&text);
    text
}

#[inline(never)]
fn read(i: usize) -> usize {
    let text = sentence(i);
    black_box(&text).len()
}

#[inline(never)]
fn read_and_keep(i: usize) -> usize {
    let bytes = read(i);
    LAST.set(sentence(i));
    black_box(bytes)
}

#[inline(never)]
fn case_callers() {
    for i in 0..VALUES {
        black_box(read_and_keep(i));
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("kept") => case_kept(),
        Some("large") => case_large(),
        Some("local") => case_local(),
        Some("passed") => case_passed(),
        Some("given") => case_given(),
        Some("long") => case_long(),
        Some("formatted") => case_formatted(),
        Some("counted") => case_counted(),
        Some("counted_long") => case_counted_long(),
        Some("part") => case_part(),
        Some("copied_whole") => case_copied_whole(),
        Some("copied_and_kept") => case_copied_and_kept(),
        Some("filled") => case_filled(),
        Some("borrowed") => case_borrowed(),
        Some("callers") => case_callers(),
        _ => std::process::exit(2),
    }
}
