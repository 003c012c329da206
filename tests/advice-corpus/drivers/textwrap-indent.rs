// Paragraphs quoted in the manner of mail.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let paragraph = "One line of a letter that is answered.\nAnother one, which is longer than the first.\nBye.\n";
    let texts: Vec<String> = (1..=5).map(|times| paragraph.repeat(times)).collect();
    let mut bytes = 0;
    for round in 0..rounds {
        bytes += textwrap::indent(&texts[round % 5], "> ").trim_end().len();
    }
    println!("{bytes} bytes");
}
