//! A program that filters its own system calls (seccomp): the recorder makes some, too, and a filter may end the
//! process at one. So before a filter is set, it is run with the calls that the recorder needs. If it would not let
//! one pass, or fail, the recording ends.
//!
//! What a filter says of arguments is judged with arguments of 0.
//!
//! Thread safety: no shared state.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_trace::StopReason;

use crate::arch::{self, passage};
use crate::errno::Errno;
use crate::hooks::guard;
use crate::{cpu, exec, file, real, state, sys};

/// Those of a program that is being recorded; `dispatch` ends at any filter.
const NEEDED: [i64; 23] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_fallocate,
    libc::SYS_pwrite64,
    libc::SYS_write,
    libc::SYS_read,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fcntl,
    libc::SYS_readlinkat,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_process_vm_readv,
];

const MODE_FILTER: usize = 2;
const SET_MODE_FILTER: usize = 1;
/// A filter's answers.
const ACTION: u32 = 0xffff_0000;
/// The kernel's limit of a filter's length.
const MOST_STEPS: usize = 4096;

/// The program makes this call. Ends the recording if that sets a filter which the recorder does not survive.
pub fn called(number: i64, arguments: [usize; 3]) {
    let program = match (number, arguments) {
        (libc::SYS_prctl, [option, MODE_FILTER, program])
            if option == libc::PR_SET_SECCOMP as usize =>
        {
            Some(program)
        }
        (libc::SYS_prctl, [option, ..]) if option == libc::PR_SET_SECCOMP as usize => None,
        (libc::SYS_seccomp, [SET_MODE_FILTER, _, program]) => Some(program),
        // Strict mode; the other operations set nothing.
        (libc::SYS_seccomp, [0, ..]) => None,
        _ => return,
    };
    if !state::is_recording() || program.is_some_and(lets_pass) {
        return;
    }
    state::stop(StopReason::Filtered, 0);
    // SAFETY: the thread's own.
    cpu::end_thread(unsafe { &mut *arch::local() });
    file::warn(
        b"the program filters its system calls",
        c"",
        None,
        b"it is not recorded from here on",
    );
}

/// Whether the program's `struct sock_fprog` lets all pass that the recorder needs. What cannot be read the kernel
/// refuses.
fn lets_pass(program: usize) -> bool {
    let mut head = [0u8; 16];
    if !sys::read_memory(program, &mut head) {
        return true;
    }
    let count = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let mut address = [0; 8];
    address.copy_from_slice(&head[8..]);
    let mut code = vec![0u8; 8 * count.min(MOST_STEPS)];
    if !sys::read_memory(usize::from_le_bytes(address), &mut code) {
        return true;
    }
    let code: Vec<Step> = code.chunks_exact(8).map(Step::new).collect();
    let answer = |number: i64| run(&code, number as u32);
    // SAFETY: the thread's own.
    let is_sampled = unsafe { !(*arch::local()).sampler.is_null() };
    // A handler that cannot return ends the program.
    let returns = || answer(libc::SYS_rt_sigreturn).is_some_and(is_made);
    NEEDED
        .iter()
        .all(|number| answer(*number).is_some_and(is_harmless))
        && (!is_sampled || returns())
}

fn is_made(answer: u32) -> bool {
    matches!(
        answer & ACTION,
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG
    )
}

/// Whether the call is made, or fails; one with the error number 0 only seems to be made.
fn is_harmless(answer: u32) -> bool {
    let fails = answer & ACTION == libc::SECCOMP_RET_ERRNO && answer != libc::SECCOMP_RET_ERRNO;
    fails || is_made(answer)
}

