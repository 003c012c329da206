// Host names of links, made ready for a look-up.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let hosts = ["Www.Example.org", "bücher.example", "straße.net", "xn--bcher-kva.example", "日本語.example"];
    let mut bytes = 0;
    for round in 0..rounds {
        bytes += idna::domain_to_ascii(hosts[round % 5]).unwrap().len();
    }
    println!("{bytes} bytes");
}
