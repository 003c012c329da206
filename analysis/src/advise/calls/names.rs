//! Calls that name a file: names that are not there, looked up twice, and opened again and again.
//!
//! A name is the hash that the recorder made of it: two names are one by chance in 2^32.
//! Memory: by the threads, the open descriptors, and the names that each stack opens.

use std::collections::HashMap;

use larder_trace::{StackId, SystemCall};

use super::counts::Counts;
use super::{Called, Concluded, Pattern};

/// A name that a stack opens.
type Key = (StackId, u64);

enum Opened {
    Open,
    /// With the time that closing took.
    Closed(f64),
}

#[derive(Default)]
pub struct Names {
    /// Each thread's last call that found its name.
    looked_up: HashMap<u32, Called>,
    opened: HashMap<Key, Opened>,
    /// The opening of each descriptor.
    descriptors: HashMap<i32, Key>,
    counts: Counts,
}

fn opens(call: SystemCall) -> bool {
    matches!(call, SystemCall::Open | SystemCall::Openat)
}

fn looks_up(call: SystemCall) -> bool {
    use SystemCall::*;
    matches!(call, Stat | Lstat | Fstatat | Statx | Access)
}

impl Names {
    pub fn called(&mut self, now: &Called) {
        if now.call == SystemCall::Close {
            self.close(now.descriptor, now.ns);
        }
        let names_file = opens(now.call) || looks_up(now.call) || now.call == SystemCall::Readlink;
        if !names_file {
            return;
        }
        self.counts.asked(Pattern::NotThere, now);
        if now.result == -i64::from(libc::ENOENT) {
            self.counts.needless(Pattern::NotThere, now, None);
        }
        let before = self.looked_up.remove(&now.thread);
        if now.result < 0 || now.limit == 0 {
            return;
        }
        if opens(now.call) {
            let same = before.filter(|before| before.limit == now.limit);
            if let Some(before) = same {
                let pattern = Pattern::StatThenOpen;
                self.counts.needless(pattern, &before, Some(now.stack));
            }
            self.open(now);
        } else if looks_up(now.call) {
            self.counts.asked(Pattern::StatThenOpen, now);
            self.looked_up.insert(now.thread, *now);
        }
    }

    fn open(&mut self, now: &Called) {
        // The call that closed the descriptor of this number was not seen.
        self.close(now.descriptor, 0.0);
        self.counts.asked(Pattern::OpenedAgain, now);
        let key = (now.stack, now.limit);
        if let Some(Opened::Closed(ns)) = self.opened.insert(key, Opened::Open) {
            self.counts.needless(Pattern::OpenedAgain, now, None).ns += ns;
        }
        self.descriptors.insert(now.descriptor, key);
    }

    fn close(&mut self, descriptor: i32, ns: f64) {
        if let Some(key) = self.descriptors.remove(&descriptor) {
            self.opened.insert(key, Opened::Closed(ns));
        }
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        self.counts.conclude(concluded);
    }
}
