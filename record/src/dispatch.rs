//! Every system call of the program, also those made without libc: the kernel's syscall user dispatch (Linux 5.11) sends
//! SIGSYS instead of each that is made outside of this library. The handler makes it in the program's place,
//! and records it.
//!
//! ```text
//! begin_thread ─> (SIGSYS) ─> arch::dispatched ─> prepare ─> system call ─> finish ─> Stream::interrupted_call
//!                                 ↑                 └─> arch::stub: those that must not be made by a handler
//!                                 └──────── (SIGSYS) ───────┘
//! ```
//!
//! A handler cannot make calls that return twice or on another stack, nor those that change what its return
//! restores. Of these, fork, clone and the like, and sigaltstack are made behind it, by a stub of ours. In the
//! parent the stub then has itself dispatched, and the handler records the call with its result. A mask of signals
//! is changed in what the handler restores.
//!
//! What does not return is recorded before it is made: exit, and sigreturn, which returns elsewhere. An exec that
//! succeeds is the first call of the new image.
//!
//! The handler's own work is not interrupted by signals; the calls that it makes are, like the program's.
//!
//! Thread safety: the kernel looks at one byte, `arch::SELECTOR`, of all threads. Invariant: the program never
//! blocks SIGSYS, because the kernel would end it; a child of vfork makes its calls itself.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use larder_trace::SystemCall;

use crate::arch::{self, MadeCall, Stub};
use crate::errno::Errno;
use crate::hooks::{self, Hook, guard};
use crate::notes::{self, Called};
use crate::signals::OwnAction;
use crate::sys::{self, KernelAction};
use crate::{clock, file, filter, state};

/// `si_code` of a dispatched call.
const DISPATCHED: c_int = 2;
const SIGNAL: u64 = 1 << (libc::SIGSYS - 1);
/// Bytes of `syscall`.
const INSTRUCTION: i64 = 2;
/// Bytes of the code that a handler returns to; `syscall` is its end; see `arch::signal_return`.
const TRAMPOLINE: u64 = 9;
/// For what a process, or a thread, begins with.
const STACK_BYTES: usize = 256 << 10;

static OWN: OwnAction = OwnAction::new();
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Begins to dispatch the calls of the process, from the calling thread on; its children inherit it.
pub fn start() {
    // SAFETY: no new action.
    if let Ok(action) = unsafe { sys::signal_action(libc::SIGSYS, None) } {
        OWN.replace(action.handler, action.flags);
    }
    let action = KernelAction {
        handler: arch::dispatched as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK | sys::RESTORER) as usize,
        restorer: arch::signal_return as *const () as usize,
        mask: sys::ALL_SIGNALS,
    };
    // SAFETY: the handler and the restorer have the kernel's types, and stay.
    let begun = unsafe { sys::signal_action(libc::SIGSYS, Some(&action)) };
    sys::unblock(libc::SIGSYS);
    let begun = begun.and_then(|_| arch::dispatch_calls());
    match begun {
        Ok(()) => {
            IS_ON.store(true, Ordering::Release);
            record_exec();
        }
        Err(errno) => file::warn(
            b"the kernel dispatches no system calls",
            c"",
            Some(errno),
            b"that takes Linux 5.11; `record --syscalls` records libc's functions",
        ),
    }
}

/// The call that the image began with.
fn record_exec() {
    // SAFETY: reads the auxiliary vector, which has the name that the kernel was given.
    let by_descriptor = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        !name.is_null() && CStr::from_ptr(name).to_bytes().starts_with(b"/dev/fd/")
    };
    let mut called = Called::default();
    called.insert_argument(match by_descriptor {
        true => libc::SYS_execveat,
        false => libc::SYS_execve,
    } as usize);
    hooks::begin_now();
    if let Some(mut hook) = Hook::enter_quietly(0, 0) {
        let call = SystemCall::Syscall;
        hook.outer_call(call.code(), notes::record_of(call, 0, &called, 0));
    }
}

fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire) && arch::SELECTOR.load(Ordering::Acquire) != arch::ALLOW
}

