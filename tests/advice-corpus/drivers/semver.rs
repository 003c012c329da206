// Releases of a library, of which a resolver keeps the newest that will do.
use semver::Version;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let known = ["1.0.0-alpha", "1.0.0-beta", "1.0.0", "1.1.0-rc", "1.1.0", "2.0.0-dev"];
    let known: Vec<Version> = known.iter().map(|text| Version::parse(text).unwrap()).collect();
    let mut sum = 0;
    for round in 0..rounds {
        let mut best = known[0].clone();
        for version in &known[..1 + round % 6] {
            if *version > best {
                best = version.clone();
            }
        }
        sum += best.major * 10 + best.minor;
    }
    println!("{sum}");
}
