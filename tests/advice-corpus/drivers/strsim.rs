// How far words are from one another, for each of many pairs.
use strsim::damerau_levenshtein;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(1000, |word| word.parse().unwrap());
    let words = ["transposition", "transportation", "presupposition", "interposition", "supposition"];
    let mut total = 0;
    for round in 0..rounds {
        total += damerau_levenshtein(words[round % 5], words[round / 5 % 5]);
    }
    println!("{total} edits");
}
