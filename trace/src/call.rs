//! The recorded functions: the malloc family, functions that copy or format, and wrappers of system calls.
//!
//! Invariant: the numbers are part of the format; they never change, and new ones are added.

macro_rules! calls {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($variant = $number),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($number => Some($name::$variant),)* _ => None }
            }

            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The name in source code.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}

calls! {
    /// A call that allocates. `realloc` is its own action: it frees one block and allocates another.
    AllocCall {
        Malloc = 1, "malloc";
        Calloc = 2, "calloc";
        AlignedAlloc = 3, "aligned_alloc";
        PosixMemalign = 4, "posix_memalign";
        Memalign = 5, "memalign";
        Valloc = 6, "valloc";
        Pvalloc = 7, "pvalloc";
        Strdup = 8, "strdup";
        Strndup = 9, "strndup";
        Wcsdup = 10, "wcsdup";
        New = 11, "operator new";
        NewArray = 12, "operator new[]";
        Realloc = 13, "realloc";
        Reallocarray = 14, "reallocarray";
    }
}

calls! {
    /// A call that frees.
    FreeCall {
        Free = 64, "free";
        FreeSized = 65, "free_sized";
        FreeAlignedSized = 66, "free_aligned_sized";
        Delete = 67, "operator delete";
        DeleteArray = 68, "operator delete[]";
    }
}

calls! {
    /// A function of libc that makes a system call.
    SystemCall {
        Read = 128, "read";
        Write = 129, "write";
        Readv = 130, "readv";
        Writev = 131, "writev";
        Pread = 132, "pread";
        Pwrite = 133, "pwrite";
        Preadv = 134, "preadv";
        Pwritev = 135, "pwritev";
        Send = 136, "send";
        Sendto = 137, "sendto";
        Sendmsg = 138, "sendmsg";
        Sendmmsg = 139, "sendmmsg";
        Recv = 140, "recv";
        Recvfrom = 141, "recvfrom";
        Recvmsg = 142, "recvmsg";
        Recvmmsg = 143, "recvmmsg";
        Poll = 144, "poll";
        Ppoll = 145, "ppoll";
        Select = 146, "select";
        Pselect = 147, "pselect";
        EpollWait = 148, "epoll_wait";
        EpollPwait = 149, "epoll_pwait";
        Ioctl = 150, "ioctl";
        Sendfile = 151, "sendfile";
        Splice = 152, "splice";
        CopyFileRange = 153, "copy_file_range";
        Open = 154, "open";
        Openat = 155, "openat";
        Close = 156, "close";
        Stat = 157, "stat";
        Lstat = 158, "lstat";
        Fstat = 159, "fstat";
        Fstatat = 160, "fstatat";
        Statx = 161, "statx";
        Access = 162, "access";
        Readlink = 163, "readlink";
        Lseek = 164, "lseek";
        Fcntl = 165, "fcntl";
        Fsync = 166, "fsync";
        Fdatasync = 167, "fdatasync";
        Mmap = 168, "mmap";
        Munmap = 169, "munmap";
        Mremap = 170, "mremap";
        Mprotect = 171, "mprotect";
        Madvise = 172, "madvise";
        ClockGettime = 173, "clock_gettime";
        Gettimeofday = 174, "gettimeofday";
        Time = 175, "time";
        SchedYield = 176, "sched_yield";
        Nanosleep = 177, "nanosleep";
        ClockNanosleep = 178, "clock_nanosleep";
        Usleep = 179, "usleep";
        Sleep = 180, "sleep";
        Syscall = 181, "syscall";
        Accept = 182, "accept";
        EpollCtl = 183, "epoll_ctl";
        Getpid = 184, "getpid";
        Pipe = 185, "pipe";
        Socketpair = 186, "socketpair";
    }
}

impl SystemCall {
    /// Whether a result that is not negative counts bytes. The results of the others count descriptors or
    /// messages, are descriptors or addresses, or depend on the device.
    pub const fn counts_bytes(self) -> bool {
        self.reads() || self.writes()
    }

    /// Whether it moves bytes into the program's memory.
    pub const fn reads(self) -> bool {
        matches!(
            self,
            SystemCall::Read
                | SystemCall::Readv
                | SystemCall::Pread
                | SystemCall::Preadv
                | SystemCall::Recv
                | SystemCall::Recvfrom
                | SystemCall::Recvmsg
        )
    }

