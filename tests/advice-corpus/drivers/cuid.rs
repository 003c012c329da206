// Keys out of a request, checked.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let keys = ["ckopqwooh000001la8mbi2im9", "xkopqwooh000001la8mbi2im9", "ckopqwooh000101la8mbi2im9"];
    let valid = (0..rounds).filter(|round| cuid::is_cuid(keys[round % 3])).count();
    println!("{valid} keys");
}
