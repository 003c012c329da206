// Values with owners that no caller can lend memory to, and others.
//
// case alone: finds stack at alone
// case any_type: nothing
// case one_type: finds reuse at one_type
// case tree: nothing
// case row: finds reuse at row
// case short_text: finds inline at short_text
// case long_text: finds reuse at long_text
// case given_away: nothing
// case lent: finds stack at lent
// case notes: finds reuse at notes
// case yielded: nothing
use std::any::Any;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

#[path = "registry/src/dependency-1.0.0/src/lib.rs"]
mod dependency;

const VALUES: usize = 300;

// Others may hold what counts references as long as it lives.
struct List(Vec<u64>);

#[inline(never)]
fn counted(i: usize) -> usize {
    let numbers = vec![i as u64 + 1; 60 + i % 5]; // @counted
    let list = Arc::new(List(numbers));
    black_box(&list).0.len()
}

fn case_counted() {
    for i in 0..VALUES {
        black_box(counted(i));
    }
}

#[inline(never)]
fn alone(i: usize) -> usize {
    let list = List(vec![i as u64 + 1; 60 + i % 5]); // @alone
    black_box(&list).0.len()
}

fn case_alone() {
    for i in 0..VALUES {
        black_box(alone(i));
    }
}

// What has a trait is of any size.
#[inline(never)]
fn any(i: usize) -> Box<dyn Any> {
    Box::new([i; 6])
}

#[inline(never)]
fn case_any_type() {
    for i in 0..VALUES {
        black_box(any(i));
    }
}

#[inline(never)]
fn array(i: usize) -> Box<[usize; 6]> {
    Box::new([i; 6]) // @one_type
}

#[inline(never)]
fn case_one_type() {
    for i in 0..VALUES {
        black_box(array(i));
    }
}

// What a tree holds goes with the tree.
struct Tree {
    children: Vec<Tree>,
}

#[inline(never)]
fn tree(depth: usize) -> Tree {
    let mut children = Vec::new();
    if depth > 0 {
        children.reserve_exact(1);
        children.push(tree(depth - 1));
    }
    Tree { children }
}

#[inline(never)]
fn case_tree() {
    for i in 0..VALUES {
        black_box(tree(2 + i % 3).children.len());
    }
}

struct Row {
    cells: Vec<u64>,
}

#[inline(never)]
fn row(i: usize) -> Row {
    let cells = vec![i as u64; 60 + i % 5]; // @row
    Row { cells }
}

#[inline(never)]
fn case_row() {
    for i in 0..VALUES {
        black_box(row(i).cells.len());
    }
}

// A short text is held by its object.
struct Zone {
    name: String,
}

#[inline(never)]
fn short(i: usize) -> Zone {
    let name = format!("+{:02}:30", i % 24); // @short_text
    Zone { name }
}

#[inline(never)]
fn case_short_text() {
    for i in 0..VALUES {
        black_box(short(i).name.len());
    }
}

#[inline(never)]
fn long(i: usize) -> Zone {
    let mut name = String::with_capacity(60); // @long_text
    name.extend((0..60).map(|at| (b'a' + ((i + at) % 26) as u8) as char));
    Zone { name }
}

#[inline(never)]
fn case_long_text() {
    for i in 0..VALUES {
        black_box(long(i).name.len());
    }
}

// What is given to a function is the function's.
#[inline(never)]
fn taken(list: Vec<u64>) -> usize {
    black_box(&list).len()
}

#[inline(never)]
fn give(i: usize) -> usize {
    let list = vec![i as u64 + 1; 60 + i % 5];
    taken(list) + i
}

fn case_given_away() {
    for i in 0..VALUES {
        black_box(give(i));
    }
}

#[inline(never)]
fn seen(list: &[u64]) -> usize {
    black_box(list).len()
}

#[inline(never)]
fn lend(i: usize) -> usize {
    let list = vec![i as u64 + 1; 60 + i % 5]; // @lent
    seen(&list) + i
}

fn case_lent() {
    for i in 0..VALUES {
        black_box(lend(i));
    }
}

// Objects of this crate that a dependency drops.
fn case_of_another() {
    black_box(dependency::total(VALUES));
}

fn case_of_dependency() {
    for i in 0..VALUES {
        black_box(dependency::cells(i));
    }
}

fn case_cleared() {
    for i in 0..VALUES {
        black_box(dependency::cells_cleared(i));
    }
}

// The first memory of a map, too, comes from a function called resize.
struct Notes {
    by_number: HashMap<usize, usize>,
}

#[inline(never)]
fn notes(i: usize) -> Notes {
    let mut by_number = HashMap::new();
    by_number.insert(i, i + 1); // @notes
    Notes { by_number }
}

#[inline(never)]
fn case_notes() {
    for i in 0..VALUES {
        black_box(notes(i).by_number.len());
    }
}

// An iterator is given nothing to fill.
struct Rows(usize);

impl Iterator for Rows {
    type Item = Vec<u64>;

    #[inline(never)]
    fn next(&mut self) -> Option<Vec<u64>> {
        self.0 += 1;
        let row = vec![self.0 as u64; 60 + self.0 % 5];
        (self.0 < VALUES).then_some(row)
    }
}

#[inline(never)]
fn case_yielded() {
    for row in Rows(0) {
        black_box(row.len());
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("counted") => case_counted(),
        Some("alone") => case_alone(),
        Some("any_type") => case_any_type(),
        Some("one_type") => case_one_type(),
        Some("tree") => case_tree(),
        Some("row") => case_row(),
        Some("short_text") => case_short_text(),
        Some("long_text") => case_long_text(),
        Some("given_away") => case_given_away(),
        Some("lent") => case_lent(),
        Some("of_another") => case_of_another(),
        Some("of_dependency") => case_of_dependency(),
        Some("cleared") => case_cleared(),
        Some("notes") => case_notes(),
        Some("yielded") => case_yielded(),
        _ => std::process::exit(2),
    }
}
