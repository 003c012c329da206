// A dependency, as far as `values.rs` can tell by its path.
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
