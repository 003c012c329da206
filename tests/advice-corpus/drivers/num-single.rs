// Random numbers of one digit, made with big integers.
use num_bigint::BigUint;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let factor = BigUint::from(16807u32);
    let modulus = BigUint::from(2_147_483_647u32);
    let mut number = BigUint::from(1u32);
    for _ in 0..rounds {
        number = &number * &factor % &modulus;
    }
    println!("{number}");
}
