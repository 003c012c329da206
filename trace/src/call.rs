//! The recorded functions: the malloc family, and wrappers of system calls that move data or wait.
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
    /// A wrapper of a system call that moves data or waits.
    IoCall {
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
    }
}

impl IoCall {
    /// Whether a result that is not negative counts bytes. The results of the others count descriptors or
    /// messages, or depend on the device.
    pub const fn counts_bytes(self) -> bool {
        !matches!(
            self,
            IoCall::Sendmmsg
                | IoCall::Recvmmsg
                | IoCall::Poll
                | IoCall::Ppoll
                | IoCall::Select
                | IoCall::Pselect
                | IoCall::EpollWait
                | IoCall::EpollPwait
                | IoCall::Ioctl
        )
    }

    /// Whether it waits for descriptors, and returns how many are ready.
    pub const fn waits(self) -> bool {
        matches!(
            self,
            IoCall::Poll
                | IoCall::Ppoll
                | IoCall::Select
                | IoCall::Pselect
                | IoCall::EpollWait
                | IoCall::EpollPwait
        )
    }
}

/// Any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Alloc(AllocCall),
    Free(FreeCall),
    Io(IoCall),
}

impl Call {
    pub const fn from_code(code: u8) -> Option<Self> {
        if let Some(call) = AllocCall::from_code(code) {
            return Some(Call::Alloc(call));
        }
        if let Some(call) = FreeCall::from_code(code) {
            return Some(Call::Free(call));
        }
        match IoCall::from_code(code) {
            Some(call) => Some(Call::Io(call)),
            None => None,
        }
    }

    pub const fn code(self) -> u8 {
        match self {
            Call::Alloc(call) => call.code(),
            Call::Free(call) => call.code(),
            Call::Io(call) => call.code(),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Call::Alloc(call) => call.name(),
            Call::Free(call) => call.name(),
            Call::Io(call) => call.name(),
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
        for &call in IoCall::ALL {
            assert_eq!(Call::from_code(call.code()), Some(Call::Io(call)));
        }
        assert_eq!(Call::from_code(0), None);
        assert_eq!(Call::from_code(255), None);
    }
}