/// The parent calls libc's `vfork`; the recorder has its own.
pub extern "C" fn vfork_begins() {
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.in_vfork == 0 {
        local.call_begin = if is_on() {
            notes::larder_record_now()
        } else {
            0
        };
    }
    hooks::vfork_before();
}

/// The parent's child has ended, or executed a program; `result` is the system call's.
pub extern "C" fn vfork_returns(result: isize, sp: usize, bp: usize) -> c_int {
    let returned = hooks::vfork_after(result);
    // SAFETY: the thread's own.
    let local = unsafe { &*arch::local() };
    if is_on() && local.in_vfork == 0 {
        let errno = Errno::keep();
        let mut called = Called::default();
        called.begin = local.call_begin;
        called.insert_argument(libc::SYS_vfork as usize);
        if let Some(mut hook) = Hook::enter_quietly(sp, bp) {
            let call = SystemCall::Syscall;
            hook.system_call(call.code(), notes::record_of(call, result, &called, 0));
        }
        drop(errno);
    }
    returned
}

/// Ends it for all threads.
fn end(reason: &[u8]) {
    arch::SELECTOR.store(arch::ALLOW, Ordering::Release);
    if IS_ON.swap(false, Ordering::AcqRel) && state::is_recording() {
        file::warn(reason, c"", None, b"they are not recorded from here on");
    }
}

/// The registers of the interrupted code, and what else the handler's return restores.
struct Context<'a>(&'a mut libc::ucontext_t);

impl Context<'_> {
    /// # Safety
    /// The kernel's, of the calling handler.
    unsafe fn new(context: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        Context(unsafe { &mut *context.cast::<libc::ucontext_t>() })
    }

    fn register(&mut self, register: c_int) -> &mut i64 {
        &mut self.0.uc_mcontext.gregs[register as usize]
    }

    fn arguments(&mut self) -> [usize; 6] {
        use libc::{REG_R8, REG_R9, REG_R10, REG_RDI, REG_RDX, REG_RSI};
        [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9]
            .map(|register| *self.register(register) as usize)
    }

    fn mask(&mut self) -> &mut u64 {
        // SAFETY: the kernel's mask has eight bytes.
        unsafe { &mut *(&raw mut self.0.uc_sigmask).cast::<u64>() }
    }

    /// The call is made again after the handler, undispatched.
    fn make_natively(&mut self) {
        *self.register(libc::REG_RIP) -= INSTRUCTION;
    }

    /// The call is made after the handler, by a stub, which returns to where the call would have.
    fn make_by_stub(&mut self, kind: Stub) {
        let number = *self.register(libc::REG_RAX);
        let back = *self.register(libc::REG_RIP) as usize;
        // SAFETY: the thread's own.
        unsafe { (*arch::local()).call_begin = notes::larder_record_now() };
        match arch::stub(kind, number, back) {
            Some(stub) => *self.register(libc::REG_RIP) = stub as i64,
            None => {
                end(b"too many places in the code make system calls that fork or start threads");
                self.make_natively();
            }
        }
    }

    /// Whether a stub has made a call, which now returns.
    ///
    /// # Safety
    /// The registers are those of the interrupted code.
    unsafe fn made_by_stub(&mut self, made: &mut MadeCall) -> bool {
        let [ip, sp] = [libc::REG_RIP, libc::REG_RSP].map(|register| *self.register(register));
        // SAFETY: the caller's promise.
        let Some(call) = (unsafe { arch::made_by_stub(ip as usize, sp as usize) }) else {
            return false;
        };
        *self.register(libc::REG_RIP) = call.ip as i64;
        *self.register(libc::REG_RSP) = call.sp as i64;
        *self.register(libc::REG_RAX) = call.result;
        made.number = call.number;
        made.called.result = call.result as usize;
        true
    }
}

