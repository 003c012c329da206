// Messages of 300 bytes, read into a buffer in pieces of 512 and taken from its front.
use bytes::{Buf, BufMut, BytesMut};

fn main() {
    let pieces: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let piece = [7u8; 512];
    let mut sum = 0u64;
    for connection in 0..pieces / 50 {
        let mut buffer = BytesMut::with_capacity(1024 + connection % 2);
        for _ in 0..50 {
            buffer.reserve(piece.len());
            buffer.put_slice(&piece);
            while buffer.len() >= 300 {
                sum += u64::from(buffer[0]);
                buffer.advance(300);
            }
        }
    }
    println!("{sum}");
}
