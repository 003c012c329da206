//! Finds source files: where the debug information says, where `--source-path` says, at debuginfod.
//!
//! One thread. Each file is looked for once; memory grows with the files asked for. What a trace names
//! is not trusted: only files with the ending of a source language are found.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::debuginfod::Debuginfod;

/// Endings of source files.
const ENDINGS: &[&str] = &[
    "C", "S", "adb", "ads", "asm", "c", "c++", "cc", "cpp", "cppm", "cu", "cuh", "cxx", "d", "f",
    "f90", "go", "h", "h++", "hh", "hpp", "hxx", "inc", "inl", "ipp", "ixx", "l", "ll", "m", "mm",
    "nim", "py", "pyx", "rs", "s", "swift", "tcc", "tpp", "vala", "y", "yy", "zig",
];

/// Where sources are, beside the paths of the debug information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePath(Vec<Place>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The longest end of the path that exists below it.
    Below(PathBuf),
    Instead {
        of: String,
        to: String,
    },
}

impl SourcePath {
    /// `DIR:DIR:FROM=TO`.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        let parts = texts.iter().flat_map(|text| text.split(':'));
        parts.map(Place::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        let fault = |what: &str| {
            let text = larder_base::printable::escape(text);
            Err(format!("--source-path '{text}': {what}"))
        };
        match text.split_once('=') {
            Some(("", _) | (_, "")) => {
                fault("write FROM=TO, the beginning of a path and what to read instead")
            }
            Some((from, to)) => Ok(Place::Instead {
                of: from.trim_end_matches('/').to_owned(),
                to: to.trim_end_matches('/').to_owned(),
            }),
            None if text.is_empty() => fault("name a folder, or FROM=TO"),
            None if !Path::new(text).is_dir() => fault("no such folder: check the path"),
            None => Ok(Place::Below(text.into())),
        }
    }

    fn find(&self, path: &str) -> Option<PathBuf> {
        match self {
            Place::Below(folder) => {
                let parts: Vec<&str> = path
                    .split('/')
                    .filter(|part| !matches!(*part, "" | "." | ".."))
                    .collect();
                let mut ends = (0..parts.len()).map(|from| folder.join(parts[from..].join("/")));
                ends.find(|path| path.is_file())
            }
            Place::Instead { of, to } => {
                let rest = path.strip_prefix(&**of)?;
                let path = PathBuf::from(format!("{to}{rest}"));
                (rest.starts_with('/') && path.is_file()).then_some(path)
            }
        }
    }
}

/// A source file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSource {
    pub path: PathBuf,
    /// By build id, so it is the one that was compiled.
    pub is_compiled: bool,
}

/// Build id, and the path of the debug information.
type Key = (Vec<u8>, String);

pub struct Sources {
    path: SourcePath,
    debuginfod: Option<Arc<Debuginfod>>,
    known: RefCell<HashMap<Key, Option<FoundSource>>>,
}

impl Sources {
    pub fn new(path: SourcePath, debuginfod: Option<Arc<Debuginfod>>) -> Self {
        Self {
            path,
            debuginfod,
            known: RefCell::default(),
        }
    }

    /// The source of a build with this path in its debug information.
    pub fn find(&self, path: &str, build_id: &[u8]) -> Option<FoundSource> {
        let key = (build_id.to_vec(), path.to_owned());
        let known = self.known.borrow().get(&key).cloned();
        known.unwrap_or_else(|| {
            let found = self.look_for(path, build_id);
            self.known.borrow_mut().insert(key, found.clone());
            found
        })
    }

    fn look_for(&self, path: &str, build_id: &[u8]) -> Option<FoundSource> {
        let ending = Path::new(path).extension()?.to_str()?;
        if !ENDINGS.contains(&ending) {
            return None;
        }
        let own = PathBuf::from(path);
        let here = match own.is_file() {
            true => Some(own),
            false => self.path.0.iter().find_map(|place| place.find(path)),
        };
        let (path, is_compiled) = match here {
            Some(path) => (path, false),
            None => (self.debuginfod.as_ref()?.source(build_id, path)?, true),
        };
        Some(FoundSource { path, is_compiled })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(text: &str) -> Result<SourcePath, String> {
        SourcePath::parse(&[text.to_owned()])
    }

    #[test]
    fn a_source_is_found_at_its_place_or_at_those_given() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for place in ["new/src", "other/lib/src"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        for file in [
            "new/src/a.c",
            "other/lib/src/b.c",
            "other/b.c",
            "other/lib/key",
        ] {
            fs::write(root.join(file), "").unwrap();
        }
        let at = root.display().to_string();
        let path = parse(&format!("/build/app=/{at}/new:{at}/other")).unwrap();
        let sources = Sources::new(path, None);
        let find = |path: &str| {
            let found = sources.find(path, &[1])?;
            assert!(!found.is_compiled);
            Some(fs::canonicalize(found.path).unwrap())
        };
        let expected = |file: &str| Some(fs::canonicalize(root.join(file)).unwrap());
        assert_eq!(find(&format!("{at}/new/src/a.c")), expected("new/src/a.c"));
        assert_eq!(find("/build/app/src/a.c"), expected("new/src/a.c"));
        assert_eq!(find("/build/application/src/a.c"), None);
        // The longest end that exists.
        assert_eq!(find("/x/lib/src/b.c"), expected("other/lib/src/b.c"));
        assert_eq!(find("/x/src/b.c"), expected("other/b.c"));
        assert_eq!(find("../../b.c"), expected("other/b.c"));
        // No source.
        assert_eq!(find(&format!("{at}/other/lib/key")), None);
        assert_eq!(find("/x/lib/key"), None);
    }

    #[test]
    fn a_place_without_meaning_is_refused() {
        for text in ["", "=x", "x=", "/no/such/folder", "/tmp::"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.starts_with("--source-path '"), "{refused}");
        }
    }
}
