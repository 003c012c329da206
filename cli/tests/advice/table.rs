// A dependency of a dependency.
pub struct Table {
    pub cells: Vec<u64>,
}

#[inline(never)]
pub fn table(i: usize) -> Table {
    let cells = vec![i as u64; 60 + i % 5]; // @cells
    Table { cells }
}
