//! A program of Rust for another C library or processor: allocates in `gather`, on two threads.

#[inline(never)]
fn gather(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("number {number}")).collect()
}

fn main() {
    let other = std::thread::spawn(|| gather(1000));
    let lengths = gather(1000).iter().map(String::len).sum::<usize>();
    let others = other.join().map_or(0, |list| list.iter().map(String::len).sum());
    assert_eq!(lengths, others);
}