/// SIGSYS has come. Returns whether to make the call that is in `made` now, before `finish`.
///
/// # Safety
/// The kernel's arguments to a handler, and the handler's frame.
pub unsafe extern "C" fn prepare(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    made: *mut MadeCall,
) -> bool {
    // SAFETY: the caller's promise.
    let (info, made) = unsafe { (&mut *info, &mut *made) };
    if info.si_code != DISPATCHED {
        // SAFETY: the handler's own arguments.
        unsafe { OWN.pass_on(signal, info, context) };
        return false;
    }
    // SAFETY: the caller's promise.
    let mut context = unsafe { Context::new(context) };
    // SAFETY: the kernel's, of SIGSYS.
    let kind = unsafe { (*(&raw const *info).cast::<SystemCallInfo>()).architecture };
    if kind != arch::AUDIT {
        end(b"the program makes system calls of another kind of processor");
        context.make_natively();
        return false;
    }
    made.called = Called::default();
    made.called.set_arguments(context.arguments());
    // SAFETY: the code was interrupted there.
    if unsafe { context.made_by_stub(made) } {
        // SAFETY: the thread's own.
        made.called.begin = unsafe { (*arch::local()).call_begin };
        record(&mut context, made);
        return false;
    }
    made.number = *context.register(libc::REG_RAX);
    let to_be_made = make(&mut context, made);
    if to_be_made {
        made.called.begin = notes::larder_record_now();
    }
    to_be_made
}

/// Makes a call, or has it made later. Returns whether to make it now.
fn make(context: &mut Context, made: &mut MadeCall) -> bool {
    let arguments = context.arguments();
    let shares = |flags| match shares_nothing_or_all(flags) {
        true => Stub::Forks,
        false => Stub::Borrows,
    };
    match made.number {
        libc::SYS_rt_sigreturn => {
            // SAFETY: the stack pointer is at the context that will be restored.
            let restored = unsafe { Context::new(*context.register(libc::REG_RSP) as *mut c_void) };
            let mut restored = restored;
            *restored.mask() &= !SIGNAL;
            record_before(context, made);
            context.make_by_stub(Stub::Plain);
        }
        libc::SYS_exit | libc::SYS_exit_group => {
            record_before(context, made);
            return true;
        }
        libc::SYS_fork => context.make_by_stub(Stub::Forks),
        libc::SYS_vfork => context.make_by_stub(Stub::Borrows),
        libc::SYS_sigaltstack => context.make_by_stub(Stub::Plain),
        libc::SYS_clone => context.make_by_stub(shares(arguments[0])),
        libc::SYS_clone3 => {
            let flags = copied::<usize>(arguments[0]).unwrap_or(0);
            context.make_by_stub(shares(flags));
        }
        libc::SYS_seccomp => filtered(context, made.number),
        libc::SYS_prctl if arguments[0] == libc::PR_SET_SECCOMP as usize => {
            filtered(context, made.number);
        }
        libc::SYS_rt_sigaction if arguments[0] == libc::SIGSYS as usize => {
            let result = own_action(arguments);
            *context.register(libc::REG_RAX) = result;
            made.called.result = result as usize;
            record(context, made);
        }
        number => {
            without_signal(made, number, arguments);
            if matches!(number, libc::SYS_select | libc::SYS_pselect6) {
                made.called.look_at_sets();
            }
            return true;
        }
    }
    false
}

/// The filter may forbid what the handler needs, whatever else it lets pass.
fn filtered(context: &mut Context, number: i64) {
    let [first, second, third, ..] = context.arguments();
    filter::called(number, [first, second, third]);
    end(b"the program filters its system calls");
    context.make_natively();
}

/// The kernel's `siginfo_t` of SIGSYS.
#[repr(C)]
struct SystemCallInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    address: usize,
    number: i32,
    architecture: u32,
}

/// Whether a child of clone has its own memory, or is a thread: one that only borrows the memory, until it
/// executes a program, must not use the recorder.
fn shares_nothing_or_all(flags: usize) -> bool {
    flags & libc::CLONE_VM as usize == 0 || flags & libc::CLONE_THREAD as usize != 0
}

/// What an argument points at; `None` if it points at nothing.
fn copied<T: Copy>(address: usize) -> Option<T> {
    let last = address.checked_add(size_of::<T>())?.checked_sub(8)?;
    let is_readable = address != 0 && [address, last].iter().all(|at| sys::readable(*at as u64));
    // SAFETY: plain words, which can be read.
    is_readable.then(|| unsafe { (address as *const T).read_unaligned() })
}

