// Links to addresses, not names, taken apart.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(4000, |word| word.parse().unwrap());
    let links = ["http://192.168.0.1/status", "http://127.0.0.1:8080/", "http://10.1.2.3/a/b",
                 "https://1.1.1.1/dns-query"];
    let mut bytes = 0;
    for round in 0..rounds {
        let link = url::Url::parse(links[round % 4]).unwrap();
        bytes += link.host_str().unwrap().len() + link.path().len();
    }
    println!("{bytes} bytes");
}
