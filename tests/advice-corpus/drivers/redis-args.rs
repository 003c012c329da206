// Commands for a server that set several keys each, packed as they go over the wire.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(1000, |word| word.parse().unwrap());
    let fields: Vec<String> = (0..12).map(|number| format!("field:{number}")).collect();
    let mut bytes = 0;
    for _ in 0..rounds {
        let mut command = redis::cmd("DEL");
        command.arg(&fields[..]);
        bytes += command.get_packed_command().len();
    }
    println!("{bytes} bytes");
}
