// A short text, packed well, several times.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(20, |word| word.parse().unwrap());
    let text = "the quick brown fox jumps over the lazy dog; pack my box with five dozen jugs".repeat(4);
    let mut bytes = 0;
    let mut packed = Vec::with_capacity(1 << 16);
    for _ in 0..rounds {
        packed.clear();
        #[cfg(before)]
        zopfli::compress(&Default::default(), &zopfli::Format::Deflate, text.as_bytes(), &mut packed).unwrap();
        #[cfg(after)]
        zopfli::compress(Default::default(), zopfli::Format::Deflate, text.as_bytes(), &mut packed).unwrap();
        bytes += packed.len();
    }
    println!("{bytes} bytes");
}
