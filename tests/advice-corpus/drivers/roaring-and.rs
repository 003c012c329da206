// The documents in which two words are, of lists that seldom meet.
use roaring::RoaringBitmap;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(100, |word| word.parse().unwrap());
    let one: RoaringBitmap = (0..80).map(|number| number << 17).chain(0..9).collect();
    let other: RoaringBitmap = (0..90).map(|number| (number << 17) + (1 << 16)).chain(5..9).collect();
    let mut count = 0;
    for _ in 0..rounds {
        count += (&one & &other).len();
    }
    println!("{count} documents");
}
