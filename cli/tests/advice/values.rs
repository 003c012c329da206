// Vectors and texts that hold little, and others.
//
// case kept: finds inline at kept
// case large: nothing
// case local: finds stack at local
// case passed: finds reuse at passed
use std::hint::black_box;

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
    vec![i as u64 + 1; 1 + i % 3] // @passed
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

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("kept") => case_kept(),
        Some("large") => case_large(),
        Some("local") => case_local(),
        Some("passed") => case_passed(),
        Some("given") => case_given(),
        Some("long") => case_long(),
        _ => std::process::exit(2),
    }
}
