//! Computes what curl's own analyser finds in a log: counters, and messages about errors.
//!
//! One thread. A line takes time only by its length. Memory grows with the distinct source lines and the
//! distinct addresses, 24 bytes each, freed ones included: otherwise a double free would look like a free
//! of a wrong address.
//!
//! Invariants: `live` = Σ sizes allocated - Σ sizes freed = Σ `sites[*].live`; `peak >= live`. A site's
//! share of the peak is computed when its `live` next changes: if the peak was after the last change, the
//! share is the current `live`.

use std::io::{self, Write};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::line::{Call, Line, Unrecognised};

/// The form of the output, which curl's analyser has changed twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Up to curl 7.54, of 2017.
    Before2017,
    /// Up to curl 8.13, of 2025.
    Before2025,
    #[default]
    Current,
}

/// Totals of a log, in requested bytes, saturating. A realloc frees its old block before it allocates the
/// new one, and adds its whole new size to `total`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub mallocs: u64,
    pub reallocs: u64,
    pub callocs: u64,
    pub strdups: u64,
    pub wcsdups: u64,
    /// Without frees of unknown blocks.
    pub frees: u64,
    pub sends: u64,
    pub recvs: u64,
    pub sockets: u64,
    pub peak: u64,
    pub total: u64,
}

impl Counters {
    pub fn allocations(&self) -> u64 {
        self.mallocs + self.callocs + self.reallocs + self.strdups + self.wcsdups
    }

    /// Operations that curl's tests can make fail: allocations and sockets; in old logs also sends and recvs.
    pub fn operations(&self) -> u64 {
        self.allocations() + self.sockets + self.sends + self.recvs
    }

    /// Names and values, in the order of the output.
    pub fn list(&self, style: Style) -> Vec<(&'static str, u64)> {
        let mut list = vec![
            ("Mallocs", self.mallocs),
            ("Reallocs", self.reallocs),
            ("Callocs", self.callocs),
            ("Strdups", self.strdups),
            ("Wcsdups", self.wcsdups),
            ("Frees", self.frees),
        ];
        if style == Style::Before2025 {
            list.extend([("Sends", self.sends), ("Recvs", self.recvs)]);
        }
        if style != Style::Before2017 {
            list.push(("Sockets", self.sockets));
        }
        list.push(("Allocations", self.allocations()));
        if style != Style::Before2017 {
            list.push(("Operations", self.operations()));
        }
        list.push(("Maximum allocated", self.peak));
        if style != Style::Before2017 {
            list.push(("Total allocated", self.total));
        }
        list
    }

    /// One a line, `Name: value`.
    pub fn write(&self, style: Style, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        for (name, value) in self.list(style) {
            let wide = style != Style::Current && matches!(name, "Strdups" | "Wcsdups");
            writeln!(out, "{name}: {}{value}", if wide { " " } else { "" })?;
        }
        Ok(())
    }
}

/// An error of the program that wrote the log, or of the log. Bytes are the log's own, and must be
/// escaped before they go to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    UnknownPrefix {
        line: &'a [u8],
    },
    UnknownCall {
        text: &'a [u8],
    },
    NotAllocated {
        line: &'a [u8],
    },
    FreedTwice {
        line: &'a [u8],
        before: &'a [u8],
    },
    /// A block was allocated where one of `size` bytes is live: part of the program frees without the log.
    Mixed {
        place: &'a [u8],
        number: u64,
        size: u64,
        at: u64,
        calloc: bool,
    },
    CloseWithoutOpen {
        line: &'a [u8],
    },
    FcloseWithoutFopen {
        line: &'a [u8],
    },
    FreeaddrinfoWithoutGetaddrinfo {
        line: &'a [u8],
    },
    Leak {
        bytes: u64,
    },
    LeakedBlock {
        at: u64,
        size: u64,
        place: &'a [u8],
    },
    OpenDescriptor {
        place: &'a [u8],
    },
    OpenFiles,
    OpenFile {
        place: &'a [u8],
    },
    OpenAddresses,
    OpenAddress {
        place: &'a [u8],
    },
}

