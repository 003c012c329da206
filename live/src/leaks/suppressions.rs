//! Reads a suppression file.

use std::io::Read;
use std::path::Path;

use larder_analysis::reading::losses;
use larder_analysis::reading::suppressions::Suppressions;
use larder_base::error::system;
use larder_base::number::counted;
use larder_base::printable;
use larder_base::regular::open_regular;

use crate::error::{LiveError, Result};
use crate::process::MAX_SUPPRESSION_BYTES;

/// Warns of lines that are no suppressions.
pub fn read(path: &Path) -> Result<Suppressions> {
    let name = printable::name(path);
    let mut text = Vec::new();
    let read = open_regular(path)
        .and_then(|file| file.take(MAX_SUPPRESSION_BYTES + 1).read_to_end(&mut text));
    read.map_err(system(&name, "name a file of lines leak:PATTERN"))?;
    if text.len() as u64 > MAX_SUPPRESSION_BYTES {
        return Err(LiveError::LongSuppressions(path.to_owned()));
    }
    let (list, bad) = Suppressions::parse(&String::from_utf8_lossy(&text));
    if let Some(first) = bad.first() {
        let lines = counted(bad.len() as u64, "such line");
        losses::warn(&format!(
            "{name}: line {first}: not leak:PATTERN; {lines} left out"
        ));
    }
    Ok(list)
}
