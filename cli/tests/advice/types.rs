// The types that lines allocate: `type FUNCTION: NAME, SIZE`, or none.
//
// type types::boxed: types::Foo, 24
// type types::counted: alloc::rc::RcInner<types::Foo>, 40
// type types::pushed: types::Foo, 24
// type types::with_capacity: (u32, u64), 16
// type types::collected: u64, 8
// type types::text: none
use std::hint::black_box;
use std::rc::Rc;

pub struct Foo {
    pub a: [u64; 3],
}

#[inline(never)]
fn boxed(i: u64) {
    black_box(Box::new(Foo { a: [i; 3] }));
}

#[inline(never)]
fn counted(i: u64) {
    black_box(Rc::new(Foo { a: [i; 3] }));
}

#[inline(never)]
fn pushed(n: u64) {
    let mut some = Vec::new();
    for i in 0..n {
        some.push(Foo { a: [i; 3] });
    }
    black_box(&some);
}

#[inline(never)]
fn with_capacity(n: usize) {
    let some: Vec<(u32, u64)> = Vec::with_capacity(n);
    black_box(&some);
}

#[inline(never)]
fn collected(n: u64) {
    let some: Vec<u64> = (0..n).map(|x| x * x).collect();
    black_box(&some);
}

#[inline(never)]
fn text(n: u64) {
    black_box(format!("a text of some length {n}"));
}

fn main() {
    for i in 0..200 {
        boxed(i);
        counted(i);
        pushed(20);
        with_capacity(i as usize % 5 + 1);
        collected(i % 7 + 1);
        text(i);
    }
}
