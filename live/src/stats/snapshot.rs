//! A snapshot of a process: its heap, its profile's sums, and the kernel's figures for its memory.

use larder_base::failure::Result;
use larder_base::printable;

use crate::process::{Heap, Obstacle, Process, Profile};

/// What a process has in memory, in bytes, by the kernel's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub rss: u64,
    /// Memory of no file; the heap is a part of it.
    pub anonymous: u64,
    pub swapped: u64,
}

/// Sums over the heap profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled {
    pub mean: u64,
    pub sites: usize,
    pub samples: u64,
    pub in_use: f64,
    pub allocated: f64,
}

pub struct Snapshot {
    pub process: u32,
    /// The kernel's name for it, for printing.
    pub name: String,
    pub library: String,
    pub memory: Memory,
    pub heap: Heap,
    pub sampled: Sampled,
}

pub fn take(id: u32) -> Result<Snapshot> {
    try_take(id).map_err(|obstacle| obstacle.failure(id))
}

pub fn try_take(id: u32) -> std::result::Result<Snapshot, Obstacle> {
    let process = Process::open(id)?;
    Snapshot::at(&process)
}

impl Snapshot {
    pub fn at(process: &Process) -> std::result::Result<Self, Obstacle> {
        Self::beside(process, &process.profile()?)
    }

    /// `profile` was just read from the same process.
    pub fn beside(process: &Process, profile: &Profile) -> std::result::Result<Self, Obstacle> {
        let heap = process.heap()?;
        let sites = profile.sites.iter();
        Ok(Self {
            process: process.id(),
            name: printable::escape_bytes(process.text("comm")?.trim_ascii_end()),
            library: process.library().to_owned(),
            memory: Memory::of(&process.text("smaps_rollup")?),
            heap,
            sampled: Sampled {
                mean: profile.mean,
                sites: profile.sites.len(),
                samples: sites
                    .clone()
                    .map(|site| site.samples)
                    .fold(0, u64::saturating_add),
                in_use: sites.clone().map(|site| site.in_use.bytes).sum(),
                allocated: sites.map(|site| site.allocated.bytes).sum(),
            },
        })
    }

    /// Bytes in memory that are not the heap's.
    pub fn rest(&self) -> u64 {
        self.memory.rss.saturating_sub(self.heap.resident())
    }
}

impl Memory {
    /// Parses `smaps_rollup`.
    pub fn of(text: &[u8]) -> Self {
        let mut memory = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else {
                continue;
            };
            let mut words = line.split_whitespace();
            let place = match words.next() {
                Some("Rss:") => &mut memory.rss,
                Some("Anonymous:") => &mut memory.anonymous,
                Some("Swap:") => &mut memory.swapped,
                _ => continue,
            };
            let kib: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            *place = kib.saturating_mul(1024);
        }
        memory
    }
}

pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let text =
            b"00400000-7fff rollup\nRss:     1234 kB\nPss: 9 kB\nAnonymous:  56 kB\nSwap: x\n";
        let memory = Memory::of(text);
        assert_eq!(
            memory,
            Memory {
                rss: 1234 << 10,
                anonymous: 56 << 10,
                swapped: 0
            }
        );
        assert_eq!(Memory::of(b"\xff\n\n"), Memory::default());
    }
}
