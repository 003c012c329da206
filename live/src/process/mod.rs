//! Reads a running process on Larder from outside. The process is not signalled, and only `leaks` and `attach`
//! stop it; only `attach` loads anything into it. Its heap changes meanwhile, and it may be hostile: any word can have
//! any value. So every count and every list is bounded, and an item with an invalid value is left out.
//!
//! `memory` reads, `maps` lists what is mapped, `find` finds `larder_anchor` (alloc/statistics/anchor.h)
//! and `anchor` reads it; `pages` finds descriptors. `sites` reads the heap profile, `heap` what is in
//! use and free, `heaps` the threads' heaps, `residence` what is in memory. `leaks` takes registers from
//! `stopped`, objects from `objects`, other memory from `roots`, data from `globals`, and `reach`
//! floods. `lost` does the same with the blocks of a trace (`traced`), on any allocator. `attach` loads the
//! recorder into a process on any allocator: `code` knows where which code is, `held` stops a thread at a safe moment
//! and calls functions there.

mod anchor;
#[cfg(target_arch = "x86_64")]
pub mod attach;
#[cfg(target_arch = "x86_64")]
mod code;
mod find;
mod globals;
mod heap;
mod heaps;
#[cfg(target_arch = "x86_64")]
mod held;
mod leaks;
mod lost;
mod maps;
mod memory;
mod objects;
mod pages;
mod reach;
mod residence;
mod roots;
mod sites;
mod stopped;
mod traced;

use std::fmt;

use larder_base::failure::Failure;

use crate::error::LiveError;

pub use anchor::{KINDS, MAX_SUPPRESSION_BYTES};
pub use heap::{CALLS, Class, Heap, Size};
pub use heaps::{Holder, ThreadHeap};
pub use leaks::{LeakedObject, Leaks, Reached, Sum};
pub use lost::Standing;
pub use maps::{Mapping, Module};
pub use sites::{Estimate, Profile, Site};

use anchor::Anchor;
use memory::Memory;

/// Why a process cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    NoProcess,
    /// It is another user's, or the system forbids it.
    NotPermitted,
    /// It does not run on Larder, or its Larder cannot be found.
    NotLarder,
    /// A program for 32 bits.
    Narrow,
    /// More than one of Larder's libraries, each with a heap.
    Several,
    /// Its anchor has this version.
    OtherVersion(u32),
    /// This process, such as a debugger, traces it.
    Traced(u32),
    /// This thread does not stop.
    NotStopped(u32),
    /// It ended, or became another program, while it was read.
    Ended,
    /// This part of what was read is inconsistent.
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

    /// A file in its directory under /proc.
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

    /// What it has leaked. Its threads are stopped meanwhile.
    pub fn leaks(&self) -> Result<Leaks, Obstacle> {
        leaks::check(self)
    }

    /// The current heap profile.
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
                "it does not run on Larder: start it by `larder run -- COMMAND`; to see what it allocates \
                 from now on, `larder record PID` needs no Larder"
            }
            Self::Narrow => {
                "it is a 32-bit program, which Larder does not support: build it for 64 bits"
            }
            Self::Several => {
                "it has several of Larder's libraries, each with a heap of its own: preload or \
                 link one alone"
            }
            Self::OtherVersion(version) => {
                return write!(
                    f,
                    "its Larder has layout version {version}, and this tool reads version {}: use \
                     the larder of the same release",
                    anchor::VERSION
                );
            }
            Self::Traced(tracer) => {
                return write!(
                    f,
                    "process {tracer} traces it already: end that debugger, or let it go"
                );
            }
            Self::NotStopped(thread) => {
                return write!(
                    f,
                    "its thread {thread} does not stop; it may wait for a device: try again"
                );
            }
            Self::Ended => "it ended while it was read: choose one that runs longer",
            Self::Unsound(what) => {
                return write!(
                    f,
                    "{what} cannot be true; it may just have become another program: try again; \
                     if the result is the same, its heap is damaged"
                );
            }
        };
        f.write_str(cause)
    }
}

impl Obstacle {
    pub fn failure(self, id: u32) -> Failure {
        LiveError::Obstacle { id, obstacle: self }.into()
    }
}
