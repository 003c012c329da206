//! The processes that are served: the named ones, or all of this user that run on Larder, which are
//! searched for at each request.
//!
//! The result for a process is cached as long as the process runs the same program. That a process does
//! not run on Larder is cached after it had time to load its libraries; for one that does, a file stays
//! open. So a search reads a few small files of each process of the user, and all of new ones.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_base::order;
use larder_base::printable;
use regex::Regex;

use crate::process::{Obstacle, Process};

/// Up to this many processes are served, those with the lowest numbers.
pub const MOST: usize = 500;
/// Time in which a program has loaded its libraries, also under load.
const LOADING: Duration = Duration::from_secs(10);
/// Limit on the remembered processes that have ended.
const MOST_ENDED: usize = 1000;

#[derive(Debug)]
pub enum Which {
    These(Vec<u32>),
    /// Processes of this user whose names match; `None`: all.
    Matching(Option<Regex>),
}

/// Why a process is not served.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// It was never served.
    Unknown,
    Ended,
    Obstacle(Obstacle),
}

/// Identifies a program in a process: numbers are reused, and exec replaces the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    /// Clock ticks.
    started: u64,
    /// The first mapping's address, and its file, because addresses are not always randomised.
    program: u64,
    file: (u64, u64),
}

impl Identity {
    /// `None`: there is no such process, it is ending, or it is a kernel thread.
    fn of(id: u32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
        // The name, in brackets, may contain anything.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(stat.get(end + 2..)?).ok()?.split(' ');
        let started = fields.nth(19)?.parse().ok()?;
        let mut maps = [0; 16];
        File::open(format!("/proc/{id}/maps"))
            .and_then(|mut file| file.read_exact(&mut maps))
            .ok()?;
        let start = maps.split(|byte| *byte == b'-').next()?;
        let program = u64::from_str_radix(std::str::from_utf8(start).ok()?, 16).ok()?;
        let file = fs::metadata(format!("/proc/{id}/exe"));
        Some(Self {
            started,
            program,
            file: file.map_or((0, 0), |file| (file.dev(), file.ino())),
        })
    }
}

struct Known {
    identity: Identity,
    found: Result<Arc<Process>, Obstacle>,
    /// Since when the identity has been the same.
    since: Instant,
    /// When it was opened last, it had had time to load its libraries.
    is_settled: bool,
}

impl Known {
    fn new(id: u32, identity: Identity, since: Instant) -> Self {
        Self {
            identity,
            is_settled: since.elapsed() > LOADING,
            found: Process::open(id).map(Arc::new),
            since,
        }
    }
}

#[derive(Default)]
struct Seen {
    known: HashMap<u32, Known>,
    ended: VecDeque<u32>,
}

pub struct Targets {
    which: Which,
    seen: Mutex<Seen>,
}

impl Targets {
    /// Fails if a named process does not exist, or does not run on Larder.
    pub fn new(which: Which) -> Result<Self, (u32, Obstacle)> {
        let targets = Self {
            which,
            seen: Mutex::default(),
        };
        if let Which::These(ids) = &targets.which {
            for id in ids {
                targets.get(*id).map_err(|missing| match missing {
                    Missing::Obstacle(obstacle) => (*id, obstacle),
                    // The identity of another user's process cannot be read either.
                    Missing::Unknown | Missing::Ended => {
                        (*id, Process::open(*id).err().unwrap_or(Obstacle::NoProcess))
                    }
                })?;
            }
        }
        Ok(targets)
    }

    /// The running ones, by their numbers.
    pub fn all(&self) -> Vec<Arc<Process>> {
        let mut seen = self.lock();
        let mut ids = match &self.which {
            Which::These(ids) => ids.clone(),
            Which::Matching(name) => matching(name.as_ref()),
        };
        order::sort_by(&mut ids, Ord::cmp);
        ids.dedup();
        let known: Vec<u32> = seen.known.keys().copied().collect();
        for id in known {
            if Identity::of(id).is_none() {
                seen.ends(id);
            }
        }
        let found = ids.iter().filter_map(|id| seen.open(*id).ok());
        found.take(MOST).collect()
    }

