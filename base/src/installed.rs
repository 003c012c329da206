//! The tool's installed tree: files relative to the tool's own real path, which is `bin/larder`,
//! `libexec/larder/larder-lab`, or either in cargo's folder.

use std::env;
use std::path::{Path, PathBuf};

use crate::failure::Fatal;
use crate::printable;

/// The variable with the folder of the programs that the tool starts, if it is not in its own tree.
pub const PROGRAMS_VARIABLE: &str = "LARDER_LIBEXEC";

const PROGRAMS: &str = "libexec/larder";

/// Why a program of Larder's is not found.
#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    #[error("{name} cannot be found, as the tool's own path is unknown: start larder by its path")]
    OwnPathUnknown { name: String },
    #[error(
        "{name} is not in {}: run `make build` and use out/bin/larder, or install all of Larder",
        looked.iter().map(printable::name).collect::<Vec<_>>().join(" or ")
    )]
    Missing { name: String, looked: Vec<PathBuf> },
}

impl Fatal for InstalledError {}

/// The folder of the program that runs.
fn own_folder() -> Option<PathBuf> {
    let program = env::current_exe().and_then(|exe| exe.canonicalize()).ok()?;
    Some(program.parent()?.to_owned())
}

/// The prefix of a program in this folder.
fn prefix(folder: &Path) -> Option<&Path> {
    let beneath = if folder.ends_with(PROGRAMS) {
        folder.parent()?
    } else {
        folder
    };
    beneath.parent()
}

/// `relative` to the prefix, if the tool's own path is known.
pub fn under_prefix(relative: &str) -> Option<PathBuf> {
    Some(prefix(&own_folder()?)?.join(relative))
}

/// The folder of programs: `$LARDER_LIBEXEC`, or `libexec/larder` under the prefix.
pub fn programs() -> PathBuf {
    let given = env::var_os(PROGRAMS_VARIABLE).filter(|value| !value.is_empty());
    given
        .map(PathBuf::from)
        .or_else(|| under_prefix(PROGRAMS))
        .unwrap_or_default()
}

/// `larder` itself, for the programs beside it.
pub fn tool() -> Result<PathBuf, InstalledError> {
    find("larder", "bin")
}

/// `larder-lab`, for the tool.
pub fn lab() -> Result<PathBuf, InstalledError> {
    find("larder-lab", PROGRAMS)
}

/// In the folder of the program that runs, else in this one under the prefix.
fn find(name: &str, under: &str) -> Result<PathBuf, InstalledError> {
    let Some(own) = own_folder() else {
        let name = name.to_owned();
        return Err(InstalledError::OwnPathUnknown { name });
    };
    let staged = prefix(&own).map(|prefix| prefix.join(under));
    let places = || std::iter::once(&own).chain(staged.as_ref().filter(|place| **place != own));
    let found = places().map(|place| place.join(name)).find(|p| p.is_file());
    found.ok_or_else(|| InstalledError::Missing {
        name: name.to_owned(),
        looked: places().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_programs_know_one_prefix() {
        for folder in ["/opt/larder/bin", "/opt/larder/libexec/larder"] {
            assert_eq!(prefix(Path::new(folder)), Some(Path::new("/opt/larder")));
        }
    }

    #[test]
    fn a_missing_program_is_named_with_the_places_searched() {
        let error = find("larder-none", "nowhere").unwrap_err();
        let InstalledError::Missing { name, looked } = error else {
            panic!("{error}")
        };
        assert_eq!(name, "larder-none");
        assert!(looked.last().unwrap().ends_with("nowhere"), "{looked:?}");
    }
}