/// Has the call block all that the program wants, but SIGSYS.
fn without_signal(made: &mut MadeCall, number: i64, arguments: [usize; 6]) {
    let at = match number {
        libc::SYS_rt_sigprocmask if arguments[0] != libc::SIG_UNBLOCK as usize => 1,
        libc::SYS_rt_sigaction => 1,
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_pselect6 => 5,
        _ => return,
    };
    let words = &mut made.words;
    match number {
        libc::SYS_rt_sigaction => {
            let Some(action) = copied::<[usize; 4]>(arguments[at]) else {
                return;
            };
            *words = action;
            words[3] &= !(SIGNAL as usize);
        }
        libc::SYS_pselect6 => {
            let Some([set, bytes]) = copied::<[usize; 2]>(arguments[at]) else {
                return;
            };
            let Some(mask) = copied::<usize>(set) else {
                return;
            };
            *words = [0, bytes, mask & !(SIGNAL as usize), 0];
            words[0] = &raw const words[2] as usize;
        }
        _ => {
            let Some(mask) = copied::<usize>(arguments[at]) else {
                return;
            };
            words[0] = mask & !(SIGNAL as usize);
        }
    }
    let place = words.as_ptr() as usize;
    made.called.set_argument(at, place);
}

/// The program sets its action for SIGSYS, or asks for it. Returns the call's result.
fn own_action([_, new, old, bytes, ..]: [usize; 6]) -> i64 {
    if bytes != size_of::<u64>() {
        return -i64::from(libc::EINVAL);
    }
    let before = OWN.get();
    if new != 0 {
        let Some([handler, flags, ..]) = copied::<[usize; 4]>(new) else {
            return -i64::from(libc::EFAULT);
        };
        OWN.replace(handler, flags);
    }
    if old != 0 {
        if copied::<[usize; 4]>(old).is_none() {
            return -i64::from(libc::EFAULT);
        }
        let (handler, flags) = before;
        let action = KernelAction {
            handler,
            flags,
            ..KernelAction::default()
        };
        // SAFETY: the program's own place for it.
        unsafe { (old as *mut KernelAction).write_unaligned(action) };
    }
    0
}

/// The call has returned.
///
/// # Safety
/// As for `prepare`.
pub unsafe extern "C" fn finish(context: *mut c_void, made: *mut MadeCall) {
    // SAFETY: the caller's promise.
    let (mut context, made) = unsafe { (Context::new(context), &mut *made) };
    let result = made.called.result as isize;
    *context.register(libc::REG_RAX) = result as i64;
    if made.number == libc::SYS_rt_sigprocmask && result == 0 {
        *context.mask() = made.words[0] as u64;
    }
    record(&mut context, made);
}

/// Records a call that is about to be made, and does not return here.
fn record_before(context: &mut Context, made: &mut MadeCall) {
    let arguments = context.arguments();
    record(context, made);
    made.called.set_arguments(arguments);
}

fn record(context: &mut Context, made: &mut MadeCall) {
    let result = made.called.result as isize;
    // SAFETY: the thread's own.
    let local = unsafe { &mut *arch::local() };
    if local.guard != guard::NONE || local.in_vfork != 0 {
        return;
    }
    let errno = Errno::keep();
    if local.stream.is_null() || !state::is_recording() {
        let returned = notes::larder_record_now();
        if !begin() {
            drop(errno);
            return;
        }
        // That was not the call's time.
        if made.called.begin != 0 && returned != 0 {
            made.called.begin += clock::about().saturating_sub(returned);
        }
    }
    let call = recorded_as(made.number, &made.called);
    if call == SystemCall::Syscall {
        made.called.insert_argument(made.number as usize);
    }
    let at_folder = matches!(made.number, libc::SYS_faccessat | libc::SYS_faccessat2);
    let record = notes::record_of(call, result, &made.called, usize::from(at_folder));
    // SAFETY: within the context that the kernel has stored.
    let mut read = |address: u64| Ok(unsafe { (address as *const u64).read() });
    let mut registers = arch::interrupted(&raw const *context.0 as u64, &mut read);
    if made.number == libc::SYS_rt_sigreturn {
        registers = registers.and_then(|registers| registers.moved_back(TRAMPOLINE));
    }
    if let (Some(registers), Some(mut hook)) = (registers, Hook::enter_quietly(0, 0)) {
        hook.interrupted_call(registers, call.code(), record);
    }
    drop(errno);
}

