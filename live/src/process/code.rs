//! Where the code of a process is, as far as a thread that is to be interrupted matters: the loader, libc, every malloc
//! and the recorder, in which a thread may hold a lock.

use std::ops::Range;
use std::path::Path;

use larder_trace::attach::{ATTACH, DETACH};
use object::{Object, ObjectSymbol};

use super::Obstacle;
use super::attach::Refusal;
use super::maps::{self, Mapping};
use super::memory::Memory;

/// Functions of libc's.
#[derive(Clone, Copy)]
pub struct Libc {
    pub dlopen: u64,
    pub dlerror: u64,
    pub mmap: u64,
    pub munmap: u64,
    pub errno_location: u64,
}

pub struct Code {
    pub libc: Libc,
    /// Code of programs and libraries, by address.
    executable: Vec<Range<u64>>,
    /// The part of it in which a thread may hold a lock.
    locking: Vec<Range<u64>>,
    /// The loader and the recorder: the part in which it may also while it waits for the kernel.
    inner: Vec<Range<u64>>,
    /// Where signal handlers return to.
    pub signal_returns: Vec<u64>,
    /// If it is loaded.
    pub recorder: Option<Loaded>,
}

/// The recorder in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub attach: u64,
    pub detach: u64,
}

impl Loaded {
    /// Where it is, if this file is loaded.
    pub fn find(memory: &Memory, recorder: &Path) -> Result<Option<Self>, Refusal> {
        let mappings = maps::read(memory)?;
        let mut groups = maps::by_file(&mappings);
        let group =
            groups.find(|group| group.first().is_some_and(|first| is_file(first, recorder)));
        let symbols = group.and_then(|group| Symbols::read(memory, group));
        Ok(symbols.and_then(|symbols| symbols.recorder()))
    }
}

/// `mov rax, 15; syscall`: what libc and the recorder have handlers return to.
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

impl Code {
    /// `recorder`: the file that is to be loaded.
    pub fn read(memory: &Memory, recorder: &Path) -> Result<Self, Refusal> {
        let mappings = maps::read(memory).map_err(|obstacle| match obstacle {
            Obstacle::NotLarder => Refusal::NotDynamic,
            other => other.into(),
        })?;
        let mut code = Parts::default();
        for group in maps::by_file(&mappings) {
            if group.iter().any(|mapping| mapping.executable) {
                code.add(memory, group, recorder)?;
            }
        }
        let inner = code.inner.clone();
        let mut locking = code.locking;
        locking.extend(inner);
        if !code.has_loader {
            return Err(Refusal::NotDynamic);
        }
        Ok(Self {
            libc: code.libc.ok_or(Refusal::NotGlibc)?,
            executable: code.executable,
            locking,
            inner: code.inner,
            signal_returns: code.signal_returns,
            recorder: code.recorder,
        })
    }

    /// Whether a thread whose next instruction is here holds no lock that loading the recorder takes.
    /// `outside_of_malloc`: it holds none of malloc's, or that does not matter.
    pub fn is_safe(&self, ip: u64, outside_of_malloc: bool) -> bool {
        let within = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&ip));
        match outside_of_malloc {
            true => within(&self.executable) && !within(&self.inner),
            false => within(&self.executable) && !within(&self.locking),
        }
    }
}

#[derive(Default)]
struct Parts {
    libc: Option<Libc>,
    executable: Vec<Range<u64>>,
    locking: Vec<Range<u64>>,
    inner: Vec<Range<u64>>,
    signal_returns: Vec<u64>,
    recorder: Option<Loaded>,
    has_loader: bool,
}

impl Parts {
    fn add(&mut self, memory: &Memory, group: &[Mapping], recorder: &Path) -> Result<(), Refusal> {
        let code = group.iter().filter(|mapping| mapping.executable);
        let code: Vec<Range<u64>> = code.map(|mapping| mapping.start..mapping.end).collect();
        self.executable.extend(code.iter().cloned());
        let Some((symbols, first)) = Symbols::read(memory, group).zip(group.first()) else {
            return Ok(());
        };
        let is_loader = symbols.find(LOADER).is_some();
        let is_libc = symbols.find(LIBC).is_some();
        if is_loader {
            self.has_loader = true;
        }
        if is_libc {
            self.libc = Some(symbols.libc()?);
        }
        let loaded = symbols.recorder();
        if loaded.is_some() {
            self.recorder = match is_file(first, recorder) {
                true => loaded,
                false => return Err(Refusal::OtherRecorder),
            };
        }
        if is_libc || loaded.is_some() {
            for range in &code {
                self.signal_returns.extend(signal_returns(memory, range)?);
            }
        }
        if is_loader || loaded.is_some() {
            self.inner.extend(code);
        } else if is_libc || symbols.find(MALLOC).is_some() {
            self.locking.extend(code);
        }
        Ok(())
    }
}

/// Whether this is where the file is mapped.
fn is_file(mapping: &Mapping, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = path.metadata();
    file.is_ok_and(|file| file.ino() == mapping.inode)
}

fn signal_returns(memory: &Memory, code: &Range<u64>) -> Result<Vec<u64>, Obstacle> {
    let mut found = Vec::new();
    let bytes = memory.bytes(code.start, (code.end - code.start) as usize)?;
    for (at, part) in bytes.windows(SIGNAL_RETURN.len()).enumerate() {
        if part == SIGNAL_RETURN {
            found.push(code.start + at as u64);
        }
    }
    Ok(found)
}

const LOADER: &str = "__tls_get_addr";
const LIBC: &str = "gnu_get_libc_version";
const MALLOC: &str = "malloc";
const DLOPEN: &str = "dlopen";
const DLERROR: &str = "dlerror";
const MMAP: &str = "mmap";
const MUNMAP: &str = "munmap";
const ERRNO: &str = "__errno_location";
const NAMES: [&str; 10] = [
    LOADER, LIBC, MALLOC, DLOPEN, DLERROR, MMAP, MUNMAP, ERRNO, ATTACH, DETACH,
];

/// Those of `NAMES` that a loaded file exports, with their addresses.
struct Symbols(Vec<(&'static str, u64)>);

impl Symbols {
    fn read(memory: &Memory, group: &[Mapping]) -> Option<Self> {
        let (_, file) = maps::open_file(memory, group.first()?)?;
        let bias = maps::bias(&file, group)?;
        let parsed = file.parse()?;
        let defined = parsed.dynamic_symbols().filter(ObjectSymbol::is_definition);
        let found = defined.filter_map(|symbol| {
            let name = symbol.name().ok()?;
            let known = NAMES.iter().find(|known| **known == name)?;
            Some((*known, symbol.address().wrapping_add(bias)))
        });
        Some(Self(found.collect()))
    }

    fn find(&self, name: &str) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, address)| *address)
    }

    fn libc(&self) -> Result<Libc, Refusal> {
        let find = |name| self.find(name).ok_or(Refusal::OldLibc);
        Ok(Libc {
            dlopen: find(DLOPEN)?,
            dlerror: find(DLERROR)?,
            mmap: find(MMAP)?,
            munmap: find(MUNMAP)?,
            errno_location: find(ERRNO)?,
        })
    }

    fn recorder(&self) -> Option<Loaded> {
        Some(Loaded {
            attach: self.find(ATTACH)?,
            detach: self.find(DETACH)?,
        })
    }
}
