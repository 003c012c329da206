//! One line of the log, `KIND path:line call`: parsing and writing.
//!
//! Invariant: parse(Display(call)) = call, and the same place if that has no space. `(nil)` is address 0. A
//! call's whole text must match: other text behind it is an error. Addresses in the logs of old versions
//! have no prefix `0x`.

use std::fmt;

/// A line's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// `path:line`; empty for lines that need no place.
    pub place: &'a [u8],
    /// The text behind the place.
    pub text: &'a [u8],
    pub call: Call,
}

/// The logged call. Sizes are in requested bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Malloc {
        size: u64,
        at: u64,
    },
    Calloc {
        count: u64,
        size: u64,
        at: u64,
    },
    Strdup {
        from: u64,
        size: u64,
        at: u64,
    },
    Wcsdup {
        from: u64,
        size: u64,
        at: u64,
    },
    Realloc {
        old: u64,
        size: u64,
        at: u64,
    },
    Free {
        at: u64,
    },
    Socket {
        fd: u64,
    },
    Socketpair {
        fds: [u64; 2],
    },
    Accept {
        fd: u64,
    },
    Close {
        fd: u64,
    },
    /// `fopen` or `fdopen`.
    Open {
        at: u64,
    },
    CloseFile {
        at: u64,
    },
    Getaddrinfo {
        at: u64,
    },
    Freeaddrinfo {
        at: u64,
    },
    /// An allocation was refused; the text names it.
    Limit,
    Send,
    Recv,
    /// Known, but irrelevant for the analysis.
    Other,
}

/// Why a line is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecognised<'a> {
    /// It does not begin with a known kind and a place.
    Prefix,
    /// The kind and the place are good, this text behind them is not.
    Text(&'a [u8]),
}

impl<'a> Line<'a> {
    /// Reads one line without its newline. Time grows with its length.
    pub fn parse(line: &'a [u8]) -> Result<Self, Unrecognised<'a>> {
        let (kind, rest) = split_at_space(line).unwrap_or((line, &[]));
        if kind == b"BT" {
            return Ok(Line {
                place: &[],
                text: rest,
                call: Call::Other,
            });
        }
        let parse: fn(&[u8]) -> Option<Call> = match kind {
            b"MEM" => memory,
            b"FD" => |text| Some(descriptor(text).unwrap_or(Call::Other)),
            b"FILE" => |text| Some(file(text).unwrap_or(Call::Other)),
            b"ADDR" => |text| Some(addresses(text).unwrap_or(Call::Other)),
            b"LIMIT" => |text| Some(limit(text)),
            b"SEND" => |_| Some(Call::Send),
            b"RECV" => |_| Some(Call::Recv),
            b"GETNAME" => |_| Some(Call::Other),
            _ => return Err(Unrecognised::Prefix),
        };
        let (place, text) = split_at_space(rest).ok_or(Unrecognised::Prefix)?;
        if !is_place(place) {
            return Err(Unrecognised::Prefix);
        }
        let call = parse(text).ok_or(Unrecognised::Text(text))?;
        Ok(Line { place, text, call })
    }

    /// The path and the line number of a place; 0 if it has none.
    pub fn split_place(place: &[u8]) -> (&[u8], u64) {
        match place.iter().rposition(|&byte| byte == b':') {
            Some(colon) => {
                let (path, number) = place.split_at(colon);
                (
                    path,
                    decimal(number.get(1..).unwrap_or_default()).map_or(0, |(n, _)| n),
                )
            }
            None => (place, 0),
        }
    }
}

impl Call {
    /// The kind that the line begins with.
    fn kind(&self) -> &'static str {
        match self {
            Call::Malloc { .. }
            | Call::Calloc { .. }
            | Call::Strdup { .. }
            | Call::Wcsdup { .. }
            | Call::Realloc { .. }
            | Call::Free { .. } => "MEM",
            Call::Socket { .. }
            | Call::Socketpair { .. }
            | Call::Accept { .. }
            | Call::Close { .. } => "FD",
            Call::Open { .. } | Call::CloseFile { .. } => "FILE",
            Call::Getaddrinfo { .. } | Call::Freeaddrinfo { .. } => "ADDR",
            Call::Limit => "LIMIT",
            Call::Send => "SEND",
            Call::Recv => "RECV",
            Call::Other => "GETNAME",
        }
    }

    /// The whole line, without a newline, of a call at `path:line`. In the path, `_` replaces spaces and
    /// bytes that are no printable ASCII, which would make the line unreadable.
    pub fn write(
        &self,
        path: &[u8],
        line: u64,
        out: &mut (impl std::io::Write + ?Sized),
    ) -> std::io::Result<()> {
        write!(out, "{} ", self.kind())?;
        for &byte in path {
            let shown = if byte.is_ascii_graphic() { byte } else { b'_' };
            out.write_all(&[shown])?;
        }
        write!(out, ":{line} {self}")
    }
}

