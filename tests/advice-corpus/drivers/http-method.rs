// Requests of a versioning WebDAV client: their methods are parsed.
use http::Method;

fn main() {
    let requests: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let names: [&[u8]; 4] = [b"GET", b"VERSION-CONTROL", b"PROPFIND", b"CHECKOUT"];
    let mut safe = 0;
    for request in 0..requests {
        safe += Method::from_bytes(names[request % 4]).unwrap().is_safe() as usize;
    }
    println!("{safe} of {requests} are safe");
}
