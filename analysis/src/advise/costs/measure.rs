//! Measures this process's malloc. Takes about 100 ms.
//!
//! A time is the minimum over several rounds of a loop, so it is the least that can be saved: a block
//! outside of the caches costs more.

use std::ffi::{CStr, OsStr, c_void};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use super::table::{LARGEST_BLOCK, PAIR_SIZES, Table, ZERO_SIZES};

const ROUNDS: usize = 15;
const ROUND_PAIRS: u64 = 2000;
/// Bytes zeroed in a round.
const ROUND_BYTES: u64 = 1 << 20;
/// A block may be larger than its class if the rest would be too small for another block.
const BLOCKS_A_SIZE: usize = 8;
/// glibc has a word before each block that malloc_usable_size does not include.
const GLIBC_HEADER_BYTES: u64 = 8;

/// The costs in this process.
pub fn here() -> Table {
    // Blocks first, before any free, so that no larger freed block is split.
    let blocks = block_classes();
    Table {
        pair_ns: PAIR_SIZES.map(time_pair).to_vec(),
        zero_ns: ZERO_SIZES.map(time_zeroing).to_vec(),
        blocks,
    }
}

/// The file with this process's malloc.
pub fn malloc_file() -> Option<PathBuf> {
    file_of(libc::malloc as *const c_void)
}

/// The file of the C library, whether or not its malloc is used.
pub fn libc_file() -> Option<PathBuf> {
    file_of(libc::gnu_get_libc_version as *const c_void)
}

fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and fills the struct, for which zeros are valid.
    let info =
        unsafe { (libc::dladdr(function, found.as_mut_ptr()) != 0).then(|| found.assume_init()) }?;
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader's, which stays while the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn block_classes() -> Vec<(u64, u64)> {
    let file = malloc_file();
    let is_libc = file.is_some() && file == libc_file();
    let header = if is_libc { GLIBC_HEADER_BYTES } else { 0 };
    // Before a class is in use, its blocks may come from a larger one.
    (1..=LARGEST_BLOCK).for_each(|size| {
        usable_bytes(size);
    });
    let mut classes: Vec<(u64, u64)> = Vec::new();
    // In descending order: a size takes no more than a larger one.
    let mut least = u64::MAX;
    for size in (1..=LARGEST_BLOCK).rev() {
        let bytes = usable_bytes(size) + header;
        if bytes < least {
            least = bytes;
            classes.push((size, bytes));
        }
    }
    classes.reverse();
    classes
}

fn usable_bytes(size: u64) -> u64 {
    // SAFETY: blocks that were just made, each freed once; null is allowed in both.
    unsafe {
        let blocks = [(); BLOCKS_A_SIZE].map(|()| libc::malloc(black_box(size as usize)));
        let usable = blocks.map(|block| libc::malloc_usable_size(block) as u64);
        blocks.iter().for_each(|block| libc::free(*block));
        usable.into_iter().min().unwrap_or(0).max(size)
    }
}

fn time_pair(size: u64) -> f64 {
    least_ns(ROUND_PAIRS, || {
        // SAFETY: the block is not used but for its first byte, and freed once.
        unsafe {
            let block = libc::malloc(black_box(size as usize));
            if !block.is_null() {
                block.cast::<u8>().write_volatile(1);
            }
            libc::free(black_box(block));
        }
    })
}

fn time_zeroing(size: u64) -> f64 {
    let mut bytes = vec![1u8; size as usize];
    least_ns(ROUND_BYTES / size, || black_box(&mut bytes).fill(0))
}

/// Nanoseconds of one iteration, in the fastest round.
fn least_ns(times: u64, mut once: impl FnMut()) -> f64 {
    let mut round = || {
        let begin = Instant::now();
        for _ in 0..times {
            once();
        }
        begin.elapsed().as_nanos() as f64 / times as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_takes_a_word_and_steps_of_16_at_least_32() {
        let table = here();
        assert_eq!(
            Table::parse(&table.to_string()).unwrap().blocks,
            table.blocks
        );
        assert_eq!(
            [1, 24, 25, 40, 1000].map(|size| table.block_bytes(size)),
            [32, 32, 48, 48, 1008]
        );
        assert!(table.pair_ns(16) > 0.0);
        assert!(table.zero_ns(1 << 20) > table.zero_ns(4096));
    }
}