    /// Whether it moves bytes to a descriptor.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            SystemCall::Write
                | SystemCall::Writev
                | SystemCall::Pwrite
                | SystemCall::Pwritev
                | SystemCall::Send
                | SystemCall::Sendto
                | SystemCall::Sendmsg
                | SystemCall::Sendfile
                | SystemCall::Splice
                | SystemCall::CopyFileRange
        )
    }

    /// Whether it waits for descriptors, and returns how many are ready.
    pub const fn waits(self) -> bool {
        matches!(
            self,
            SystemCall::Poll
                | SystemCall::Ppoll
                | SystemCall::Select
                | SystemCall::Pselect
                | SystemCall::EpollWait
                | SystemCall::EpollPwait
        )
    }

    /// Whether its result is a size, not an `int`: of these the upper half of the register counts.
    pub const fn returns_word(self) -> bool {
        self.counts_bytes()
            || matches!(
                self,
                SystemCall::Readlink
                    | SystemCall::Lseek
                    | SystemCall::Mmap
                    | SystemCall::Mremap
                    | SystemCall::Time
                    | SystemCall::Syscall
            )
    }

    /// Whether a failure is its result, not -1 with the number in `errno`.
    pub const fn returns_error(self) -> bool {
        matches!(self, SystemCall::ClockNanosleep)
    }

    /// Whether the kernel's vDSO mostly answers it without a system call.
    pub const fn is_virtual(self) -> bool {
        matches!(
            self,
            SystemCall::ClockGettime | SystemCall::Gettimeofday | SystemCall::Time
        )
    }
}

calls! {
    /// A function of libc that copies, fills or formats. The checked form of each (`__memcpy_chk`) counts
    /// as the function.
    CopyCall {
        Memcpy = 192, "memcpy";
        Memmove = 193, "memmove";
        Mempcpy = 194, "mempcpy";
        Memset = 195, "memset";
        Bcopy = 196, "bcopy";
        Bzero = 197, "bzero";
        Strcpy = 198, "strcpy";
        Stpcpy = 199, "stpcpy";
        Strncpy = 200, "strncpy";
        Stpncpy = 201, "stpncpy";
        Strcat = 202, "strcat";
        Strncat = 203, "strncat";
        Strlcpy = 204, "strlcpy";
        Strlcat = 205, "strlcat";
        Wmemcpy = 206, "wmemcpy";
        Wmemmove = 207, "wmemmove";
        Wmempcpy = 208, "wmempcpy";
        Wmemset = 209, "wmemset";
        Wcscpy = 210, "wcscpy";
        Wcsncpy = 211, "wcsncpy";
        Wcscat = 212, "wcscat";
        Wcsncat = 213, "wcsncat";
        Strdup = 214, "strdup";
        Strndup = 215, "strndup";
        Wcsdup = 216, "wcsdup";
        Printf = 217, "printf";
        Fprintf = 218, "fprintf";
        Dprintf = 219, "dprintf";
        Sprintf = 220, "sprintf";
        Snprintf = 221, "snprintf";
        Asprintf = 222, "asprintf";
        Vprintf = 223, "vprintf";
        Vfprintf = 224, "vfprintf";
        Vdprintf = 225, "vdprintf";
        Vsprintf = 226, "vsprintf";
        Vsnprintf = 227, "vsnprintf";
        Vasprintf = 228, "vasprintf";
    }
}

impl CopyCall {
    /// Whether it writes text from a format, which is its source.
    pub const fn formats(self) -> bool {
        self as u8 >= CopyCall::Printf as u8
    }

    /// Whether it copies into a new block: such a call is one of the malloc family, too.
    pub const fn duplicates(self) -> bool {
        matches!(
            self,
            CopyCall::Strdup | CopyCall::Strndup | CopyCall::Wcsdup
        )
    }

    /// Whether it writes one value again and again, and has no source.
    pub const fn fills(self) -> bool {
        matches!(self, CopyCall::Memset | CopyCall::Bzero | CopyCall::Wmemset)
    }
}

/// Any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Alloc(AllocCall),
    Free(FreeCall),
    System(SystemCall),
    Copy(CopyCall),
}

impl Call {
    pub const fn from_code(code: u8) -> Option<Self> {
        if let Some(call) = AllocCall::from_code(code) {
            return Some(Call::Alloc(call));
        }
        if let Some(call) = FreeCall::from_code(code) {
            return Some(Call::Free(call));
        }
        if let Some(call) = SystemCall::from_code(code) {
            return Some(Call::System(call));
        }
        match CopyCall::from_code(code) {
            Some(call) => Some(Call::Copy(call)),
            None => None,
        }
    }

    pub const fn code(self) -> u8 {
        match self {
            Call::Alloc(call) => call.code(),
            Call::Free(call) => call.code(),
            Call::System(call) => call.code(),
            Call::Copy(call) => call.code(),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Call::Alloc(call) => call.name(),
            Call::Free(call) => call.name(),
            Call::System(call) => call.name(),
            Call::Copy(call) => call.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_leads_back_to_its_call() {
        for &call in AllocCall::ALL {
            assert_eq!(Call::from_code(call.code()), Some(Call::Alloc(call)));
        }
        for &call in FreeCall::ALL {
            assert_eq!(Call::from_code(call.code()), Some(Call::Free(call)));
        }
        for &call in SystemCall::ALL {
            assert_eq!(Call::from_code(call.code()), Some(Call::System(call)));
        }
        for &call in CopyCall::ALL {
            assert_eq!(Call::from_code(call.code()), Some(Call::Copy(call)));
        }
        assert_eq!(Call::from_code(0), None);
        assert_eq!(Call::from_code(255), None);
    }
}
