// Texts of sixty lines, compared with what became of them: a line before, a line behind.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(200, |word| word.parse().unwrap());
    let before: Vec<usize> = (0..60).collect();
    let mut added = 0;
    for round in 0..rounds {
        let after: Vec<usize> = [100 + round].into_iter().chain(0..60).chain([200 + round]).collect();
        let parts = diff::slice(&before, &after);
        added += parts.iter().filter(|part| matches!(part, diff::Result::Right(_))).count();
    }
    println!("{added} lines");
}
