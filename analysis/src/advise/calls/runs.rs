//! System calls of one thread, one after another.
//!
//! Memory: by the threads, their descriptors that were used last, and the stacks that call.

use std::collections::HashMap;

use larder_trace::{StackId, SystemCall};

use super::{Called, Concluded, Conclusion, Figures, Pattern, Total};

/// A write of fewer bytes is small: a buffer of stdio's size holds many.
const SMALL_WRITE: i64 = 512;

/// A thread's last call.
#[derive(Clone, Copy)]
struct Before {
    called: Called,
    /// In a run of small writes: the number of this one.
    run: u64,
}

#[derive(Default)]
pub struct Runs {
    before: HashMap<u32, Before>,
    found: HashMap<(Pattern, StackId), Figures>,
    calls: HashMap<(SystemCall, StackId), u64>,
}

/// Whether `writev`, or `sendmsg`, does the same for several parts.
fn is_write(call: SystemCall) -> bool {
    matches!(call, SystemCall::Write | SystemCall::Send)
}

/// Whether it takes the name of a file.
fn names_file(call: SystemCall) -> bool {
    use SystemCall::*;
    matches!(
        call,
        Open | Openat | Stat | Lstat | Fstatat | Statx | Access | Readlink
    )
}

impl Runs {
    pub fn called(&mut self, now: &Called) {
        // The time of day says nothing of what comes before and after it.
        if now.call.is_virtual() {
            return;
        }
        *self.calls.entry((now.call, now.stack)).or_default() += 1;
        if names_file(now.call) && now.result == -i64::from(libc::ENOENT) {
            self.add(Pattern::NotThere, now);
        }
        let mut run = 0;
        if let Some(before) = self.before.get(&now.thread).copied() {
            run = self.small_writes(&before, now);
            self.until_again(&before.called, now);
            self.map_in_turn(&before.called, now);
        }
        let called = *now;
        self.before.insert(now.thread, Before { called, run });
    }

    /// The number of this one in its run.
    fn small_writes(&mut self, before: &Before, now: &Called) -> u64 {
        let small = |c: &Called| is_write(c.call) && (1..SMALL_WRITE).contains(&c.result);
        let same = before.called.descriptor == now.descriptor;
        if !same || !small(&before.called) || !small(now) {
            return 0;
        }
        let run = before.run + 1;
        let figures = self.add(Pattern::SmallWrites, now);
        figures.bytes += now.result as u64;
        figures.runs += u64::from(run == 1);
        run
    }

    fn until_again(&mut self, before: &Called, now: &Called) {
        let short = |c: &Called| {
            c.call.reads() && c.result > 0 && c.limit > 0 && (c.result as u64) < c.limit
        };
        let again = now.call.reads() && now.result == -i64::from(libc::EAGAIN);
        if short(before) && again && before.descriptor == now.descriptor {
            self.add(Pattern::UntilAgain, now);
        }
    }

    fn map_in_turn(&mut self, before: &Called, now: &Called) {
        let unmapped = before.call == SystemCall::Munmap && before.result == 0;
        let mapped = now.call == SystemCall::Mmap && now.result > 0;
        // Of a mapping of a file another part may be wanted next time.
        if unmapped && mapped && before.limit == now.limit && now.descriptor == -1 {
            self.add(Pattern::MapInTurn, now).ns += before.ns;
        }
    }

    fn add(&mut self, pattern: Pattern, now: &Called) -> &mut Figures {
        let figures = self.found.entry((pattern, now.stack)).or_default();
        figures.calls += 1;
        figures.ns += now.ns;
        figures
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        let found = self.found.into_iter();
        concluded
            .found
            .extend(found.map(|((pattern, stack), figures)| Conclusion {
                pattern,
                stack,
                other: None,
                format: None,
                figures,
            }));
        for ((call, stack), calls) in self.calls {
            let pattern = match call {
                _ if is_write(call) => Pattern::SmallWrites,
                SystemCall::Mmap => Pattern::MapInTurn,
                _ if call.reads() => Pattern::UntilAgain,
                _ if names_file(call) => Pattern::NotThere,
                _ => continue,
            };
            concluded.totals.push(Total {
                pattern,
                stack,
                of: calls,
                others: 0,
            });
        }
    }
}