struct Pointer(u64);

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("(nil)"),
            address => write!(f, "{address:#x}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Call::Malloc { size, at } => write!(f, "malloc({size}) = {}", Pointer(at)),
            Call::Calloc { count, size, at } => {
                write!(f, "calloc({count},{size}) = {}", Pointer(at))
            }
            Call::Strdup { from, size, at } => {
                write!(f, "strdup({}) ({size}) = {}", Pointer(from), Pointer(at))
            }
            Call::Wcsdup { from, size, at } => {
                write!(f, "wcsdup({}) ({size}) = {}", Pointer(from), Pointer(at))
            }
            Call::Realloc { old, size, at } => {
                write!(f, "realloc({}, {size}) = {}", Pointer(old), Pointer(at))
            }
            Call::Free { at } => write!(f, "free({})", Pointer(at)),
            Call::Socket { fd } => write!(f, "socket() = {fd}"),
            Call::Socketpair { fds: [a, b] } => write!(f, "socketpair() = {a} {b}"),
            Call::Accept { fd } => write!(f, "accept() = {fd}"),
            Call::Close { fd } => write!(f, "sclose({fd})"),
            Call::Open { at } => write!(f, "fopen(\"\",\"\") = {}", Pointer(at)),
            Call::CloseFile { at } => write!(f, "fclose({})", Pointer(at)),
            Call::Getaddrinfo { at } => write!(f, "getaddrinfo() = {}", Pointer(at)),
            Call::Freeaddrinfo { at } => write!(f, "freeaddrinfo({})", Pointer(at)),
            Call::Limit => f.write_str("malloc reached memlimit"),
            Call::Send => f.write_str("send(0) = 0"),
            Call::Recv => f.write_str("recv(0) = 0"),
            Call::Other => f.write_str("getnameinfo()"),
        }
    }
}

fn split_at_space(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', text)?;
    Some((text.get(..space)?, text.get(space + 1..)?))
}

/// A path, a colon and digits; the path and the digits may be empty.
fn is_place(place: &[u8]) -> bool {
    let digits = place.iter().rev().take_while(|byte| byte.is_ascii_digit());
    place.iter().rev().nth(digits.count()) == Some(&b':')
}

fn memory(text: &[u8]) -> Option<Call> {
    let mut scan = Scan(text);
    let call = match text.first()? {
        b'f' => {
            scan.word(b"free(")?;
            let at = scan.pointer()?;
            scan.word(b")")?;
            Call::Free { at }
        }
        b'm' => {
            scan.word(b"malloc(")?;
            let size = scan.number()?;
            scan.word(b")")?;
            Call::Malloc {
                size,
                at: scan.result()?,
            }
        }
        b'c' => {
            scan.word(b"calloc(")?;
            let count = scan.number()?;
            scan.word(b",")?;
            let size = scan.number()?;
            scan.word(b")")?;
            Call::Calloc {
                count,
                size,
                at: scan.result()?,
            }
        }
        b'r' => {
            scan.word(b"realloc(")?;
            let old = scan.pointer()?;
            scan.word(b", ")?;
            let size = scan.number()?;
            scan.word(b")")?;
            Call::Realloc {
                old,
                size,
                at: scan.result()?,
            }
        }
        b's' => {
            let (from, size, at) = scan.duplicate(b"strdup(")?;
            Call::Strdup { from, size, at }
        }
        _ => {
            let (from, size, at) = scan.duplicate(b"wcsdup(")?;
            Call::Wcsdup { from, size, at }
        }
    };
    scan.end(call)
}

fn descriptor(text: &[u8]) -> Option<Call> {
    let mut scan = Scan(text);
    let call = if scan.word(b"socket() = ").is_some() {
        Call::Socket { fd: scan.number()? }
    } else if scan.word(b"socketpair() = ").is_some() {
        let first = scan.number()?;
        scan.word(b" ")?;
        Call::Socketpair {
            fds: [first, scan.number()?],
        }
    } else if scan.word(b"accept() = ").is_some() {
        Call::Accept { fd: scan.number()? }
    } else {
        scan.word(b"sclose(")?;
        let fd = scan.number()?;
        scan.word(b")")?;
        Call::Close { fd }
    };
    scan.end(call)
}

