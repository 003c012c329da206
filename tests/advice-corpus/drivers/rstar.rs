// Points that move: each is taken out of the tree and put back elsewhere.
use rstar::RTree;

fn main() {
    let moves: i32 = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let place = |number: i32| [number * 37 % 1009, number * 53 % 1013];
    let mut tree = RTree::bulk_load((0..500).map(place).collect::<Vec<[i32; 2]>>());
    let mut removed = 0;
    for number in 0..moves {
        removed += tree.remove(&place(number)).is_some() as usize;
        tree.insert(place(number + 500));
    }
    println!("{removed} moved, {} left", tree.size());
}