impl Message<'_> {
    /// In one or two lines, each with its newline.
    pub fn write(&self, style: Style, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let current = style == Style::Current;
        let mut with = |before: &str, bytes: &[u8], after: &str| {
            out.write_all(before.as_bytes())?;
            out.write_all(bytes)?;
            writeln!(out, "{after}")
        };
        let stop = if current { "." } else { "" };
        match *self {
            Message::UnknownPrefix { line } => with("Not recognized prefix line: ", line, ""),
            Message::UnknownCall { text } => with("Not recognized input line: ", text, ""),
            Message::NotAllocated { line } => with("FREE ERROR: No memory allocated: ", line, ""),
            Message::FreedTwice { line, before } => {
                with("FREE ERROR: Memory freed twice: ", line, "")?;
                with("FREE ERROR: Previously freed at: ", before, "")
            }
            Message::Mixed { calloc: true, .. } if !current => {
                with("Mixed debug compile, rebuild curl now", b"", "")
            }
            Message::Mixed {
                place,
                number,
                size,
                at,
                ..
            } => {
                let after = format!(" at line {number}), rebuild curl now");
                with("Mixed debug compile (", place, &after)?;
                writeln!(
                    out,
                    "We think {size} bytes are already allocated at that memory address: {at:x}!"
                )
            }
            Message::CloseWithoutOpen { line } => with("Close without open: ", line, ""),
            Message::FcloseWithoutFopen { line } => with("fclose() without fopen(): ", line, ""),
            Message::FreeaddrinfoWithoutGetaddrinfo { line } => {
                with("freeaddrinfo() without getaddrinfo(): ", line, "")
            }
            Message::Leak { bytes } => {
                writeln!(out, "Leak detected: memory still allocated: {bytes} bytes")
            }
            Message::LeakedBlock { at, size, place } => {
                let is = if current { " is" } else { "'s" };
                let first = format!("At {at:x}, there{is} {size} bytes.\n allocated by ");
                with(&first, place, "")
            }
            Message::OpenDescriptor { place } => {
                with("Open file descriptor created at ", place, stop)
            }
            Message::OpenFiles => with("Open FILE handles left at:", b"", ""),
            Message::OpenFile { place } => with("fopen() called at ", place, stop),
            Message::OpenAddresses => with("IPv6-style name resolve data left at:", b"", ""),
            Message::OpenAddress { place } => with("getaddrinfo() called at ", place, stop),
        }
    }
}

/// The sums of one source line's allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// `path:line`
    pub place: Rc<[u8]>,
    /// Allocations; a realloc counts as one.
    pub calls: u64,
    pub bytes: u64,
    /// The largest allocation.
    pub smallest: u64,
    pub largest: u64,
    pub live: u64,
    /// Live at the log's peak; valid after `Analyser::finish`.
    pub peak: u64,
    changed_at: u64,
}

impl Site {
    fn settle(&mut self, peak_at: u64, now: u64) {
        if peak_at >= self.changed_at {
            self.peak = self.live;
        }
        self.changed_at = now;
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// 0 after a realloc has freed it.
    size: u64,
    /// Where it was allocated or freed, or `NOWHERE`.
    place: u32,
    freed: bool,
}

const NOWHERE: u32 = u32::MAX;

/// Handles of one kind: the open ones, and where each was opened last.
#[derive(Debug, Default)]
struct Handles {
    /// Opened - closed; a handle that was opened twice counts twice.
    open: i64,
    places: FxHashMap<u64, (bool, u32)>,
}

impl Handles {
    fn open(&mut self, handle: u64, place: u32) {
        self.places.insert(handle, (true, place));
        self.open += 1;
    }

