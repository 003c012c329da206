//! Writes a chunk: the header, the payload, compressed if it is of a kind that may be, and the padding.

use std::io::{self, Write};

use crate::columns;
use crate::layout::{CHUNK_ALIGN, ChunkHeader, ChunkKind, Contents, MAX_RATIO};

const COMPRESSION_LEVEL: i32 = 3;
/// Of a trace that is to be small: a fifth smaller, and a hundredth more than by the highest level. Its strategy is not
/// to be left out in `.cargo/config.toml`: zstd takes a faster one without a word.
const SMALL_LEVEL: i32 = 17;

/// Returns the bytes written. REQUIRES: payload and columns' lengths ≤ `MAX_RAW_BYTES`.
pub fn write(
    out: &mut impl Write,
    kind: ChunkKind,
    payload: &[u8],
    mut contents: Contents,
) -> io::Result<u64> {
    let columns = match kind {
        ChunkKind::Events => split(payload),
        ChunkKind::Ordered => columns::apart::split(payload),
        _ => None,
    };
    let raw = columns.as_deref().unwrap_or(payload);
    let packed = match kind {
        ChunkKind::Events => Some(compress(raw, COMPRESSION_LEVEL)?),
        ChunkKind::Ordered => Some(compress(raw, SMALL_LEVEL)?),
        ChunkKind::Counters => Some(compress(raw, COMPRESSION_LEVEL)?)
            .filter(|packed| raw.len() <= packed.len().saturating_mul(MAX_RATIO)),
        _ => None,
    };
    let packed = packed.filter(|packed| packed.len() < payload.len());
    let (stored, raw_bytes) = match &packed {
        Some(packed) => (packed.as_slice(), raw.len()),
        None => (payload, payload.len()),
    };
    contents.check_or_committed = crc32fast::hash(stored);
    let header = ChunkHeader {
        kind,
        compressed: packed.is_some(),
        columns: packed.is_some() && columns.is_some(),
        stored_bytes: stored.len() as u32,
        raw_bytes: raw_bytes as u32,
        contents,
    };
    let padding = stored.len().next_multiple_of(CHUNK_ALIGN as usize) - stored.len();
    let header = header.encode();
    let parts = [&header[..], stored, &[0; CHUNK_ALIGN as usize][..padding]];
    parts.iter().try_for_each(|part| out.write_all(part))?;
    Ok(parts.iter().map(|part| part.len() as u64).sum())
}

fn split(records: &[u8]) -> Option<Vec<u8>> {
    let mut work = vec![0; columns::COLUMNS * records.len()];
    let mut out = vec![0; records.len() + columns::HEADER_BYTES];
    columns::split(records, &mut work, &mut out).map(|_| out)
}

fn compress(raw: &[u8], level: i32) -> io::Result<Vec<u8>> {
    let mut packed = vec![0; zstd_safe::compress_bound(raw.len())];
    let length = zstd_safe::compress(packed.as_mut_slice(), raw, level)
        .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
    packed.truncate(length);
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_small_traces_has_its_strategy() {
        let mut random = 1u64;
        let control = |_| {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            match (random >> 33) % 100 {
                ..70 => 12,
                70..90 => 44,
                _ => 46,
            }
        };
        let bytes: Vec<u8> = (0..1 << 19).map(control).collect();
        let length = |level| compress(&bytes, level).unwrap().len();
        let (usual, small) = (length(COMPRESSION_LEVEL), length(SMALL_LEVEL));
        assert!(small * 10 < usual * 9, "{small} of {usual}");
    }
}
