//! System calls of one thread, one after another.
//!
//! Memory: by the threads, the descriptors that each reads, the stacks that call, and the stacks from which each
//! thread reads the clock.

use std::collections::{HashMap, HashSet};

use larder_trace::{StackId, SystemCall};

use super::counts::Counts;
use super::watched::Watched;
use super::{Called, Concluded, Pattern};

/// A write of fewer bytes is small: a buffer of stdio's size holds many.
const SMALL_WRITE: i64 = 512;

/// A wait that takes less has not slept: to sleep and wake takes several times as long.
const AT_ONCE_NS: f64 = 10_000.0;

/// Readings of the clock that are nearer tell little: the coarse clocks advance 10 to 40 times as rarely.
const NEAR_NS: f64 = 100_000.0;

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
    /// When a thread last read the clock with a stack.
    read_clock_ns: HashMap<(u32, StackId), f64>,
    watched: Watched,
    /// Threads with the descriptors that their last read of each found empty.
    empty: HashSet<(u32, i32)>,
    counts: Counts,
}

/// Whether `writev`, or `sendmsg`, does the same for several parts.
fn is_write(call: SystemCall) -> bool {
    matches!(call, SystemCall::Write | SystemCall::Send)
}

/// Whether it may wait for one descriptor only.
fn may_wait_for_one(called: &Called) -> bool {
    let polls = matches!(called.call, SystemCall::Poll | SystemCall::Ppoll);
    called.call.waits() && (!polls || called.limit == 1)
}

fn found_nothing(called: &Called) -> bool {
    called.call.reads() && called.result == -i64::from(libc::EAGAIN)
}

impl Runs {
    pub fn called(&mut self, now: &Called) {
        // The time of day says nothing of what comes before and after it.
        if now.call.is_virtual() {
            return self.clock_again(now);
        }
        let asked = match now.call {
            call if is_write(call) => Some(Pattern::SmallWrites),
            call if call.reads() => Some(Pattern::UntilAgain),
            SystemCall::Mmap => Some(Pattern::MapInTurn),
            _ if may_wait_for_one(now) => Some(Pattern::PollThenRead),
            _ => None,
        };
        if let Some(pattern) = asked {
            self.counts.asked(pattern, now);
        }
        self.watched.called(now);
        let mut run = 0;
        if let Some(before) = self.before.get(&now.thread).copied() {
            run = self.small_writes(&before, now);
            self.until_again(&before.called, now);
            self.map_in_turn(&before.called, now);
            self.poll_then_read(&before.called, now);
        }
        if now.call.reads() {
            let key = (now.thread, now.descriptor);
            match found_nothing(now) {
                true => self.empty.insert(key),
                false => self.empty.remove(&key),
            };
        }
        let called = *now;
        self.before.insert(now.thread, Before { called, run });
    }

    fn clock_again(&mut self, now: &Called) {
        self.counts.asked(Pattern::ClockAgain, now);
        let key = (now.thread, now.stack);
        let before = self.read_clock_ns.insert(key, now.end_ns);
        if before.is_some_and(|before| now.end_ns - before < NEAR_NS) {
            self.counts.needless(Pattern::ClockAgain, now, None);
        }
    }

    /// The number of this one in its run.
    fn small_writes(&mut self, before: &Before, now: &Called) -> u64 {
        let small = |c: &Called| is_write(c.call) && (1..SMALL_WRITE).contains(&c.result);
        let same = before.called.descriptor == now.descriptor;
        if !same || !small(&before.called) || !small(now) {
            return 0;
        }
        let run = before.run + 1;
        let figures = self.counts.needless(Pattern::SmallWrites, now, None);
        figures.bytes += now.result as u64;
        figures.runs += u64::from(run == 1);
        run
    }

    fn until_again(&mut self, before: &Called, now: &Called) {
        let short = |c: &Called| {
            c.call.reads() && c.result > 0 && c.limit > 0 && (c.result as u64) < c.limit
        };
        if short(before) && found_nothing(now) && before.descriptor == now.descriptor {
            self.counts.needless(Pattern::UntilAgain, now, None);
        }
    }

    fn map_in_turn(&mut self, before: &Called, now: &Called) {
        let unmapped = before.call == SystemCall::Munmap && before.result == 0;
        let mapped = now.call == SystemCall::Mmap && now.result > 0;
        // Of a mapping of a file another part may be wanted next time.
        if unmapped && mapped && before.limit == now.limit && now.descriptor == -1 {
            self.counts.needless(Pattern::MapInTurn, now, None).ns += before.ns;
        }
    }

    fn poll_then_read(&mut self, before: &Called, now: &Called) {
        let at_once = before.result == 1 && before.ns < AT_ONCE_NS;
        let read = now.call.reads() && now.result >= 0;
        let one = may_wait_for_one(before) && self.watched.only(before) == Some(now.descriptor);
        let was_empty = self.empty.contains(&(now.thread, now.descriptor));
        if at_once && read && one && !was_empty {
            let pattern = Pattern::PollThenRead;
            self.counts.needless(pattern, before, Some(now.stack));
        }
    }

    /// Of a child of fork, which has its parent's epoll descriptors.
    pub fn begin_child(&mut self) {
        self.watched.know_nothing();
    }

    pub fn conclude(self, concluded: &mut Concluded) {
        self.counts.conclude(concluded);
    }
}
