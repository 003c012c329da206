//! Looking into a running process on Larder from outside: nothing is signalled, loaded or asked
//! there, and nothing stopped but by `leaks`. What is read is a heap in motion, and may be hostile:
//! any word can be anything, so every count has a bound, every list an end, and a value out of its
//! range leaves out what it is part of.
//!
//! `memory` reads, `maps` says what is mapped, `find` looks for `larder_anchor` (alloc/statistics/anchor.h),
//! `anchor` reads it; `sites` has the heap profile, `heap` what is in use and free, `heaps` the
//! threads', `residence` what is in memory; `pages` knows where descriptors are. `leaks` asks
//! `stopped` for registers, `objects` for what is in use, `roots` for what else there is and `globals`
//! for which of that is data, and `reach` floods. `lost` does so with the blocks that a trace has
//! (`traced`), over any allocator.

mod anchor;
mod find;
mod globals;
mod heap;
mod heaps;
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

pub use heap::{CALLS, Class, Heap, KINDS, Size};
pub use heaps::{Holder, ThreadHeap};
pub use leaks::{LeakedObject, Leaks, Reached, Sum};
pub use lost::Standing;
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
    /// A program for 32 bits.
    Narrow,
    /// More than one of Larder's libraries, each with a heap.
    Several,
    /// Its anchor has this version.
    OtherVersion(u32),
    /// This process traces it: a debugger, perhaps.
    Traced(u32),
    /// This thread does not stop.
    NotStopped(u32),
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

    /// What it has lost. Its threads are stopped meanwhile.
    pub fn leaks(&self) -> Result<Leaks, Obstacle> {
        leaks::look(self)
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
            Self::Narrow => {
                "it is a program for 32 bits, which Larder is not for: build it for 64 bits"
            }
            Self::Several => {
                "it has several of Larder's libraries, each with a heap of its own: preload or \
                 link one alone"
            }
            Self::OtherVersion(version) => {
                return write!(
                    f,
                    "its Larder describes itself in version {version}, and this tool reads \
                     version {}: use the larder of the same release",
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
                    "its thread {thread} does not stop, and waits for a device perhaps: try again"
                );
            }
            Self::Ended => "it ended while it was looked at: look at one that runs longer",
            Self::Unsound(what) => {
                return write!(
                    f,
                    "{what} cannot be true, perhaps because it has just become another program: try \
                     again; if that says the same, its heap is damaged"
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
