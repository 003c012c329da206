//! Holds 64 MiB until its input ends, for `larder stats`, `larder profile` and their like to look at.

use std::io::{self, Read};

#[global_allocator]
static ALLOCATOR: larder_malloc::Larder = larder_malloc::Larder;

fn main() -> io::Result<()> {
    let held = vec![1u8; 64 << 20];
    println!("{}", larder_malloc::version());
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(held);
    Ok(())
}
