// The same small file, unpacked many times.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(500, |word| word.parse().unwrap());
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(20);
    let mut packed = Vec::with_capacity(1 << 16);
    lzma_rs::lzma_compress(&mut text.as_bytes(), &mut packed).unwrap();
    let mut bytes = 0;
    let mut unpacked = Vec::with_capacity(1 << 16);
    for _ in 0..rounds {
        unpacked.clear();
        lzma_rs::lzma_decompress(&mut &packed[..], &mut unpacked).unwrap();
        bytes += unpacked.len();
    }
    println!("{bytes} bytes");
}
