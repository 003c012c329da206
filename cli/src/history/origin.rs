//! The origin of a stored run: the commit that was checked and the machine that it ran on.

use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

/// Hexadecimal digits of a machine's id.
const ID_DIGITS: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Empty outside of a repository, or without git.
    pub id: String,
    /// Whether files that git tracks differ from the commit.
    pub dirty: bool,
}

impl Revision {
    pub fn of_current_directory() -> Self {
        let Some(id) = git(&["rev-parse", "HEAD"]) else {
            return Self::default();
        };
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Self::default();
        }
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
        Self {
            id,
            dirty: changed.is_none_or(|changed| !changed.is_empty()),
        }
    }
}

fn git(words: &[&str]) -> Option<String> {
    let done = Command::new("git")
        .args(words)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    done.status.success().then_some(text)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// A hash of the host's name: it tells machines apart without naming them.
    pub id: String,
    pub processor: String,
    pub cores: i64,
    pub kernel: String,
}

impl Machine {
    pub fn examine() -> Self {
        let machine = larder_base::machine::Machine::examine();
        let system = rustix::system::uname();
        let hash = Sha256::digest(system.nodename().to_bytes());
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            id: digits.chars().take(ID_DIGITS).collect(),
            processor: machine.processor,
            cores: i64::try_from(machine.cores).unwrap_or(0),
            kernel: machine.kernel,
        }
    }
}
