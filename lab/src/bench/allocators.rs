//! The allocators to compare: Larder, the system's malloc, the peers that `make peers` built or that
//! Debian packages, and libraries named on the command line.
//!
//! glibc is preloaded like the others: a program that links a malloc of its own (Debian's redis-server does)
//! would otherwise run on that.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use larder_base::cache;
use larder_base::failure::Fatal;
use larder_base::libraries::{Library, LibraryNotFound, LibraryPath};
use larder_base::order;
use larder_base::printable;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{GLIBC, LARDER, machine};

/// The variable with the folder of the peers, if it is not the default.
const PEERS_FILE: &str = "peers.json";

/// name, file, Debian package
const DEBIAN: [(&str, &str, &str); 3] = [
    ("jemalloc-5.3.0", "libjemalloc.so.2", "libjemalloc2"),
    ("mimalloc-2.0", "libmimalloc.so.2", "libmimalloc2.0"),
    (
        "gperftools",
        "libtcmalloc_minimal.so.4",
        "libtcmalloc-minimal4",
    ),
];

/// Why an allocator cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum AllocatorError {
    #[error(
        "{option} '{}': write NAME=PATH, or NAME=PATH,VARIABLE=VALUE to set a variable for it",
        printable::escape(text)
    )]
    Argument { option: &'static str, text: String },
    #[error(
        "{name}: {}: {}: give the path of a shared library",
        printable::name(library),
        larder_base::target::reason(source)
    )]
    Library {
        name: String,
        library: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{}: {}: run `make peers` again",
        printable::name(path),
        printable::escape(cause)
    )]
    Peers { path: PathBuf, cause: String },
    #[error("libc.so.6 is not in /proc/self/maps: mount /proc")]
    NoLibc,
    #[error("{name}: {file} is not installed: apt-get install {package}")]
    NotInstalled {
        name: String,
        file: &'static str,
        package: &'static str,
    },
    #[error(
        "no allocator is called '{}'; there are {}: {}or give --peer NAME=PATH",
        printable::escape(name), known.join(", "), offer(missing_peers.as_deref())
    )]
    Unknown {
        name: String,
        known: Vec<String>,
        /// The list of peers, where `make peers` would write it.
        missing_peers: Option<PathBuf>,
    },
    #[error(transparent)]
    Larder(#[from] LibraryNotFound),
}

fn offer(missing_peers: Option<&Path>) -> String {
    let say = |path| {
        format!(
            "`make peers` builds more ({} is not there), ",
            printable::name(path)
        )
    };
    missing_peers.map(say).unwrap_or_default()
}

impl Fatal for AllocatorError {}

type Result<T> = std::result::Result<T, AllocatorError>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocator {
    pub name: String,
    pub version: String,
    /// Absolute and free of symbolic links.
    pub library: PathBuf,
    pub sha256: String,
    /// Where it comes from.
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    pub note: String,
    /// Variables of its own, to compare settings.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

impl Allocator {
    fn new(name: &str, version: &str, library: &Path, source: &str) -> Result<Allocator> {
        let failed = |source| AllocatorError::Library {
            name: name.to_owned(),
            library: library.to_owned(),
            source,
        };
        let library = library.canonicalize().map_err(failed)?;
        Ok(Allocator {
            name: name.to_owned(),
            version: version.to_owned(),
            sha256: sha256(&library).map_err(failed)?,
            library,
            source: source.to_owned(),
            ..Allocator::default()
        })
    }

    /// Whether it is the same code with the same settings; the path may differ.
    pub fn is_same(&self, other: &Allocator) -> bool {
        self.sha256 == other.sha256 && self.environment == other.environment
    }
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// `NAME=PATH[,VARIABLE=VALUE]…` of the command line, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraPeer {
    pub name: String,
    pub library: PathBuf,
    pub environment: BTreeMap<String, String>,
}

impl ExtraPeer {
    /// `option` is the one that it was given with.
    pub fn parse(option: &'static str, text: &str) -> Result<ExtraPeer> {
        let wrong = || AllocatorError::Argument {
            option,
            text: text.to_owned(),
        };
        let mut words = text.split(',');
        let (name, path) = words
            .next()
            .and_then(|w| w.split_once('='))
            .ok_or_else(wrong)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
        if name.is_empty() || path.is_empty() || !name.chars().all(plain) {
            return Err(wrong());
        }
        let environment = words
            .map(|word| {
                let (name, value) = word.split_once('=').filter(|(name, _)| !name.is_empty())?;
                Some((name.to_owned(), value.to_owned()))
            })
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        Ok(ExtraPeer {
            name: name.to_owned(),
            library: path.into(),
            environment,
        })
    }
}

/// What the user chose.
#[derive(Debug)]
pub struct Choice<'a> {
    /// None: all that are installed.
    pub names: Option<&'a [String]>,
    pub extra: &'a [ExtraPeer],
    pub larder: Option<&'a Path>,
}

