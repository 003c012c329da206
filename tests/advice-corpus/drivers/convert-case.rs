// Names of fields, turned from one convention into another.
use convert_case::{Case, Casing};

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(300, |word| word.parse().unwrap());
    let names = ["firstName", "postalCode", "XmlHttpRequest", "createdAt"];
    let mut bytes = 0;
    for round in 0..rounds {
        bytes += names[round % 4].to_case(Case::Snake).len();
    }
    println!("{bytes} bytes");
}