fn file(text: &[u8]) -> Option<Call> {
    let mut scan = Scan(text);
    if scan.word(b"fclose(").is_some() {
        let at = scan.pointer()?;
        scan.word(b")")?;
        return scan.end(Call::CloseFile { at });
    }
    scan.word(b"fopen(\"").or_else(|| scan.word(b"fdopen(\""))?;
    // The name may contain anything, so the search starts at the end.
    let end = memchr::memmem::rfind(scan.0, b"\") = ")?;
    memchr::memmem::rfind(scan.0.get(..end)?, b"\",\"")?;
    let mut scan = Scan(scan.0.get(end + 2..)?);
    let at = scan.assigned()?;
    scan.end(Call::Open { at })
}

fn addresses(text: &[u8]) -> Option<Call> {
    let mut scan = Scan(text);
    if scan.word(b"freeaddrinfo(").is_some() {
        let at = scan.pointer()?;
        scan.word(b")")?;
        return scan.end(Call::Freeaddrinfo { at });
    }
    scan.word(b"getaddrinfo()")?;
    let at = scan.assigned()?;
    scan.end(Call::Getaddrinfo { at })
}

fn limit(text: &[u8]) -> Call {
    if text.ends_with(b" reached memlimit") {
        Call::Limit
    } else {
        Call::Other
    }
}

/// The rest of a line's text; each step removes its part from the front, or nothing.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(word)?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let (value, rest) = decimal(self.0)?;
        self.0 = rest;
        Some(value)
    }

    fn pointer(&mut self) -> Option<u64> {
        if self.word(b"(nil)").is_some() {
            return Some(0);
        }
        let mut value = 0u64;
        let mut rest = self.0.strip_prefix(b"0x").unwrap_or(self.0);
        let before = rest.len();
        while let Some((&byte, behind)) = rest.split_first() {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => break,
            };
            if value >> 60 != 0 {
                return None;
            }
            value = value << 4 | u64::from(digit);
            rest = behind;
        }
        if rest.len() == before {
            return None;
        }
        self.0 = rest;
        Some(value)
    }

    /// ` = P`
    fn assigned(&mut self) -> Option<u64> {
        self.word(b" = ")?;
        self.pointer()
    }

    /// The same, at the end of a call that allocates.
    fn result(&mut self) -> Option<u64> {
        self.assigned()
    }

    /// `NAME(P) (N) = P`
    fn duplicate(&mut self, name: &[u8]) -> Option<(u64, u64, u64)> {
        self.word(name)?;
        let from = self.pointer()?;
        self.word(b") (")?;
        let size = self.number()?;
        self.word(b")")?;
        Some((from, size, self.assigned()?))
    }

    fn end(&self, call: Call) -> Option<Call> {
        self.0.is_empty().then_some(call)
    }
}