/// The allocators to compare, Larder first, and notes on the choice for the report.
pub fn find(choice: &Choice) -> Result<(Vec<Allocator>, Vec<String>)> {
    let catalogue = Catalogue::read(&cache::peers())?;
    let mut notes = Vec::new();
    let names: Vec<String> = match choice.names {
        Some(names) => names.to_vec(),
        None => {
            if catalogue.built.is_none() {
                notes.push(format!(
                    "There is no {PEERS_FILE}: compared with Debian's packages alone. To build all peers: make peers."
                ));
            }
            catalogue.default_names()
        }
    };
    let mut found: Vec<Allocator> = Vec::new();
    let extra = choice.extra.iter().map(|peer| &peer.name);
    for name in names.iter().chain(extra) {
        if found.iter().any(|allocator| allocator.name == *name) {
            continue;
        }
        found.push(match choice.extra.iter().find(|peer| peer.name == *name) {
            Some(peer) => {
                let mut allocator = Allocator::new(name, "", &peer.library, "--peer")?;
                allocator.environment = peer.environment.clone();
                allocator
            }
            None => catalogue.find(name, choice)?,
        });
    }
    Ok((found, notes))
}

#[derive(Debug, Deserialize)]
struct PeersFile {
    peers: Vec<Peer>,
}

#[derive(Debug, Deserialize)]
struct Peer {
    name: String,
    #[serde(default)]
    version: String,
    library: PathBuf,
    #[serde(default)]
    source: String,
    #[serde(default)]
    note: String,
    /// Variables that its documentation requires.
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

/// The peers that could be compared.
struct Catalogue {
    directory: PathBuf,
    /// None: `make peers` has not been run.
    built: Option<Vec<Peer>>,
}

impl Catalogue {
    fn read(directory: &Path) -> Result<Catalogue> {
        let path = directory.join(PEERS_FILE);
        let failed = |cause| AllocatorError::Peers {
            path: path.clone(),
            cause,
        };
        let built = match fs::read_to_string(&path) {
            Ok(text) => {
                let file: PeersFile =
                    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
                Some(file.peers)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(larder_base::target::reason(&error))),
        };
        Ok(Catalogue {
            directory: directory.to_owned(),
            built,
        })
    }

    /// Larder, glibc, then the peers by name.
    fn default_names(&self) -> Vec<String> {
        let mut peers: Vec<String> = match &self.built {
            Some(built) => built.iter().map(|peer| peer.name.clone()).collect(),
            None => DEBIAN.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        };
        order::sort_by(&mut peers, Ord::cmp);
        let first = [LARDER, GLIBC].map(str::to_owned);
        first.into_iter().chain(peers).collect()
    }

