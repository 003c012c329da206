fn main() {
    let n: usize = std::env::args().nth(1).map_or(1000, |w| w.parse().unwrap());
    let mut found = 0;
    for _ in 0..n { found += glob::glob("/usr/include/linux/types.h").unwrap().count(); }
    println!("{found}");
}