    pub fn get(&self, id: u32) -> Result<Arc<Process>, Missing> {
        let mut seen = self.lock();
        let served = match &self.which {
            Which::These(ids) => ids.contains(&id),
            Which::Matching(name) => {
                is_own(id)
                    && name
                        .as_ref()
                        .is_none_or(|name| name.is_match(&self::name(id)))
            }
        };
        if served {
            return seen.open(id);
        }
        // A process that has ended has no user and no name.
        match Identity::of(id) {
            None if seen.known.contains_key(&id) => seen.open(id),
            None if seen.ended.contains(&id) => Err(Missing::Ended),
            _ => Err(Missing::Unknown),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn open(&mut self, id: u32) -> Result<Arc<Process>, Missing> {
        let now = Identity::of(id);
        let Some(identity) = now else {
            let was = self.ends(id) || self.ended.contains(&id);
            return Err(if was {
                Missing::Ended
            } else {
                Missing::Unknown
            });
        };
        let known = self.known.get(&id);
        let known = known.filter(|known| known.identity == identity);
        if !known.is_some_and(|known| known.found.is_ok() || known.is_settled) {
            let since = known.map_or_else(Instant::now, |known| known.since);
            self.known.insert(id, Known::new(id, identity, since));
        }
        match self.known.get(&id).map(|known| &known.found) {
            Some(Ok(process)) => Ok(process.clone()),
            Some(Err(obstacle)) => Err(Missing::Obstacle(obstacle.clone())),
            None => Err(Missing::Unknown),
        }
    }

    /// Whether it was on Larder.
    fn ends(&mut self, id: u32) -> bool {
        let known = self.known.remove(&id);
        let was = known.is_some_and(|known| known.found.is_ok());
        if was {
            self.ended.push_back(id);
            if self.ended.len() > MOST_ENDED {
                self.ended.pop_front();
            }
        }
        was
    }
}

/// The kernel's name for it, printable.
pub fn name(id: u32) -> String {
    let name = fs::read(format!("/proc/{id}/comm")).unwrap_or_default();
    printable::escape_bytes(name.trim_ascii_end())
}

fn is_own(id: u32) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(format!("/proc/{id}")).is_ok_and(|process| process.uid() == user)
}

fn matching(pattern: Option<&Regex>) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| is_own(*id) && pattern.is_none_or(|pattern| pattern.is_match(&name(*id))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_the_same_as_long_as_it_runs() {
        let own = std::process::id();
        assert!(is_own(own) && matching(None).contains(&own));
        assert_eq!(Identity::of(own), Identity::of(own));
        assert!(Identity::of(own).is_some());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let id = child.id();
        assert_ne!(Identity::of(own), Identity::of(id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Identity::of(id), None);
        assert_eq!(Identity::of(2_000_000_000), None);
    }

    #[test]
    fn a_process_is_opened_again_until_it_has_loaded_its_libraries() {
        let own = std::process::id();
        let identity = Identity::of(own).unwrap();
        let mut seen = Seen::default();
        for (age, is_settled, again) in [(0, false, true), (20, false, true), (20, true, false)] {
            let known = Known {
                identity,
                found: Err(Obstacle::NoProcess),
                since: Instant::now() - Duration::from_secs(age),
                is_settled,
            };
            seen.known.insert(own, known);
            let Err(Missing::Obstacle(obstacle)) = seen.open(own) else {
                panic!("this tool is not on Larder");
            };
            assert_eq!(obstacle != Obstacle::NoProcess, again, "{age} {is_settled}");
            let known = seen.known.get(&own).unwrap();
            assert_eq!(known.is_settled, age > 0);
            assert!(known.since.elapsed() >= Duration::from_secs(age));
        }
    }

    #[test]
    fn what_is_not_on_larder_is_not_served() {
        let own = std::process::id();
        let all = Targets::new(Which::Matching(None)).unwrap();
        // The data of this tool contains the magic number that it searches for.
        assert!(matches!(all.get(own), Err(Missing::Obstacle(_))));
        assert!(all.all().iter().all(|process| process.id() != own));
        let named = Targets::new(Which::Matching(Regex::new("^no such name$").ok())).unwrap();
        assert_eq!(named.get(own).err(), Some(Missing::Unknown));
        assert!(Targets::new(Which::These(vec![own])).is_err());
    }
}
