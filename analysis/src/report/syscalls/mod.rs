//! The system calls of a trace: by function what they returned and how long they took, and the lines whose
//! calls are needless, or may be: they moved few bytes, failed, found nothing ready, or asked for far more
//! than there was.

pub mod json;
pub mod text;

use std::collections::BTreeMap;
use std::rc::Rc;

use larder_trace::{Action, Event, Events, SystemCall, Trace};
use syscalls::Sysno;

use super::callers::{self, Callers};
use super::histogram::Histogram;
use crate::reading::observe::{Finished, Live, Observer};
use crate::reading::sites::{SortKey, Sums};

/// A call that moves no more bytes is tiny.
pub const TINY_BYTES: u64 = 16;
/// A read that fills less than one part in so many of its buffer has too large a buffer, or comes too often.
pub const UNFILLED: u64 = 100;

/// Why a call may be needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needless {
    /// It moved 0 to `TINY_BYTES` bytes.
    Tiny,
    Failed,
    /// It waited for descriptors, and none was ready.
    NothingReady,
    /// It read, but little of what it asked for.
    Unfilled,
    /// It waited for another thread, or woke one: of a lock, a condition, or the end of a thread.
    Futex,
}

impl Needless {
    pub const ALL: [Needless; 5] = [
        Needless::Tiny,
        Needless::Failed,
        Needless::NothingReady,
        Needless::Unfilled,
        Needless::Futex,
    ];

    fn holds(self, call: SystemCall, result: i64, limit: u64) -> bool {
        if self == Needless::Futex {
            return call == SystemCall::Syscall && limit == libc::SYS_futex as u64;
        }
        let Ok(result) = u64::try_from(result) else {
            return self == Needless::Failed;
        };
        match self {
            Needless::Failed | Needless::Futex => false,
            Needless::Tiny => call.counts_bytes() && result <= TINY_BYTES,
            Needless::NothingReady => call.waits() && result == 0,
            // At the end of a file a read returns 0.
            Needless::Unfilled => {
                call.reads() && result > 0 && result.saturating_mul(UNFILLED) < limit
            }
        }
    }
}

/// What was called: of `syscall`, which takes the number of any call, with that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    pub call: SystemCall,
    number: u64,
}

impl Function {
    fn new(call: SystemCall, limit: u64) -> Self {
        let number = match call {
            SystemCall::Syscall => limit,
            _ => 0,
        };
        Function { call, number }
    }

    pub fn name(self) -> String {
        match self.call {
            SystemCall::Syscall => number_name(self.number),
            call => call.name().to_owned(),
        }
    }
}

fn number_name(number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(Sysno::new);
    known.map_or_else(
        || format!("syscall({number})"),
        |known| known.name().to_owned(),
    )
}

/// Calls, and what they returned.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub calls: u64,
    /// 0 if the results do not count bytes.
    pub bytes: u64,
    /// Time within; 0 in traces before version 2.3.
    pub ns: f64,
    /// Of calls that did not fail.
    pub results: Histogram,
    needless: [u64; Needless::ALL.len()],
    /// Calls by error number.
    pub errors: BTreeMap<i64, u64>,
}

impl Results {
    fn add(&mut self, call: SystemCall, result: i64, limit: u64, ns: f64) {
        self.calls += 1;
        self.ns += ns;
        for kind in Needless::ALL {
            self.needless[kind as usize] += u64::from(kind.holds(call, result, limit));
        }
        let Ok(result) = u64::try_from(result) else {
            *self.errors.entry(result.saturating_neg()).or_default() += 1;
            return;
        };
        self.results.add(result, 1.0);
        if call.counts_bytes() {
            self.bytes = self.bytes.saturating_add(result);
        }
    }

    pub fn needless(&self, kind: Needless) -> u64 {
        self.needless[kind as usize]
    }
}

impl callers::Sum for Results {
    fn merge(&mut self, other: &Results) {
        self.calls += other.calls;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns += other.ns;
        self.results.merge(&other.results);
        for (own, more) in self.needless.iter_mut().zip(&other.needless) {
            *own += more;
        }
        for (error, calls) in &other.errors {
            *self.errors.entry(*error).or_default() += calls;
        }
    }

    fn calls(&self) -> f64 {
        self.calls as f64
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums {
            calls: self.calls,
            bytes: self.bytes,
            errors: self.needless(Needless::Failed),
            time_ns: self.ns.round() as u64,
            ..Sums::default()
        };
        // No trace shows how much of it is chance: what else the machine did, and how long a call waited.
        sums.variances[SortKey::Time as usize] = f64::INFINITY;
        sums
    }
}

impl callers::Kind for Function {
    fn text(self) -> Rc<str> {
        self.name().into()
    }
}

pub type Caller = callers::Caller<Function, Results>;

/// Observes the system calls of all process images.
#[derive(Default)]
pub struct SystemCalls {
    pub callers: Callers<Function, Results>,
    /// Of the image that is being read.
    ns_per_tick: f64,
}

