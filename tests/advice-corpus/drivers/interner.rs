// The words of a program, each given a number.
use string_interner::StringInterner;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5, |word| word.parse().unwrap());
    let words: Vec<String> = (0..2000).map(|number| format!("name_{}", number % 1500)).collect();
    let mut count = 0;
    for _ in 0..rounds {
        let mut names = StringInterner::default();
        for word in &words {
            names.get_or_intern(word.as_str());
        }
        count += names.len();
    }
    println!("{count} names");
}
