//! One thread of a process, stopped by ptrace where it holds no lock of the loader's or of malloc's, and calls of
//! functions in it. The other threads run on.
//!
//! A call runs with the thread's signals blocked, and returns to address 0: the fault there stops the thread again.
//! When this is dropped, all registers, the blocked signals and errno are as they were, and a system call that our stop
//! interrupted is restarted.

use std::io;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use super::Obstacle;
use super::attach::Refusal;
use super::code::Code;
use super::memory::Memory;
use super::stopped::{VECTORS, begin_call_anew, state, tasks, tracer};
use crate::ptrace;

/// For a thread to stop. If it does not, the tool ends, and the kernel lets it go on.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// For a call to return: it may wait for another thread, which loads a library.
const CALL_PATIENCE: Duration = Duration::from_secs(20);
/// Of the stack, for handlers of signals.
const SEARCHED_BYTES: u64 = 256 << 10;
/// Below the stack pointer, which the interrupted function may use.
const RED_ZONE: u64 = 128;

macro_rules! at {
    ($register:ident) => {
        offset_of!(libc::user_regs_struct, $register) / 8
    };
}

/// What a thread is stopped for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To load a library, which takes locks of the loader and of malloc.
    Load,
    /// To call the recorder, which takes the loader's.
    Call,
}

pub struct Held<'a> {
    memory: &'a Memory,
    pub thread: i32,
    general: Vec<u64>,
    vectors: Vec<u64>,
    mask: u64,
    /// Where its errno is, and what it holds.
    errno: Option<(u64, [u8; 4])>,
    /// Where calls have their stack; 0: on the thread's own.
    pub stack: u64,
    since: Instant,
    /// The thread is gone, or not stopped: there is nothing to restore.
    lost: bool,
}

/// What a thread does.
enum Stop {
    /// Our interrupt: nothing else stopped it.
    Interrupted,
    /// A signal is to be delivered.
    Signal(i32),
    /// All of the process is stopped, by a signal.
    Group,
    Ended,
    Late,
}

impl<'a> Held<'a> {
    /// Tries one thread after the other until one is at a safe place.
    pub fn stop(
        memory: &'a Memory,
        code: &Code,
        purpose: Purpose,
        until: Instant,
    ) -> Result<Self, Refusal> {
        let mut pause = Duration::from_micros(300);
        while Instant::now() < until {
            for thread in tasks(memory)? {
                if let Some(held) = Self::try_thread(memory, code, purpose, thread)? {
                    return Ok(held);
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(20));
        }
        Err(Refusal::NeverSafe)
    }

    fn try_thread(
        memory: &'a Memory,
        code: &Code,
        purpose: Purpose,
        thread: i32,
    ) -> Result<Option<Self>, Refusal> {
        // Such a one may stop much later.
        if state(memory, thread) == Some(b'D') {
            return Ok(None);
        }
        if let Err(error) = ptrace::request(libc::PTRACE_SEIZE, thread, 0) {
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(None),
                _ => Err(tracer(memory)
                    .map_or(Obstacle::NotPermitted, Obstacle::Traced)
                    .into()),
            };
        }
        let since = Instant::now();
        let _ = ptrace::request(libc::PTRACE_INTERRUPT, thread, 0);
        let signal = match wait(thread, since + STOP_PATIENCE) {
            Stop::Interrupted => 0,
            Stop::Signal(signal) => signal,
            Stop::Ended => return Ok(None),
            Stop::Group => {
                detach(thread, 0);
                return Err(Refusal::Standing);
            }
            Stop::Late => return Err(Obstacle::NotStopped(thread.unsigned_abs()).into()),
        };
        let mut general = ptrace::registers(thread, libc::NT_PRSTATUS);
        begin_call_anew(thread, &mut general);
        let mut held = Self {
            memory,
            thread,
            general,
            vectors: Vec::new(),
            mask: 0,
            errno: None,
            stack: 0,
            since,
            lost: false,
        };
        if signal != 0 || !held.is_safe(code, purpose) || held.block_signals().is_err() {
            held.lost = true;
            detach(thread, signal);
            return Ok(None);
        }
        held.vectors = ptrace::registers(thread, VECTORS);
        held.keep_errno(code)?;
        Ok(Some(held))
    }

    /// How long it has stood.
    pub fn pause(&self) -> Duration {
        self.since.elapsed()
    }

    fn register(&self, number: usize) -> u64 {
        self.general.get(number).copied().unwrap_or(0)
    }

    fn is_safe(&self, code: &Code, purpose: Purpose) -> bool {
        let call = self.register(at!(orig_rax)) as i64;
        let waits = call >= 0 && may_wait_in(call, self.register(at!(rsi)));
        let calls = purpose == Purpose::Call;
        code.is_safe(self.register(at!(rip)), calls || waits)
            && !self.handler_interrupted_lock(code, calls)
    }

    /// Whether the thread is in a handler of a signal that came in code which is not safe. A word of the stack may
    /// only look so: then another moment serves.
    fn handler_interrupted_lock(&self, code: &Code, calls: bool) -> bool {
        const PAGE: u64 = 4096;
        /// In the frame above the address that a handler returns to: the interrupted instruction.
        const IP: u64 = 8 + 40 + 16 * 8;
        let start = self.register(at!(rsp)) & !7;
        let mut at = start;
        while at < start.saturating_add(SEARCHED_BYTES) {
            let end = at / PAGE * PAGE + PAGE;
            let Ok(part) = self.memory.bytes(at, (end - at) as usize) else {
                return false;
            };
            for (number, word) in part.chunks_exact(8).enumerate() {
                let word = word.try_into().map_or(0, u64::from_ne_bytes);
                let place = at + 8 * number as u64;
                if code.signal_returns.contains(&word)
                    && let Ok(ip) = self.memory.word(place + IP)
                    && !code.is_safe(ip, calls)
                {
                    return true;
                }
            }
            at = end;
        }
        false
    }

