//! The imported file as a stream of bytes: standard input or a file, plain or compressed by zstd or
//! gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use larder_base::error::system;
use larder_base::failure::{Failure, Result};
use larder_base::printable;

/// Longer lines are split.
pub const MAX_LINE_BYTES: u64 = 1 << 20;

const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Opens a file, or standard input for `-`; the first bytes show the compression.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    open_stream(path).map_err(|error| failed(path, error))
}

fn open_stream(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut plain: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(64 << 10, File::open(path)?))
    };
    let begin = plain.fill_buf()?;
    Ok(if begin.starts_with(ZSTD) {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(plain)?))
    } else if begin.starts_with(GZIP) {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(plain)))
    } else {
        plain
    })
}

pub fn failed(path: &Path, error: io::Error) -> Failure {
    system(printable::name(path), "name a readable file")(error).into()
}