/// At least one digit; `None` beyond 64 bits.
fn decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut rest = text;
    while let Some((&byte @ b'0'..=b'9', behind)) = rest.split_first() {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        rest = behind;
    }
    (rest.len() < text.len()).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(line: &str) -> Call {
        Line::parse(line.as_bytes()).expect("a line of a log").call
    }

    #[test]
    fn every_kind_of_allocation_is_read() {
        let lines = [
            (
                "MEM a/b.c:7 malloc(16) = 0x10",
                Call::Malloc { size: 16, at: 0x10 },
            ),
            (
                "MEM b.c:8 calloc(3,40) = 0x20",
                Call::Calloc {
                    count: 3,
                    size: 40,
                    at: 0x20,
                },
            ),
            (
                "MEM b.c:9 realloc((nil), 32) = 0x30",
                Call::Realloc {
                    old: 0,
                    size: 32,
                    at: 0x30,
                },
            ),
            (
                "MEM b.c:1 strdup(0x7ff) (5) = 0x50",
                Call::Strdup {
                    from: 0x7ff,
                    size: 5,
                    at: 0x50,
                },
            ),
            (
                "MEM b.c:2 wcsdup(0x7ff) (8) = 0x60",
                Call::Wcsdup {
                    from: 0x7ff,
                    size: 8,
                    at: 0x60,
                },
            ),
            ("MEM b.c:3 free(0x60)", Call::Free { at: 0x60 }),
            ("MEM b.c:3 free((nil))", Call::Free { at: 0 }),
            (
                "MEM b.c:3 malloc(5) = (nil)",
                Call::Malloc { size: 5, at: 0 },
            ),
        ];
        for (text, expected) in lines {
            assert_eq!(call(text), expected, "{text}");
        }
    }

    #[test]
    fn every_other_kind_of_line_is_read() {
        let lines = [
            ("FD b.c:3 socket() = 5", Call::Socket { fd: 5 }),
            (
                "FD b.c:3 socketpair() = 5 6",
                Call::Socketpair { fds: [5, 6] },
            ),
            ("FD b.c:3 accept() = 7", Call::Accept { fd: 7 }),
            ("FD b.c:3 sclose(5)", Call::Close { fd: 5 }),
            (
                "FILE b.c:3 fopen(\"a \\\",b\",\"rb\") = 0x77",
                Call::Open { at: 0x77 },
            ),
            (
                "FILE b.c:3 fdopen(\"3\",\"rb\") = 0x78",
                Call::Open { at: 0x78 },
            ),
            ("FILE b.c:3 freopen(\"f\",\"m\",0x77) = 0x77", Call::Other),
            ("FILE b.c:3 fclose(0x77)", Call::CloseFile { at: 0x77 }),
            (
                "ADDR b.c:3 getaddrinfo() = 0x9",
                Call::Getaddrinfo { at: 9 },
            ),
            ("ADDR b.c:3 getaddrinfo() failed", Call::Other),
            ("ADDR b.c:3 freeaddrinfo(0x9)", Call::Freeaddrinfo { at: 9 }),
            ("LIMIT b.c:3 calloc reached memlimit", Call::Limit),
            ("BT b.c:3 -- main", Call::Other),
            ("SEND b.c:3 send(83) = 83", Call::Send),
            ("RECV b.c:3 recv(83) = 83", Call::Recv),
            ("GETNAME b.c:3 getnameinfo()", Call::Other),
        ];
        for (text, expected) in lines {
            assert_eq!(call(text), expected, "{text}");
        }
    }

    #[test]
    fn addresses_of_old_logs_lack_the_prefix() {
        assert_eq!(call("MEM b.c:3 free(7ffe60)"), Call::Free { at: 0x7f_fe60 });
    }

    #[test]
    fn invalid_lines_are_rejected() {
        for bad in [
            "",
            "MEMO",
            "MEM",
            "MEM a.c:1",
            "MEM a.c malloc(1) = 0x1",
            "MEM /a b:1 free(0x1)",
        ] {
            assert_eq!(
                Line::parse(bad.as_bytes()),
                Err(Unrecognised::Prefix),
                "{bad}"
            );
        }
        for bad in [
            "malloc(-1) = 0x1",
            "malloc() = 0x1",
            "malloc(18446744073709551616) = 0x1",
            "malloc(1) = 0x11111111111111111",
            "malloc(1) = 0x",
            "free(0x1) ",
            "fr",
            "",
        ] {
            let line = format!("MEM a.c:1 {bad}");
            let expected = Err(Unrecognised::Text(bad.as_bytes()));
            assert_eq!(Line::parse(line.as_bytes()), expected, "{bad}");
        }
    }

    #[test]
    fn a_place_is_split_at_its_last_colon() {
        assert_eq!(
            Line::split_place(b"c:/d/e.c:12"),
            (b"c:/d/e.c".as_slice(), 12)
        );
        assert_eq!(Line::split_place(b"e.c:"), (b"e.c".as_slice(), 0));
        assert_eq!(
            Line::split_place(b"e.c:99999999999999999999"),
            (b"e.c".as_slice(), 0)
        );
    }

    #[test]
    fn a_path_that_could_not_be_read_back_is_changed() {
        let mut line = Vec::new();
        let free = Call::Free { at: 1 };
        free.write(b"/a b/c\n.c", 3, &mut line).expect("written");
        assert_eq!(line, b"MEM /a_b/c_.c:3 free(0x1)");
    }

    fn any_call() -> impl Strategy<Value = Call> {
        (any::<[u64; 3]>(), 0..6).prop_map(|([a, b, c], kind)| match kind {
            0 => Call::Malloc { size: a, at: b },
            1 => Call::Calloc {
                count: a,
                size: b,
                at: c,
            },
            2 => Call::Strdup {
                from: a,
                size: b,
                at: c,
            },
            3 => Call::Realloc {
                old: a,
                size: b,
                at: c,
            },
            4 => Call::Socketpair { fds: [a, b] },
            _ => Call::Free { at: a },
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(call in any_call(), number in any::<u32>()) {
            let mut line = Vec::new();
            call.write(b"lib/x.c", number.into(), &mut line).expect("written");
            let read = Line::parse(&line).expect("a line of a log");
            prop_assert_eq!(read.call, call);
            prop_assert_eq!(Line::split_place(read.place), (b"lib/x.c".as_slice(), number.into()));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = Line::parse(&bytes);
            let _ = Line::parse(&[b"MEM a:1 ".as_slice(), &bytes].concat());
            let _ = Line::parse(&[b"FILE a:1 fopen(\"".as_slice(), &bytes].concat());
        }
    }
}