/// The kernel's `struct sock_filter`.
struct Step {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl Step {
    fn new(bytes: &[u8]) -> Self {
        Step {
            code: u16::from_le_bytes([bytes[0], bytes[1]]),
            if_true: bytes[2],
            if_false: bytes[3],
            k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }
}

/// The answer of a filter to a call; `None` if it has none, or has a step that the kernel does not know.
fn run(code: &[Step], number: u32) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    loop {
        let step = code.get(at)?;
        at += 1;
        let operand = if step.code & 0x08 == 0 { step.k } else { x };
        let place = step.k as usize;
        match step.code {
            // Loads: of the call, constants, and the filter's memory.
            0x20 => {
                a = match place {
                    0 => number,
                    4 => arch::AUDIT,
                    _ => 0,
                }
            }
            0x00 => a = step.k,
            0x80 => a = 64,
            0x60 => a = *memory.get(place)?,
            0x01 => x = step.k,
            0x81 => x = 64,
            0x61 => x = *memory.get(place)?,
            0x02 => *memory.get_mut(place)? = a,
            0x03 => *memory.get_mut(place)? = x,
            0x07 => x = a,
            0x87 => a = x,
            // Arithmetic.
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => a = a.checked_div(operand)?,
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0x64 | 0x6c => a = a.checked_shl(operand).unwrap_or(0),
            0x74 | 0x7c => a = a.checked_shr(operand).unwrap_or(0),
            0x84 => a = a.wrapping_neg(),
            0xa4 | 0xac => a ^= operand,
            // Jumps.
            0x05 => at = at.checked_add(place)?,
            0x15 | 0x1d => at += step.offset(a == operand),
            0x25 | 0x2d => at += step.offset(a > operand),
            0x35 | 0x3d => at += step.offset(a >= operand),
            0x45 | 0x4d => at += step.offset(a & operand != 0),
            0x06 => return Some(step.k),
            0x16 => return Some(a),
            _ => return None,
        }
    }
}

impl Step {
    fn offset(&self, holds: bool) -> usize {
        usize::from(if holds { self.if_true } else { self.if_false })
    }
}

passage!("prctl" => prctl);
extern "C" fn prctl(option: usize, second: usize, third: usize) -> usize {
    static BELOW: AtomicUsize = AtomicUsize::new(0);
    let option = option as c_int as usize;
    look(&BELOW, c"prctl", libc::SYS_prctl, [option, second, third])
}

passage!("syscall" => syscall);
extern "C" fn syscall(number: usize, first: usize, second: usize, third: usize) -> usize {
    static BELOW: AtomicUsize = AtomicUsize::new(0);
    look(&BELOW, c"syscall", number as i64, [first, second, third])
}

/// The address of the function below.
fn look(below: &AtomicUsize, name: &std::ffi::CStr, number: i64, arguments: [usize; 3]) -> usize {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if matches!(number, libc::SYS_prctl | libc::SYS_seccomp) && local.in_vfork == 0 {
        let errno = Errno::keep();
        let outer = std::mem::replace(&mut local.guard, guard::RECORDER);
        called(number, arguments);
        local.guard = outer;
        drop(errno);
    }
    let mut address = below.load(Ordering::Relaxed);
    if address == 0 {
        let errno = Errno::keep();
        let outer = std::mem::replace(&mut local.guard, guard::BELOW);
        address = real::next(name);
        local.guard = outer;
        below.store(address, Ordering::Relaxed);
        drop(errno);
    }
    match address {
        0 => exec::missing as *const () as usize,
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(code: u16, k: u32, if_true: u8, if_false: u8) -> Step {
        Step {
            code,
            if_true,
            if_false,
            k,
        }
    }

    #[test]
    fn a_filter_is_run_as_the_kernel_runs_it() {
        // Of another processor 1; of call 9 what is 3 times 4 minus 5, from its memory; else 2.
        let code = [
            step(0x20, 4, 0, 0),
            step(0x15, arch::AUDIT, 1, 0),
            step(0x06, 1, 0, 0),
            step(0x20, 0, 0, 0),
            step(0x15, 9, 0, 7),
            step(0x00, 3, 0, 0),
            step(0x24, 4, 0, 0),
            step(0x02, 15, 0, 0),
            step(0x61, 15, 0, 0),
            step(0x87, 0, 0, 0),
            step(0x14, 5, 0, 0),
            step(0x16, 0, 0, 0),
            step(0x05, 1, 0, 0),
            step(0x06, 3, 0, 0),
            step(0x06, 2, 0, 0),
        ];
        assert_eq!(run(&code, 9), Some(7));
        assert_eq!(run(&code, 8), Some(2));
    }

    #[test]
    fn what_the_kernel_refuses_has_no_answer() {
        assert_eq!(run(&[], 0), None);
        assert_eq!(run(&[step(0x05, u32::MAX, 0, 0)], 0), None);
        assert_eq!(run(&[step(0x34, 0, 0, 0), step(0x06, 1, 0, 0)], 0), None);
        assert_eq!(run(&[step(0x02, 16, 0, 0), step(0x06, 1, 0, 0)], 0), None);
        assert_eq!(run(&[step(0xffff, 0, 0, 0), step(0x06, 1, 0, 0)], 0), None);
    }
}
