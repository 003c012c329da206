// Words with accents, compared after they were normalized.
use unicode_normalization::UnicodeNormalization;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let words = ["re\u{301}sume\u{301}", "nai\u{308}ve", "ga\u{302}teau", "plain"];
    let mut letters = 0;
    for round in 0..rounds {
        letters += words[round % 4].nfc().filter(|letter| !letter.is_ascii()).count();
        letters += words[round % 4].nfkd().count();
    }
    println!("{letters} letters");
}
