// Connections, on each of which messages of growing length are read and split off, each gone before the next comes.
use bytes::{BufMut, BytesMut};

fn main() {
    let connections: usize = std::env::args().nth(1).map_or(1000, |word| word.parse().unwrap());
    let message = [7u8; 4096];
    let mut sum = 0;
    for _ in 0..connections {
        let mut buffer = BytesMut::with_capacity(64);
        for length in [50, 200, 600, 1500, 4000] {
            buffer.reserve(length);
            buffer.put_slice(&message[..length]);
            let frame = buffer.split();
            sum += frame.len() + usize::from(frame[0]);
        }
    }
    println!("{sum}");
}
