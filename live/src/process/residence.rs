//! Which system pages of a process are in memory (/proc/PID/pagemap), read a window at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Obstacle;
use super::memory::{MOST_BYTES, Memory};

const WINDOW: u64 = 2 << 20;
/// Up to 256 GiB of address space are read, in about a second.
const MOST_WINDOWS: u32 = 1 << 17;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

pub struct Residence {
    file: File,
    page: u64,
    /// The window that was read last, and its entries.
    window: u64,
    entries: Vec<u64>,
    left: u32,
}

impl Residence {
    pub fn open(memory: &Memory) -> Result<Self, Obstacle> {
        Ok(Self {
            file: memory.open_file("pagemap")?,
            page: rustix::param::page_size() as u64,
            window: u64::MAX,
            entries: Vec::new(),
            left: MOST_WINDOWS,
        })
    }

    /// Bytes of the range that are in memory. Time grows with the range: about 10 microseconds for a
    /// window of 2 MiB.
    pub fn resident(&mut self, start: u64, end: u64) -> u64 {
        let (mut from, mut bytes) = (start, 0);
        while from < end && self.is_complete() {
            let to = end.min(from / self.page * self.page + self.page);
            if self.entry(from) & PRESENT != 0 {
                bytes += to - from;
            }
            from = to;
        }
        bytes
    }

    /// Calls `visit` with each part of the range that is in memory or swapped out; with `own`, only with
    /// private pages that the process has written to.
    pub fn parts(&mut self, start: u64, end: u64, own: bool, mut visit: impl FnMut(u64, u64)) {
        let (mut from, mut run) = (start, None);
        while from < end && self.is_complete() {
            let entry = self.entry(from);
            let wanted = entry & (PRESENT | SWAPPED) != 0 && !(own && entry & OF_FILE != 0);
            match (wanted, run) {
                (true, None) => run = Some(from),
                (false, Some(begin)) => {
                    visit(begin, from);
                    run = None;
                }
                _ => {}
            }
            from = from / self.page * self.page + self.page;
        }
        if let Some(begin) = run {
            visit(begin, end);
        }
    }

    /// False if there was more than the limit; the rest counts as not in memory.
    pub fn is_complete(&self) -> bool {
        self.left > 0
    }

    /// Reads memory of the process. Pages that were never written are zeros, and are not read: that would
    /// make the process map its page of zeros there.
    pub fn read(&mut self, memory: &Memory, at: u64, count: usize) -> Result<Vec<u8>, Obstacle> {
        if count > MOST_BYTES {
            return Err(Obstacle::Unsound("a size"));
        }
        let mut bytes = vec![0; count];
        let mut done = 0;
        while done < count {
            let from = at.wrapping_add(done as u64);
            let to = count.min(done + (self.page - from % self.page) as usize);
            if self.entry(from) & (PRESENT | SWAPPED) != 0 {
                memory.read(from, bytes.get_mut(done..to).unwrap_or_default())?;
            }
            done = to;
        }
        Ok(bytes)
    }

    fn entry(&mut self, address: u64) -> u64 {
        let window = address / WINDOW;
        if window != self.window {
            self.window = window;
            self.entries.clear();
            self.left = self.left.saturating_sub(1);
            if self.left > 0 {
                self.read_window();
            }
        }
        let at = (address % WINDOW / self.page) as usize;
        self.entries.get(at).copied().unwrap_or(0)
    }

    /// A part that cannot be read lies beyond the address space, so it is not in memory.
    fn read_window(&mut self) {
        let mut bytes = vec![0; (WINDOW / self.page * 8) as usize];
        let at = self.window.saturating_mul(WINDOW / self.page * 8);
        let (mut filled, length) = (0, bytes.len());
        while filled < length {
            let rest = bytes.get_mut(filled..).unwrap_or_default();
            match self.file.read_at(rest, at.saturating_add(filled as u64)) {
                Ok(read) if read > 0 => filled += read,
                _ => break,
            }
        }
        bytes.truncate(filled);
        let entries = bytes
            .chunks_exact(8)
            .map(|entry| entry.try_into().unwrap_or_default());
        self.entries = entries.map(u64::from_ne_bytes).collect();
    }
}