    /// False if it was not open.
    fn close(&mut self, handle: u64) -> bool {
        match self.places.get_mut(&handle) {
            Some((open @ true, _)) => {
                *open = false;
                self.open -= 1;
                true
            }
            _ => false,
        }
    }

    fn left(&self) -> Vec<u32> {
        let open = self.places.iter().filter(|(_, (open, _))| *open);
        let mut left: Vec<(u64, u32)> =
            open.map(|(&handle, &(_, place))| (handle, place)).collect();
        left.sort_unstable();
        left.into_iter().map(|(_, place)| place).collect()
    }
}

#[derive(Debug, Default)]
pub struct Analyser {
    pub counters: Counters,
    live: u64,
    blocks: FxHashMap<u64, Block>,
    descriptors: Handles,
    files: Handles,
    addresses: Handles,
    sites: Vec<Site>,
    by_place: FxHashMap<Rc<[u8]>, u32>,
    /// Counts changes of `live`.
    now: u64,
    peak_at: u64,
    lines: u64,
}

impl Analyser {
    /// Processes the log's next line, and reports its errors.
    pub fn line(&mut self, line: &[u8], tell: &mut impl FnMut(Message<'_>)) {
        self.lines += 1;
        match Line::parse(line) {
            Ok(parsed) => self.call(line, &parsed, tell),
            Err(Unrecognised::Prefix) => tell(Message::UnknownPrefix { line }),
            Err(Unrecognised::Text(text)) => tell(Message::UnknownCall { text }),
        }
    }

    /// Bytes live now.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Every source line of the log, in the order of their first lines there.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    fn call(&mut self, line: &[u8], parsed: &Line<'_>, tell: &mut impl FnMut(Message<'_>)) {
        match parsed.call {
            Call::Malloc { at: 0, .. }
            | Call::Calloc { at: 0, .. }
            | Call::Realloc { at: 0, .. }
            | Call::Strdup { at: 0, .. }
            | Call::Wcsdup { at: 0, .. } => tell(Message::UnknownCall { text: parsed.text }),
            Call::Malloc { size, at } => {
                self.expect_free(parsed, at, tell);
                self.counters.mallocs += 1;
                self.make(parsed, at, size);
            }
            Call::Calloc { count, size, at } => {
                self.expect_free(parsed, at, tell);
                self.counters.callocs += 1;
                self.make(parsed, at, count.saturating_mul(size));
            }
            Call::Strdup { size, at, .. } => {
                self.counters.strdups += 1;
                self.make(parsed, at, size);
            }
            Call::Wcsdup { size, at, .. } => {
                self.counters.wcsdups += 1;
                self.make(parsed, at, size);
            }
            Call::Realloc { old, size, at } => {
                self.give_up(old);
                self.counters.reallocs += 1;
                self.make(parsed, at, size);
            }
            Call::Free { at: 0 } => {}
            Call::Free { at } => self.free(line, parsed, at, tell),
            Call::Send => self.counters.sends += 1,
            Call::Recv => self.counters.recvs += 1,
            Call::Limit | Call::Other => {}
            _ => self.handle(line, parsed, tell),
        }
    }

    fn handle(&mut self, line: &[u8], parsed: &Line<'_>, tell: &mut impl FnMut(Message<'_>)) {
        let place = self.intern(parsed.place);
        match parsed.call {
            Call::Socket { fd } => {
                self.counters.sockets += 1;
                self.descriptors.open(fd, place);
            }
            Call::Accept { fd } => self.descriptors.open(fd, place),
            Call::Socketpair { fds } => {
                for fd in fds {
                    self.descriptors.open(fd, place);
                }
            }
            Call::Close { fd } if !self.descriptors.close(fd) => {
                tell(Message::CloseWithoutOpen { line });
            }
            Call::Open { at } if at != 0 => self.files.open(at, place),
            Call::CloseFile { at } if !self.files.close(at) => {
                tell(Message::FcloseWithoutFopen { line });
            }
            Call::Getaddrinfo { at } if at != 0 => self.addresses.open(at, place),
            Call::Freeaddrinfo { at } if !self.addresses.close(at) => {
                tell(Message::FreeaddrinfoWithoutGetaddrinfo { line });
            }
            _ => {}
        }
    }