impl Observer for SystemCalls {
    type Note = ();
    const WILL_DO_WITH_COUNTERS: bool = true;

    fn begin_image(&mut self, trace: &Trace) {
        self.ns_per_tick = trace.clock().ns_per_tick;
    }

    fn event(&mut self, event: &Event, _: &Events<'_>) {
        if let Action::SystemCall {
            call,
            result,
            ticks,
            limit,
            stack,
            ..
        } = event.action
        {
            let ns = ticks as f64 * self.ns_per_tick;
            let sum = self.callers.of(stack, Function::new(call, limit));
            sum.add(call, result, limit, ns);
        }
    }

    fn end_image(&mut self, image: &mut Finished<'_, '_>, _: &Live<'_, ()>) {
        self.callers.end_image(image);
    }
}

impl SystemCalls {
    /// Keeps all stacks of each site.
    pub fn with_stacks() -> Self {
        SystemCalls {
            callers: Callers::with_stacks(),
            ns_per_tick: 0.0,
        }
    }

    /// The callers with such calls, those with the most first.
    pub fn ranked(&self, kind: Needless) -> Vec<&Caller> {
        self.callers.ranked(|sum| sum.needless(kind) as f64)
    }
}

/// As `<errno.h>` has it.
pub fn error_name(number: i64) -> String {
    let known = match i32::try_from(number).unwrap_or(0) {
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
    use super::callers::Sum;
    use super::*;

    fn results(call: SystemCall, results: &[i64]) -> Results {
        let mut sum = Results::default();
        for result in results {
            sum.add(call, *result, 0, 10.0);
        }
        sum
    }

    #[test]
    fn results_errors_and_time_are_summed() {
        let read = results(SystemCall::Read, &[0, 1, 4096, -11, -11, -4]);
        assert_eq!((read.calls, read.bytes, read.ns), (6, 4097, 60.0));
        assert_eq!(read.errors, BTreeMap::from([(11, 2), (4, 1)]));
        assert_eq!(read.results.rows().count(), 3);
    }

    #[test]
    fn a_call_is_needless_for_what_it_returned() {
        let count = |call, given: &[i64]| {
            let found = results(call, given);
            Needless::ALL.map(|kind| found.needless(kind))
        };
        assert_eq!(count(SystemCall::Write, &[0, 16, 17, -32]), [2, 1, 0, 0, 0]);
        assert_eq!(count(SystemCall::Poll, &[0, 1, 2, -4]), [0, 1, 1, 0, 0]);
        // Neither bytes nor descriptors.
        assert_eq!(count(SystemCall::Ioctl, &[0, 5, -25]), [0, 1, 0, 0, 0]);
    }

    #[test]
    fn futex_counts_whatever_it_returns() {
        let mut futex = Results::default();
        for (result, number) in [(0, 202), (-11, 202), (0, 186)] {
            futex.add(SystemCall::Syscall, result, number, 0.0);
        }
        futex.add(SystemCall::Read, 0, 202, 0.0);
        assert_eq!(futex.needless(Needless::Futex), 2);
    }

    #[test]
    fn a_read_is_unfilled_below_a_hundredth_of_its_buffer() {
        let mut read = Results::default();
        for (result, limit) in [(40, 4096), (41, 4096), (0, 4096), (1, 0), (-11, 4096)] {
            read.add(SystemCall::Read, result, limit, 0.0);
        }
        read.add(SystemCall::Write, 1, 4096, 0.0);
        assert_eq!(read.needless(Needless::Unfilled), 1);
        assert_eq!(
            results(SystemCall::Recv, &[5]).needless(Needless::Unfilled),
            0
        );
    }

    #[test]
    fn the_smallest_result_of_all_is_an_error() {
        let read = results(SystemCall::Read, &[i64::MIN]);
        assert_eq!(read.errors, BTreeMap::from([(i64::MAX, 1)]));
        assert_eq!(read.results.rows().count(), 0);
    }

    #[test]
    fn merged_results_are_those_of_all_calls() {
        let mut sum = results(SystemCall::Send, &[1, -11]);
        sum.merge(&results(SystemCall::Send, &[1, 500, -11, -32]));
        let all = results(SystemCall::Send, &[1, 1, 500, -11, -11, -32]);
        assert_eq!(
            (sum.calls, sum.bytes, sum.ns),
            (all.calls, all.bytes, all.ns)
        );
        assert_eq!((sum.results, sum.errors), (all.results, all.errors));
        assert_eq!(sum.needless, all.needless);
    }

    #[test]
    fn a_call_by_number_is_named_after_it() {
        assert_eq!(Function::new(SystemCall::Syscall, 202).name(), "futex");
        assert_eq!(
            Function::new(SystemCall::Syscall, 9999).name(),
            "syscall(9999)"
        );
        assert_eq!(
            Function::new(SystemCall::Read, 9999),
            Function::new(SystemCall::Read, 1)
        );
    }
}
