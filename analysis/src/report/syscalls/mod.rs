//! The system calls of a trace: by function what they returned, and the lines whose calls are needless, or
//! may be, because they moved few bytes, failed, or found nothing ready.
//!
//! Memory: by the distinct stacks of one process image, and the distinct callers of all. Time: a few map
//! look-ups an event.

pub mod json;
pub mod text;

use std::collections::{BTreeMap, HashMap};

use larder_trace::{Action, Event, Events, IoCall, StackId};

use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::sites::{Site, SiteId, SiteStack, SiteTable};

/// A call that moves no more bytes is tiny.
pub const TINY_BYTES: u64 = 16;
/// By a result's number of bits: 0, 1, 2–3, 4–7 and so on.
const BUCKETS: usize = 64;

/// Why a call may be needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needless {
    /// It moved 0 to `TINY_BYTES` bytes.
    Tiny,
    Failed,
    /// It waited for descriptors, and none was ready.
    NothingReady,
}

impl Needless {
    pub const ALL: [Needless; 3] = [Needless::Tiny, Needless::Failed, Needless::NothingReady];

    fn of(call: IoCall, result: i64) -> Option<Needless> {
        match u64::try_from(result) {
            Err(_) => Some(Needless::Failed),
            Ok(bytes) if call.counts_bytes() => (bytes <= TINY_BYTES).then_some(Needless::Tiny),
            Ok(0) if call.waits() => Some(Needless::NothingReady),
            Ok(_) => None,
        }
    }
}

/// Calls and what they returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Results {
    pub calls: u64,
    /// 0 if the results do not count bytes.
    pub bytes: u64,
    /// Calls that did not fail, by their results' number of bits.
    buckets: [u64; BUCKETS],
    needless: [u64; Needless::ALL.len()],
}

impl Default for Results {
    fn default() -> Self {
        Results {
            calls: 0,
            bytes: 0,
            buckets: [0; BUCKETS],
            needless: [0; Needless::ALL.len()],
        }
    }
}

impl Results {
    fn add(&mut self, call: IoCall, result: i64) {
        self.calls += 1;
        if let Some(needless) = Needless::of(call, result) {
            self.needless[needless as usize] += 1;
        }
        let Ok(result) = u64::try_from(result) else {
            return;
        };
        self.buckets[(u64::BITS - result.leading_zeros()) as usize] += 1;
        if call.counts_bytes() {
            self.bytes = self.bytes.saturating_add(result);
        }
    }

    fn merge(&mut self, other: &Results) {
        self.calls += other.calls;
        self.bytes = self.bytes.saturating_add(other.bytes);
        let pairs = self.buckets.iter_mut().zip(&other.buckets);
        let needless = self.needless.iter_mut().zip(&other.needless);
        for (own, more) in pairs.chain(needless) {
            *own += more;
        }
    }

    pub fn needless(&self, kind: Needless) -> u64 {
        self.needless[kind as usize]
    }

    /// The smallest and the largest result of each bucket that is not empty, and its calls.
    pub fn histogram(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let buckets = self.buckets.iter().enumerate();
        buckets
            .filter(|(_, calls)| **calls > 0)
            .map(|(bits, calls)| match bits {
                0 => (0, 0, *calls),
                _ => (1 << (bits - 1), (1 << bits) - 1, *calls),
            })
    }
}

/// Calls of one function.
#[derive(Clone, Debug, Default)]
pub struct Function {
    pub results: Results,
    /// Calls by error number.
    pub errors: BTreeMap<i64, u64>,
}

impl Function {
    fn add(&mut self, call: IoCall, result: i64) {
        self.results.add(call, result);
        if result < 0 {
            *self.errors.entry(result.saturating_neg()).or_default() += 1;
        }
    }

    fn merge(&mut self, other: &Function) {
        self.results.merge(&other.results);
        for (error, calls) in &other.errors {
            *self.errors.entry(*error).or_default() += calls;
        }
    }
}

/// The calls of a function from one site.
#[derive(Debug)]
pub struct Caller {
    site: SiteId,
    pub call: IoCall,
    pub function: Function,
    /// Of its stacks the one with the most calls, and their number.
    heaviest: (u64, SiteStack),
}

impl Caller {
    pub fn stack(&self) -> &SiteStack {
        &self.heaviest.1
    }
}

/// Observes the system calls of all process images.
#[derive(Default)]
pub struct SystemCalls {
    /// Of the image that is being read.
    stacks: BTreeMap<(StackId, IoCall), Function>,
    sites: SiteTable,
    callers: Vec<Caller>,
    by_site: HashMap<(SiteId, IoCall), usize>,
}

