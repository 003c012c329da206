//! Looking into a running process on Larder from outside: nothing is stopped, signalled, loaded or
//! asked there. What is read is a heap in motion, and may be hostile: any word can be anything, so
//! every count has a bound, every list an end, and a value out of its range leaves out what it is
//! part of.
//!
//! `memory` reads, `maps` says what is mapped, `find` looks for `larder_anchor` (alloc/anchor.h),
//! `anchor` reads it; `sites` has the heap profile, `heap` what is in use and free, `heaps` the
//! threads', `residence` what is in memory.

mod anchor;
mod find;
mod heap;
mod heaps;
mod maps;
mod memory;
mod residence;
mod sites;

use std::fmt;

use crate::failure::Failure;
pub use heap::{CALLS, Class, Heap, KINDS, Size};
pub use heaps::{Holder, ThreadHeap};
pub use maps::{Mapping, Module};
pub use sites::{Estimate, Profile, Site};

use anchor::Anchor;
use memory::Memory;

/// Why a process cannot be looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    NoProcess,
    /// Of another user, or the system forbids it.
    NotPermitted,
    /// It has no allocator of Larder's, or none that can be seen.
    NotLarder,
    /// Its anchor has this version.
    OtherVersion(u32),
    /// It ended, or became another program, while it was looked at.
    Ended,
    /// What was read cannot be true; this.
    Unsound(&'static str),
}

/// A process that runs on Larder.
pub struct Process {
    memory: Memory,
    anchor: Anchor,
}

impl Process {
    pub fn open(id: u32) -> Result<Self, Obstacle> {
        let memory = Memory::open(id)?;
        let anchor = find::anchor(&memory)?;
        Ok(Self { memory, anchor })
    }

    pub fn id(&self) -> u32 {
        self.memory.id()
    }

    /// The library's version, for printing.
    pub fn library(&self) -> &str {
        &self.anchor.library
    }

    /// A file of its own under /proc.
    pub fn text(&self, name: &str) -> Result<Vec<u8>, Obstacle> {
        self.memory.text(name)
    }

    /// What is mapped now.
    pub fn mappings(&self) -> Result<Vec<Mapping>, Obstacle> {
        maps::read(&self.memory)
    }

    /// The files whose code is mapped now, by address.
    pub fn modules(&self) -> Result<Vec<Module>, Obstacle> {
        Ok(maps::modules(&self.memory, &self.mappings()?))
    }

    /// What the heap holds now.
    pub fn heap(&self) -> Result<Heap, Obstacle> {
        heap::read(&self.memory, &self.anchor)
    }

    /// The heap profile as it is now.
    pub fn profile(&self) -> Result<Profile, Obstacle> {
        sites::read(&self.memory, &self.anchor)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self {
            Self::NoProcess => "there is no such process: look its number up with pgrep",
            Self::NotPermitted => {
                "its memory may not be read: be its user and, where kernel.yama.ptrace_scope is \
                 not 0, root (or have CAP_SYS_PTRACE)"
            }
            Self::NotLarder => {
                "it does not run on Larder: start it by `larder run -- COMMAND`, or link it with \
                 liblarder"
            }
            Self::OtherVersion(version) => {
                return write!(
                    f,
                    "its Larder describes itself in version {version}, and this tool reads \
                     version {}: use the larder of the same release",
                    anchor::VERSION
                );
            }
            Self::Ended => "it ended while it was looked at: look at one that runs longer",
            Self::Unsound(what) => {
                return write!(
                    f,
                    "{what} cannot be true: try again; if that says the same, its heap is damaged"
                );
            }
        };
        f.write_str(cause)
    }
}

impl Obstacle {
    pub fn failure(&self, id: u32) -> Failure {
        Failure::failed(format!("process {id}: {self}"))
    }
}
