// Short messages, each compressed and unpacked with a stream of its own.
use libz_ng_sys::{compress2, uncompress};

fn main() {
    let messages: usize = std::env::args().nth(1).map_or(500, |word| word.parse().unwrap());
    let mut packed = [0u8; 2048];
    let mut unpacked = [0u8; 1024];
    let mut sum = 0;
    for number in 0..messages {
        let message = [number as u8; 1000];
        let (mut packed_size, mut size) = (packed.len(), unpacked.len());
        let failed = unsafe {
            compress2(packed.as_mut_ptr(), &mut packed_size, message.as_ptr(), message.len(), 6)
                | uncompress(unpacked.as_mut_ptr(), &mut size, packed.as_ptr(), packed_size)
        };
        assert!(failed == 0 && unpacked[..size] == message);
        sum += size;
    }
    println!("{sum} bytes");
}
