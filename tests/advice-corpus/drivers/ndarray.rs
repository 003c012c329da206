// Small arrays whose number of dimensions is known when the program runs, made and summed row by row.
use ndarray::{Array, Axis, IxDyn};

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let mut sum = 0.0;
    for round in 0..rounds {
        let array = Array::<f64, IxDyn>::from_elem([4, 3, 1 + round % 3].as_slice(), round as f64);
        for row in array.axis_iter(Axis(0)) {
            sum += row.iter().sum::<f64>();
        }
    }
    println!("{sum}");
}
