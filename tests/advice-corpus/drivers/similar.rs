// Two versions of a list, whose elements are numbered before they are compared.
use similar::algorithms::IdentifyDistinct;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(200, |word| word.parse().unwrap());
    let old: Vec<u64> = (0..100).map(|number| number * 7 % 64).collect();
    let new: Vec<u64> = (0..100).map(|number| number * 5 % 64).collect();
    let mut numbers = 0;
    for _ in 0..rounds {
        let ids = IdentifyDistinct::<u32>::new(&old[..], 0..old.len(), &new[..], 0..new.len());
        numbers += ids.old_range().len() + ids.new_range().len();
    }
    println!("{numbers} numbers");
}