/// The first call of a child of fork, or of a thread. Returns whether to record it. The handler's stack may be
/// too small for what a process begins with.
#[cold]
fn begin() -> bool {
    let Ok(stack) = sys::map_anonymous(STACK_BYTES) else {
        return false;
    };
    extern "C" fn begin_now(_: *mut u8) {
        hooks::begin_now();
    }
    let top = stack.wrapping_add(STACK_BYTES);
    // SAFETY: just mapped, and unmapped afterwards.
    unsafe {
        arch::on_stack(top, begin_now, std::ptr::null_mut());
        sys::unmap(stack, STACK_BYTES);
    }
    let recording = state::is_recording();
    if !recording {
        arch::SELECTOR.store(arch::ALLOW, Ordering::Release);
    }
    recording
}

/// The function of libc's that makes this call; its arguments are the first of these.
fn recorded_as(number: i64, called: &Called) -> SystemCall {
    use SystemCall::*;
    match number {
        libc::SYS_read => Read,
        libc::SYS_write => Write,
        libc::SYS_readv => Readv,
        libc::SYS_writev => Writev,
        libc::SYS_pread64 => Pread,
        libc::SYS_pwrite64 => Pwrite,
        libc::SYS_preadv | libc::SYS_preadv2 => Preadv,
        libc::SYS_pwritev | libc::SYS_pwritev2 => Pwritev,
        libc::SYS_sendto if called.argument(4) == 0 => Send,
        libc::SYS_sendto => Sendto,
        libc::SYS_sendmsg => Sendmsg,
        libc::SYS_sendmmsg => Sendmmsg,
        libc::SYS_recvfrom if called.argument(4) == 0 => Recv,
        libc::SYS_recvfrom => Recvfrom,
        libc::SYS_recvmsg => Recvmsg,
        libc::SYS_recvmmsg => Recvmmsg,
        libc::SYS_poll => Poll,
        libc::SYS_ppoll => Ppoll,
        libc::SYS_select => Select,
        libc::SYS_pselect6 => Pselect,
        libc::SYS_epoll_wait => EpollWait,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => EpollPwait,
        libc::SYS_ioctl => Ioctl,
        libc::SYS_sendfile => Sendfile,
        libc::SYS_splice => Splice,
        libc::SYS_copy_file_range => CopyFileRange,
        libc::SYS_open | libc::SYS_creat => Open,
        libc::SYS_openat => Openat,
        libc::SYS_close => Close,
        libc::SYS_stat => Stat,
        libc::SYS_lstat => Lstat,
        libc::SYS_fstat => Fstat,
        libc::SYS_newfstatat => Fstatat,
        libc::SYS_statx => Statx,
        libc::SYS_access | libc::SYS_faccessat | libc::SYS_faccessat2 => Access,
        libc::SYS_readlink => Readlink,
        libc::SYS_lseek => Lseek,
        libc::SYS_fcntl => Fcntl,
        libc::SYS_fsync => Fsync,
        libc::SYS_fdatasync => Fdatasync,
        libc::SYS_mmap => Mmap,
        libc::SYS_munmap => Munmap,
        libc::SYS_mremap => Mremap,
        libc::SYS_mprotect => Mprotect,
        libc::SYS_madvise => Madvise,
        libc::SYS_clock_gettime => ClockGettime,
        libc::SYS_gettimeofday => Gettimeofday,
        libc::SYS_time => Time,
        libc::SYS_sched_yield => SchedYield,
        libc::SYS_nanosleep => Nanosleep,
        libc::SYS_clock_nanosleep => ClockNanosleep,
        libc::SYS_accept | libc::SYS_accept4 => Accept,
        libc::SYS_epoll_ctl => EpollCtl,
        libc::SYS_getpid => Getpid,
        libc::SYS_pipe | libc::SYS_pipe2 => Pipe,
        libc::SYS_socketpair => Socketpair,
        _ => Syscall,
    }
}
