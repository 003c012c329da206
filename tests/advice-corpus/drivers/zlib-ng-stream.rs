// Answers of a server, each unpacked as it comes in, in two parts, by a stream of its own.
use libz_ng_sys::{compress2, inflate, inflateEnd, z_stream, zng_inflateInit, Z_NO_FLUSH};
use std::mem::MaybeUninit;

fn main() {
    let answers: usize = std::env::args().nth(1).map_or(500, |word| word.parse().unwrap());
    let answer: Vec<u8> = (0..2000).map(|at| (at / 7 * 31) as u8).collect();
    let mut packed = [0u8; 4096];
    let mut size = packed.len();
    assert!(unsafe { compress2(packed.as_mut_ptr(), &mut size, answer.as_ptr(), answer.len(), 6) } == 0);
    let mut unpacked = [0u8; 2048];
    let mut sum = 0;
    for _ in 0..answers {
        let mut room = MaybeUninit::<z_stream>::zeroed();
        let stream = room.as_mut_ptr();
        unsafe {
            assert!(zng_inflateInit(stream) == 0);
            (*stream).next_out = unpacked.as_mut_ptr();
            (*stream).avail_out = unpacked.len() as u32;
            for part in packed[..size].chunks_mut(size.div_ceil(2)) {
                (*stream).next_in = part.as_mut_ptr();
                (*stream).avail_in = part.len() as u32;
                inflate(stream, Z_NO_FLUSH);
            }
            sum += (*stream).total_out;
            inflateEnd(stream);
        }
        assert!(unpacked[..2000] == answer);
    }
    println!("{sum} bytes");
}