    /// All but those that a fault sends, also if the program blocks them: the kernel would change what it does about
    /// them. The one that a file's limit sends stays as it is, because the recorder takes it away.
    fn block_signals(&mut self) -> io::Result<()> {
        const FAULTS: [i32; 5] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
        ];
        let bit = |signal| 1u64 << (signal - 1);
        let faults = FAULTS.iter().fold(0, |all, signal| all | bit(*signal));
        let limit = bit(libc::SIGXFSZ);
        self.mask = ptrace::signal_mask(self.thread)?;
        ptrace::set_signal_mask(self.thread, !faults & !limit | self.mask & limit)
    }

    fn keep_errno(&mut self, code: &Code) -> Result<(), Refusal> {
        let place = self.call(code.libc.errno_location, &[])?;
        let mut value = [0; 4];
        self.memory.read(place, &mut value)?;
        self.errno = Some((place, value));
        Ok(())
    }

    /// Calls a function, and returns what it returns.
    pub fn call(&mut self, function: u64, arguments: &[u64]) -> Result<u64, Refusal> {
        const ARGUMENTS: [usize; 6] = [at!(rdi), at!(rsi), at!(rdx), at!(rcx), at!(r8), at!(r9)];
        const EFLAGS: u64 = 0x202;
        let stack = match self.stack {
            0 => self.register(at!(rsp)) - RED_ZONE,
            own => own,
        };
        // Like after a call: 8 bytes below a multiple of 16.
        let stack = (stack & !15) - 8;
        self.memory.write(stack, &[0; 8])?;
        let mut words = self.general.clone();
        let mut set = |register: usize, value| {
            if let Some(word) = words.get_mut(register) {
                *word = value;
            }
        };
        for (register, value) in ARGUMENTS.into_iter().zip(arguments) {
            set(register, *value);
        }
        set(at!(rip), function);
        set(at!(rsp), stack);
        set(at!(rax), 0);
        set(at!(orig_rax), u64::MAX);
        set(at!(eflags), EFLAGS);
        ptrace::write_registers(self.thread, libc::NT_PRSTATUS, &mut words);
        self.run()
    }

    /// Until it returns.
    fn run(&mut self) -> Result<u64, Refusal> {
        let until = Instant::now() + CALL_PATIENCE;
        loop {
            if ptrace::request(libc::PTRACE_CONT, self.thread, 0).is_err() {
                self.lost = true;
                return Err(Obstacle::Ended.into());
            }
            match wait(self.thread, until) {
                Stop::Ended => {
                    self.lost = true;
                    return Err(Obstacle::Ended.into());
                }
                Stop::Signal(libc::SIGSEGV) => {
                    let now = ptrace::registers(self.thread, libc::NT_PRSTATUS);
                    return match (now.get(at!(rip)), now.get(at!(rax))) {
                        (Some(0), Some(result)) => Ok(*result),
                        _ => Err(Refusal::Crashed),
                    };
                }
                Stop::Signal(_) => return Err(Refusal::Crashed),
                Stop::Interrupted | Stop::Group => {}
                Stop::Late => {
                    let _ = ptrace::request(libc::PTRACE_INTERRUPT, self.thread, 0);
                    let stops = wait(self.thread, Instant::now() + STOP_PATIENCE);
                    self.lost = matches!(stops, Stop::Ended | Stop::Late);
                    return Err(Refusal::Hangs(self.thread));
                }
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.lost {
            return;
        }
        if let Some((place, value)) = self.errno {
            let _ = self.memory.write(place, &value);
        }
        ptrace::write_registers(self.thread, VECTORS, &mut self.vectors);
        ptrace::write_registers(self.thread, libc::NT_PRSTATUS, &mut self.general);
        let _ = ptrace::set_signal_mask(self.thread, self.mask);
        detach(self.thread, 0);
    }
}

fn detach(thread: i32, signal: i32) {
    let _ = ptrace::request(libc::PTRACE_DETACH, thread, signal as usize);
}

/// Whether a thread may be interrupted in this system call: it waits for something outside of the process, and neither
/// the loader nor a malloc makes it. Of a futex only as condition variables, semaphores and joins use it, not locks.
fn may_wait_in(call: i64, second: u64) -> bool {
    const CALLS: [i64; 34] = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_connect,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_select,
        libc::SYS_pselect6,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_pause,
        libc::SYS_rt_sigsuspend,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_flock,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_msgrcv,
        libc::SYS_restart_syscall,
    ];
    const COMMAND: u64 = 127;
    match call {
        libc::SYS_futex => second & COMMAND == libc::FUTEX_WAIT_BITSET as u64,
        _ => CALLS.contains(&call),
    }
}

fn wait(thread: i32, until: Instant) -> Stop {
    let mut pause = Duration::from_micros(10);
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes to `status` alone.
        let which = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if which == thread {
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            return match (libc::WIFSTOPPED(status), event, signal) {
                (false, ..) => Stop::Ended,
                (true, 0, signal) => Stop::Signal(signal),
                (true, _, libc::SIGTRAP) => Stop::Interrupted,
                (true, ..) => Stop::Group,
            };
        }
        if which < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Stop::Ended;
        }
        if Instant::now() >= until {
            return Stop::Late;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}
