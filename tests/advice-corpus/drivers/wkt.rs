// Lines on a map, written as text.
use std::fmt::Write;
use wkt::Wkt;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(500, |word| word.parse().unwrap());
    let line: Wkt<f64> = "LINESTRING(10 -20,30.5 40,50 60,70 80.25,90 100)".parse().unwrap();
    let mut bytes = 0;
    let mut text = String::with_capacity(1 << 10);
    for _ in 0..rounds {
        text.clear();
        write!(text, "{line}").unwrap();
        bytes += text.bytes().filter(|byte| *byte != b' ').count();
    }
    println!("{bytes} bytes");
}