    fn find(&self, name: &str, choice: &Choice) -> Result<Allocator> {
        if name == LARDER {
            return larder(choice.larder);
        }
        if name == GLIBC {
            let library = loaded_libc().ok_or(AllocatorError::NoLibc)?;
            return Allocator::new(GLIBC, &machine::libc_version(), &library, "the system");
        }
        let built = self.built.iter().flatten().find(|peer| peer.name == name);
        if let Some(peer) = built {
            let mut allocator = Allocator::new(name, &peer.version, &peer.library, &peer.source)?;
            allocator.note = peer.note.clone();
            allocator.environment = peer.environment.clone();
            return Ok(allocator);
        }
        if let Some((_, file, package)) = DEBIAN.iter().find(|(debian, ..)| *debian == name) {
            let library = debian_folders().map(|folder| folder.join(file));
            let library = library
                .into_iter()
                .find(|path| path.exists())
                .ok_or_else(|| AllocatorError::NotInstalled {
                    name: name.to_owned(),
                    file,
                    package,
                })?;
            return Allocator::new(name, "", &library, &format!("Debian package {package}"));
        }
        let mut known = self.default_names();
        known.extend(choice.extra.iter().map(|peer| peer.name.clone()));
        Err(AllocatorError::Unknown {
            name: name.to_owned(),
            known,
            missing_peers: match self.built {
                Some(_) => None,
                None => Some(self.directory.join(PEERS_FILE)),
            },
        })
    }
}

fn larder(path: Option<&Path>) -> Result<Allocator> {
    let version = env!("CARGO_PKG_VERSION");
    match path {
        Some(path) => Allocator::new(LARDER, version, path, "--larder"),
        None => {
            let library = LibraryPath::from_environment().find(Library::Allocator)?;
            Allocator::new(LARDER, version, &library, "this build")
        }
    }
}

/// The C library that this process itself runs on.
fn loaded_libc() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    paths
        .filter(|path| path.ends_with("/libc.so.6"))
        .map(PathBuf::from)
        .next()
}

fn debian_folders() -> [PathBuf; 2] {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    [Path::new("/usr/lib").join(triplet), "/usr/lib".into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_peer_has_a_name_a_path_and_perhaps_variables() {
        let peer = ExtraPeer::parse("--peer", "old=/tmp/old.so,LARDER_COLOUR=0,A=b=c").unwrap();
        assert_eq!(peer.name, "old");
        assert_eq!(peer.library, Path::new("/tmp/old.so"));
        assert_eq!(peer.environment["LARDER_COLOUR"], "0");
        assert_eq!(peer.environment["A"], "b=c");
        for wrong in ["", "old", "=x", "old=", "o d=x", "old=x,y", "old=x,=y"] {
            let error = ExtraPeer::parse("--peer", wrong).unwrap_err();
            assert!(matches!(error, AllocatorError::Argument { .. }), "{error}");
        }
    }

    #[test]
    fn built_peers_come_by_name_behind_larder_and_glibc() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"peers": [{"name": "z", "version": "2", "library": "/z.so"},
                                 {"name": "a", "version": "1", "library": "/a.so"}]}"#;
        fs::write(folder.path().join(PEERS_FILE), text).unwrap();
        let catalogue = Catalogue::read(folder.path()).unwrap();
        assert_eq!(catalogue.default_names(), ["larder", "glibc", "a", "z"]);
    }

    #[test]
    fn without_built_peers_debians_are_offered() {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::read(folder.path()).unwrap();
        assert_eq!(catalogue.default_names().len(), 2 + DEBIAN.len());
        let choice = Choice {
            names: None,
            extra: &[],
            larder: None,
        };
        let error = catalogue.find("hoard", &choice).unwrap_err();
        let AllocatorError::Unknown {
            known,
            missing_peers,
            ..
        } = error
        else {
            panic!("{error}")
        };
        assert!(known.iter().any(|name| name == "jemalloc-5.3.0"));
        assert_eq!(missing_peers, Some(folder.path().join(PEERS_FILE)));
    }

    #[test]
    fn a_damaged_list_of_peers_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(PEERS_FILE), "{\"peers\": [{}]}").unwrap();
        let error = Catalogue::read(folder.path()).err().unwrap();
        assert!(matches!(error, AllocatorError::Peers { .. }), "{error}");
    }

    #[test]
    fn glibc_is_the_one_we_run_on() {
        assert!(loaded_libc().unwrap().is_file());
    }

    #[test]
    fn the_hash_is_the_known_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abc");
        fs::write(&file, "abc").unwrap();
        assert_eq!(
            sha256(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
