//! The programs that the lab starts.

use std::path::PathBuf;

use larder_base::installed;

use crate::error::{LabError, Result};

/// A program that `make build` stages.
pub fn built(program: &'static str) -> Result<PathBuf> {
    let directory = installed::programs();
    let path = directory.join(program);
    match path.is_file() {
        true => Ok(path),
        false => Err(LabError::NotBuilt { program, directory }),
    }
}
