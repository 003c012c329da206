// Lines searched for a doubled word.
use fancy_regex::Regex;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let doubled = Regex::new(r"\b(\w+) \1\b").unwrap();
    let lines = ["the quick brown fox", "it was was so", "to be or not to be", "once more more more"];
    let mut count = 0;
    for round in 0..rounds {
        count += doubled.is_match(lines[round % 4]).unwrap() as usize;
    }
    println!("{count} lines");
}
