// Rows of measured values, written as CSV.
fn main() {
    let rows: usize = std::env::args().nth(1).map_or(3000, |word| word.parse().unwrap());
    let mut writer = csv::Writer::from_writer(Vec::with_capacity(1 << 20));
    for row in 0..rows as u64 {
        writer.serialize((row, row * 7 % 1000, row as f64 * 0.25 + 0.5)).unwrap();
    }
    println!("{} bytes", writer.into_inner().unwrap().len());
}
