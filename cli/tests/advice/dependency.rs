// A dependency, as far as its users can tell by its path.
#[inline(never)]
pub fn name(i: usize) -> String {
    let text = ["one", "three", "fifteen"][i % 3].repeat(2);
    std::hint::black_box(&text);
    text
}

#[inline(never)]
pub fn sentence(i: usize) -> String {
    let text = ["one", "three", "fifteen"][i % 3].repeat(20);
    std::hint::black_box(&text);
    text
}

#[inline(never)]
pub fn with_slashes(path: &str) -> String {
    path.to_string()
}

pub struct Dimensions {
    pub lengths: Vec<u64>,
}

// The copy is a part of what it returns.
#[inline(never)]
pub fn dimensions(lengths: &[u64]) -> Dimensions {
    Dimensions {
        lengths: lengths.to_vec(),
    }
}

// Makes objects and drops them, in no order.
#[inline(never)]
pub fn total(count: usize) -> usize {
    let lengths = [3, 4, 5];
    let made = (0..count).map(|i| dimensions(&lengths[..1 + i % 3]));
    let mut all: Vec<Dimensions> = made.collect();
    let mut total = 0;
    while !all.is_empty() {
        total += all.swap_remove(all.len() * 7 / 11).lengths.len();
    }
    total
}

#[path = "../../cleared-1.0.0/src/lib.rs"]
mod cleared;
#[path = "../../table-1.0.0/src/lib.rs"]
mod table;

#[inline(never)]
pub fn cells(i: usize) -> usize {
    std::hint::black_box(table::table(i)).cells.len()
}

// This table could be kept.
#[inline(never)]
pub fn cells_cleared(i: usize) -> usize {
    std::hint::black_box(cleared::table(i)).cells.len()
}
