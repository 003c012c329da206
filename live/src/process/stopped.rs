//! All threads of a process, stopped by ptrace, with what their registers hold.
//!
//! No code runs in the process, and one thing in it is changed: a system call that would fail with EINTR
//! only because of our stop is restarted. Signals are delivered afterwards. If the tool dies meanwhile,
//! the kernel continues the threads.

use std::io;
use std::time::{Duration, Instant};

use super::Obstacle;
use super::memory::Memory;
use crate::ptrace;

/// For a thread that does not stop; it may wait for a disk.
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_THREADS: usize = 1 << 17;

#[cfg(target_arch = "x86_64")]
pub const VECTORS: i32 = 0x202; // NT_X86_XSTATE
#[cfg(not(target_arch = "x86_64"))]
pub const VECTORS: i32 = 2; // NT_PRFPREG

pub struct Thread {
    pub id: i32,
    /// To be delivered when it continues.
    signal: i32,
    pub stack_pointer: u64,
    /// Its thread-local storage lies around this address.
    pub thread_pointer: u64,
    pub registers: Vec<u64>,
}

/// They continue when it is dropped. Only the thread that made it may use it.
pub struct Stopped {
    pub threads: Vec<Thread>,
}

impl Stopped {
    pub fn stop(memory: &Memory) -> Result<Self, Obstacle> {
        let mut stopped = Self {
            threads: Vec::new(),
        };
        // Until a pass over all of them finds no new one: a stopped thread starts no other.
        let mut known = std::collections::HashSet::new();
        loop {
            let before = known.len();
            for id in tasks(memory)? {
                if known.insert(id) {
                    stopped.seize(memory, id)?;
                }
            }
            if known.len() == before {
                break;
            }
            if known.len() > MOST_THREADS {
                return Err(Obstacle::Unsound("the number of threads"));
            }
        }
        match stopped.threads.is_empty() {
            true => Err(Obstacle::Ended),
            false => Ok(stopped),
        }
    }

    fn seize(&mut self, memory: &Memory, id: i32) -> Result<(), Obstacle> {
        if let Err(error) = ptrace::request(libc::PTRACE_SEIZE, id, 0) {
            return match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) if !is_ending(memory, id) => {
                    Err(tracer(memory).map_or(Obstacle::NotPermitted, Obstacle::Traced))
                }
                Some(libc::ENOSYS) => Err(Obstacle::NotPermitted),
                // The thread has ended since.
                _ => Ok(()),
            };
        }
        // From here on drop detaches it, whatever happens.
        self.threads.push(Thread {
            id,
            signal: 0,
            stack_pointer: 0,
            thread_pointer: 0,
            registers: Vec::new(),
        });
        let _ = ptrace::request(libc::PTRACE_INTERRUPT, id, 0);
        let stops = await_stop(id, Instant::now() + PATIENCE);
        match stops {
            Some(Stop::At(signal)) => {
                let Some(thread) = self.threads.last_mut() else {
                    return Ok(());
                };
                thread.signal = signal;
                thread.read_registers();
                Ok(())
            }
            Some(Stop::Ended) => {
                self.threads.pop();
                Ok(())
            }
            None => Err(Obstacle::NotStopped(id.unsigned_abs())),
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &self.threads {
            if ptrace::request(libc::PTRACE_DETACH, thread.id, thread.signal as usize).is_err() {
                // The thread did not stop in time, and may stop later.
                let _ = await_stop(thread.id, Instant::now());
                let _ = ptrace::request(libc::PTRACE_DETACH, thread.id, 0);
            }
        }
    }
}

impl Thread {
    fn read_registers(&mut self) {
        let mut words = ptrace::registers(self.id, libc::NT_PRSTATUS);
        begin_call_anew(self.id, &mut words);
        let word = |at: usize| words.get(at / 8).copied().unwrap_or(0);
        #[cfg(target_arch = "x86_64")]
        {
            use std::mem::offset_of;
            self.stack_pointer = word(offset_of!(libc::user_regs_struct, rsp));
            self.thread_pointer = word(offset_of!(libc::user_regs_struct, fs_base));
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            const SP: usize = 31 * 8;
            const NT_ARM_TLS: i32 = 0x401;
            self.stack_pointer = word(SP);
            let tls = ptrace::registers(self.id, NT_ARM_TLS);
            self.thread_pointer = tls.first().copied().unwrap_or(0);
        }
        words.extend(ptrace::registers(self.id, VECTORS));
        self.registers = words;
    }
}

/// Some calls (epoll_wait, semop, sigtimedwait...) fail with EINTR after any stop. Restarts them like
/// the kernel restarts others, also with a signal, which may be an ignored one that was queued only
/// because of us. Not close: its descriptor may be another file's by now.
#[cfg(target_arch = "x86_64")]
pub fn begin_call_anew(thread: i32, words: &mut [u64]) {
    const ERESTARTNOHAND: i64 = 514;
    const RAX: usize = std::mem::offset_of!(libc::user_regs_struct, rax) / 8;
    const ORIG_RAX: usize = std::mem::offset_of!(libc::user_regs_struct, orig_rax) / 8;
    let (Some(result), Some(call)) = (words.get(RAX), words.get(ORIG_RAX)) else {
        return;
    };
    let interrupted = *call as i64 >= 0 && *result as i64 == -i64::from(libc::EINTR);
    if !interrupted || *call as i64 == libc::SYS_close {
        return;
    }
    words[RAX] = -ERESTARTNOHAND as u64;
    ptrace::write_registers(thread, libc::NT_PRSTATUS, words);
}

#[cfg(not(target_arch = "x86_64"))]
pub fn begin_call_anew(_: i32, _: &mut [u64]) {}

enum Stop {
    /// Continues the thread with this signal, or with none.
    At(i32),
    Ended,
}

/// `None`: it did not stop in that time.
fn await_stop(id: i32, until: Instant) -> Option<Stop> {
    let mut pause = Duration::from_micros(10);
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes to `status` alone.
        let which = unsafe { libc::waitpid(id, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if which == id {
            if !libc::WIFSTOPPED(status) {
                return Some(Stop::Ended);
            }
            // Our interrupt, or a group stop, leaves nothing to deliver.
            let by_signal = status >> 16 == 0;
            return Some(Stop::At(if by_signal { libc::WSTOPSIG(status) } else { 0 }));
        }
        if which < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Some(Stop::Ended);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}

pub fn tasks(memory: &Memory) -> Result<Vec<i32>, Obstacle> {
    let entries = std::fs::read_dir(memory.proc_path("task")).map_err(|_| Obstacle::Ended)?;
    let id = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(entries.flatten().filter_map(id).collect())
}

/// Whether the thread has ended, and waits for the others.
fn is_ending(memory: &Memory, id: i32) -> bool {
    matches!(state(memory, id), None | Some(b'Z' | b'X'))
}

/// The letter of a thread's state, as in `ps`.
pub fn state(memory: &Memory, id: i32) -> Option<u8> {
    let stat = memory.text(&format!("task/{id}/stat")).ok()?;
    // Behind the name, which may contain anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

/// The process that traces it, such as a debugger.
pub fn tracer(memory: &Memory) -> Option<u32> {
    let status = memory.text("status").ok()?;
    let mut lines = status.split(|byte| *byte == b'\n');
    let id = lines.find_map(|line| line.strip_prefix(b"TracerPid:"))?;
    let id = std::str::from_utf8(id.trim_ascii()).ok()?.parse().ok()?;
    (id != 0).then_some(id)
}
