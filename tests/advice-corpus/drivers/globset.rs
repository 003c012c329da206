// Paths matched against patterns that only a regular expression can match.
use globset::{Glob, GlobSetBuilder};

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let mut builder = GlobSetBuilder::new();
    for pattern in ["**/te?t/*_[0-9].r?", "src/*/m?d.[ch]", "*[a-f]x*", "lib?/**/*.{so,a}.[0-9]"] {
        builder.add(Glob::new(pattern).unwrap());
    }
    let set = builder.build().unwrap();
    let mut matched = Vec::new();
    let mut count = 0;
    for round in 0..rounds {
        let path = ["a/test/x_1.rs", "src/one/mod.c", "lib6/x/y.so.1", "none"][round % 4];
        set.matches_into(path, &mut matched);
        count += matched.len();
    }
    println!("{count} matches");
}