    fn intern(&mut self, place: &[u8]) -> u32 {
        if let Some(&id) = self.by_place.get(place) {
            return id;
        }
        let place: Rc<[u8]> = place.into();
        // A log with enough source lines to saturate this would not fit in memory.
        let id = u32::try_from(self.sites.len()).unwrap_or(NOWHERE);
        self.sites.push(Site {
            place: place.clone(),
            calls: 0,
            bytes: 0,
            smallest: u64::MAX,
            largest: 0,
            live: 0,
            peak: 0,
            changed_at: self.now + 1,
        });
        self.by_place.insert(place, id);
        id
    }

    fn place(&self, id: u32) -> &[u8] {
        self.sites.get(id as usize).map_or(&[], |site| &site.place)
    }

    fn expect_free(&self, parsed: &Line<'_>, at: u64, tell: &mut impl FnMut(Message<'_>)) {
        if let Some(&Block {
            size: size @ 1..,
            freed: false,
            ..
        }) = self.blocks.get(&at)
        {
            tell(Message::Mixed {
                place: parsed.place,
                number: self.lines,
                size,
                at,
                calloc: matches!(parsed.call, Call::Calloc { .. }),
            });
        }
    }

    fn make(&mut self, parsed: &Line<'_>, at: u64, size: u64) {
        let place = self.intern(parsed.place);
        let block = Block {
            size,
            place,
            freed: false,
        };
        self.blocks.insert(at, block);
        self.counters.total = self.counters.total.saturating_add(size);
        self.live = self.live.saturating_add(size);
        self.now += 1;
        if let Some(site) = self.sites.get_mut(place as usize) {
            site.settle(self.peak_at, self.now);
            site.calls += 1;
            site.bytes = site.bytes.saturating_add(size);
            site.smallest = site.smallest.min(size);
            site.largest = site.largest.max(size);
            site.live = site.live.saturating_add(size);
        }
        if self.live > self.counters.peak {
            self.counters.peak = self.live;
            self.peak_at = self.now;
        }
    }

    /// A block's bytes are no longer live.
    fn end(&mut self, block: Block) {
        self.live = self.live.saturating_sub(block.size);
        self.now += 1;
        if let Some(site) = self.sites.get_mut(block.place as usize) {
            site.settle(self.peak_at, self.now);
            site.live = site.live.saturating_sub(block.size);
        }
    }

    fn give_up(&mut self, old: u64) {
        if old == 0 {
            return;
        }
        let given_up = Block {
            size: 0,
            place: NOWHERE,
            freed: false,
        };
        if let Some(block) = self.blocks.insert(old, given_up)
            && !block.freed
        {
            self.end(block);
        }
    }

    fn free(
        &mut self,
        line: &[u8],
        parsed: &Line<'_>,
        at: u64,
        tell: &mut impl FnMut(Message<'_>),
    ) {
        let place = self.intern(parsed.place);
        let Some(entry) = self.blocks.get_mut(&at) else {
            tell(Message::NotAllocated { line });
            return;
        };
        let block = *entry;
        if block.freed {
            tell(Message::FreedTwice {
                line,
                before: self.place(block.place),
            });
            return;
        }
        *entry = Block {
            size: 0,
            place,
            freed: true,
        };
        self.counters.frees += 1;
        self.end(block);
    }

    /// Computes the sites' shares of the peak, and reports what is still allocated or open.
    pub fn finish(&mut self, tell: &mut impl FnMut(Message<'_>)) {
        for site in &mut self.sites {
            site.settle(self.peak_at, u64::MAX);
        }
        if self.live > 0 {
            tell(Message::Leak { bytes: self.live });
            let live = self.blocks.iter().filter(|(_, block)| block.size > 0);
            let mut live: Vec<(u64, Block)> = live.map(|(&at, &block)| (at, block)).collect();
            live.sort_unstable_by_key(|&(at, _)| at);
            for (at, block) in live {
                tell(Message::LeakedBlock {
                    at,
                    size: block.size,
                    place: self.place(block.place),
                });
            }
        }
        for place in self.descriptors.left() {
            tell(Message::OpenDescriptor {
                place: self.place(place),
            });
        }
        if self.files.open > 0 {
            tell(Message::OpenFiles);
        }
        for place in self.files.left() {
            tell(Message::OpenFile {
                place: self.place(place),
            });
        }
        if self.addresses.open > 0 {
            tell(Message::OpenAddresses);
        }
        for place in self.addresses.left() {
            tell(Message::OpenAddress {
                place: self.place(place),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed of a log.
    fn analyse(log: &str, style: Style) -> (Analyser, String) {
        let mut analyser = Analyser::default();
        let mut out = Vec::new();
        let mut tell = |message: Message<'_>| message.write(style, &mut out).expect("written");
        for line in log.lines() {
            analyser.line(line.as_bytes(), &mut tell);
        }
        analyser.finish(&mut tell);
        (analyser, String::from_utf8(out).expect("text"))
    }

    const CALLS: &str = "\
MEM a.c:1 malloc(100) = 0x1
MEM a.c:2 calloc(5,10) = 0x2
MEM a.c:3 realloc(0x1, 120) = 0x3
MEM a.c:4 strdup(0x7ff) (6) = 0x4
MEM a.c:4 wcsdup(0x7ff) (8) = 0x5
MEM a.c:5 free(0x2)
MEM a.c:5 free(0x4)
MEM a.c:5 free(0x5)
MEM a.c:5 free((nil))
FD a.c:6 socket() = 3
FD a.c:7 sclose(3)
SEND a.c:8 send(3) = 3
RECV a.c:8 recv(3) = 3
LIMIT a.c:9 malloc reached memlimit
BT a.c:10 -- main
MEM a.c:11 free(0x3)
";

    #[test]
    fn counters_are_those_of_curls_analyser() {
        let (analyser, said) = analyse(CALLS, Style::Current);
        assert_eq!(said, "");
        let mut out = Vec::new();
        analyser
            .counters
            .write(Style::Current, &mut out)
            .expect("written");
        let expected = "Mallocs: 1\nReallocs: 1\nCallocs: 1\nStrdups: 1\nWcsdups: 1\nFrees: 4\n\
             Sockets: 1\nAllocations: 5\nOperations: 8\nMaximum allocated: 184\n\
             Total allocated: 284\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    #[test]
    fn older_versions_print_fewer_counters() {
        let (analyser, _) = analyse(CALLS, Style::Current);
        let text = |style| {
            let mut out = Vec::new();
            analyser.counters.write(style, &mut out).expect("written");
            String::from_utf8(out).expect("text")
        };
        let until_2017 = "Mallocs: 1\nReallocs: 1\nCallocs: 1\nStrdups:  1\nWcsdups:  1\nFrees: 4\n\
             Allocations: 5\nMaximum allocated: 184\n";
        assert_eq!(text(Style::Before2017), until_2017);
        let until_2025 = "Mallocs: 1\nReallocs: 1\nCallocs: 1\nStrdups:  1\nWcsdups:  1\nFrees: 4\n\
             Sends: 1\nRecvs: 1\nSockets: 1\nAllocations: 5\nOperations: 8\n\
             Maximum allocated: 184\nTotal allocated: 284\n";
        assert_eq!(text(Style::Before2025), until_2025);
    }

    #[test]
    fn faults_are_reported_in_curls_words() {
        let log = "\
MEM a.c:1 malloc(10) = 0x20
MEM a.c:2 malloc(11) = 0x10
MEM a.c:3 malloc(12) = 0x30
MEM a.c:4 free(0x30)
MEM a.c:5 free(0x30)
MEM a.c:6 free(0x99)
MEM a.c:7 malloc(5) = (nil)
MEM a.c:8 calloc(1,1) = 0x10
FD a.c:9 socketpair() = 12 4
FD a.c:9 sclose(9)
FILE a.c:10 fopen(\"x\",\"r\") = 0x5
FILE a.c:10 fclose(0x6)
ADDR a.c:11 getaddrinfo() = 0x7
ADDR a.c:11 freeaddrinfo(0x8)
HELLO
";
        let (_, said) = analyse(log, Style::Current);
        let expected = "\
FREE ERROR: Memory freed twice: MEM a.c:5 free(0x30)
FREE ERROR: Previously freed at: a.c:4
FREE ERROR: No memory allocated: MEM a.c:6 free(0x99)
Not recognized input line: malloc(5) = (nil)
Mixed debug compile (a.c:8 at line 8), rebuild curl now
We think 11 bytes are already allocated at that memory address: 10!
Close without open: FD a.c:9 sclose(9)
fclose() without fopen(): FILE a.c:10 fclose(0x6)
freeaddrinfo() without getaddrinfo(): ADDR a.c:11 freeaddrinfo(0x8)
Not recognized prefix line: HELLO
Leak detected: memory still allocated: 22 bytes
At 10, there is 1 bytes.
 allocated by a.c:8
At 20, there is 10 bytes.
 allocated by a.c:1
Open file descriptor created at a.c:9.
Open file descriptor created at a.c:9.
Open FILE handles left at:
fopen() called at a.c:10.
IPv6-style name resolve data left at:
getaddrinfo() called at a.c:11.
";
        assert_eq!(said, expected);
        let (_, said) = analyse(log, Style::Before2017);
        assert!(
            said.contains("\nMixed debug compile, rebuild curl now\nClose"),
            "{said}"
        );
        assert!(
            said.contains("\nAt 10, there's 1 bytes.\n allocated by a.c:8\n"),
            "{said}"
        );
        assert!(
            said.ends_with("\ngetaddrinfo() called at a.c:11\n"),
            "{said}"
        );
    }

    #[test]
    fn an_address_given_up_by_realloc_may_be_freed_again() {
        let log = "MEM a.c:1 malloc(9) = 0x1\nMEM a.c:2 realloc(0x1, 5) = 0x2\n\
             MEM a.c:3 free(0x1)\nMEM a.c:4 free(0x2)\n";
        let (analyser, said) = analyse(log, Style::Current);
        assert_eq!(said, "");
        assert_eq!(analyser.counters.frees, 2);
        assert_eq!(analyser.counters.peak, 9);
    }

    #[test]
    fn a_sites_share_of_the_peak_is_what_it_had_then() {
        let log = "MEM a.c:1 malloc(9) = 0x1\nMEM a.c:2 malloc(90) = 0x2\nMEM a.c:3 free(0x2)\n\
             MEM a.c:1 malloc(20) = 0x4\nMEM a.c:9 malloc(1) = 0x5\n";
        let (analyser, _) = analyse(log, Style::Current);
        let peaks: Vec<u64> = analyser.sites().iter().map(|site| site.peak).collect();
        assert_eq!(peaks, [9, 90, 0, 0]);
        assert_eq!(
            (analyser.sites()[0].smallest, analyser.sites()[0].largest),
            (9, 20)
        );
    }

    #[test]
    fn sizes_beyond_reason_saturate() {
        let log = "MEM a.c:1 calloc(18446744073709551615,18446744073709551615) = 0x1\n\
             MEM a.c:1 malloc(18446744073709551615) = 0x2\nMEM a.c:1 free(0x1)\n";
        let (analyser, _) = analyse(log, Style::Current);
        assert_eq!(analyser.counters.total, u64::MAX);
        assert_eq!(analyser.live(), 0);
    }
}