impl Observer for SystemCalls {
    type Note = ();
    const WILL_DO_WITH_COUNTERS: bool = true;

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Action::Io {
            call,
            result,
            stack,
        } = event.action
        {
            let function = self.stacks.entry((stack, call)).or_default();
            function.add(call, result);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        for ((stack, call), function) in std::mem::take(&mut self.stacks) {
            let (chain, attribution) = image.attribute(stack);
            let stack = SiteStack {
                chain,
                site: attribution.site,
            };
            self.charge(stack, call, function);
        }
    }
}

impl SystemCalls {
    fn charge(&mut self, stack: SiteStack, call: IoCall, function: Function) {
        let site = self.sites.intern(&stack);
        let calls = function.results.calls;
        let next = self.callers.len();
        let index = *self.by_site.entry((site, call)).or_insert(next);
        match self.callers.get_mut(index) {
            Some(caller) => {
                caller.function.merge(&function);
                if calls > caller.heaviest.0 {
                    caller.heaviest = (calls, stack);
                }
            }
            None => self.callers.push(Caller {
                site,
                call,
                function,
                heaviest: (calls, stack),
            }),
        }
    }

    /// The functions that were called, those with the most calls first.
    pub fn functions(&self) -> Vec<(IoCall, Function)> {
        let mut sums: BTreeMap<IoCall, Function> = BTreeMap::new();
        for caller in &self.callers {
            sums.entry(caller.call).or_default().merge(&caller.function);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, function)| std::cmp::Reverse(function.results.calls));
        sums
    }

    /// The callers with such calls, those with the most first.
    pub fn callers(&self, kind: Needless) -> Vec<&Caller> {
        let weight = |caller: &&Caller| caller.function.results.needless(kind);
        let mut callers: Vec<&Caller> = self.callers.iter().filter(|c| weight(c) > 0).collect();
        callers.sort_by_key(|caller| std::cmp::Reverse(weight(caller)));
        callers
    }

    pub fn site(&self, caller: &Caller) -> &Site {
        self.sites.get(caller.site)
    }
}

/// As `<errno.h>` has it.
pub fn error_name(number: i64) -> String {
    let known = match number as i32 {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENOTTY => "ENOTTY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::ESPIPE => "ESPIPE",
        libc::EPIPE => "EPIPE",
        libc::ENOSYS => "ENOSYS",
        libc::ENOTSOCK => "ENOTSOCK",
        libc::EDESTADDRREQ => "EDESTADDRREQ",
        libc::EMSGSIZE => "EMSGSIZE",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ECONNABORTED => "ECONNABORTED",
        libc::ECONNRESET => "ECONNRESET",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENOTCONN => "ENOTCONN",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ECANCELED => "ECANCELED",
        _ => return format!("errno {number}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(call: IoCall, results: &[i64]) -> Function {
        let mut function = Function::default();
        for result in results {
            function.add(call, *result);
        }
        function
    }

    #[test]
    fn results_are_counted_by_powers_of_two() {
        let read = function(
            IoCall::Read,
            &[0, 1, 1, 2, 3, 4, 16, 17, i64::MAX, -11, -11, -4],
        );
        let rows: Vec<_> = read.results.histogram().collect();
        let last = (1 << 62, (1 << 63) - 1, 1);
        let expected = [
            (0, 0, 1),
            (1, 1, 2),
            (2, 3, 2),
            (4, 7, 1),
            (16, 31, 2),
            last,
        ];
        assert_eq!(rows, expected);
        assert_eq!(read.errors, BTreeMap::from([(11, 2), (4, 1)]));
        assert_eq!(read.results.calls, 12);
    }

    #[test]
    fn a_call_is_needless_for_one_reason_at_most() {
        let count = |call, results: &[i64]| {
            let found = function(call, results).results;
            Needless::ALL.map(|kind| found.needless(kind))
        };
        assert_eq!(count(IoCall::Write, &[0, 16, 17, -32]), [2, 1, 0]);
        assert_eq!(count(IoCall::Poll, &[0, 1, 2, -4]), [0, 1, 1]);
        // Neither bytes nor descriptors.
        assert_eq!(count(IoCall::Ioctl, &[0, 5, -25]), [0, 1, 0]);
    }

    #[test]
    fn the_smallest_result_of_all_is_an_error() {
        let read = function(IoCall::Read, &[i64::MIN]);
        assert_eq!(read.errors, BTreeMap::from([(i64::MAX, 1)]));
        assert_eq!(read.results.histogram().count(), 0);
    }

    #[test]
    fn merged_functions_are_those_of_all_calls() {
        let mut sum = function(IoCall::Send, &[1, -11]);
        sum.merge(&function(IoCall::Send, &[1, 500, -11, -32]));
        let all = function(IoCall::Send, &[1, 1, 500, -11, -11, -32]);
        assert_eq!((sum.results, sum.errors), (all.results, all.errors));
    }
}
