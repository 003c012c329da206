//! What an ELF file's headers say about running and preloading it. The file is hostile input:
//! every offset is checked by the reader, nothing is trusted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{self, DataEncoding, FileClass, FileHeader64, Machine};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};

use crate::failure::Fatal;
use crate::libraries::Libc;
use crate::printable;
use crate::regular::open_regular;

use super::reason;

type Header = FileHeader64<LittleEndian>;

#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: Machine = elf::EM_AARCH64;

/// Why a file can neither run here under a preload nor be preloaded.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error(
        "{}: {}: check the path and its permissions",
        printable::name(path),
        reason(source)
    )]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{}: is a damaged ELF file: build or install it again",
        printable::name(path)
    )]
    Damaged { path: PathBuf },
    #[error(
        "{}: is built for another architecture ({machine}), this is {}: build it for this machine",
        printable::name(path),
        machine_name(OWN_MACHINE, elf::ELFCLASS64)
    )]
    OtherMachine { path: PathBuf, machine: String },
    #[error(
        "{}: is statically linked, so no library can be preloaded into it: link it dynamically, \
         or link liblarder.a into it",
        printable::name(path)
    )]
    Static { path: PathBuf },
    #[error(
        "{}: its loader {} is not installed: install the C library that it was built for",
        printable::name(path),
        printable::name(loader)
    )]
    NoLoader { path: PathBuf, loader: PathBuf },
    #[error(
        "{}: is not a shared library: name an allocator's .so file",
        printable::name(path)
    )]
    NotElf { path: PathBuf },
    #[error(
        "{}: is an ELF file, but not a shared library: name an allocator's .so file",
        printable::name(path)
    )]
    NotShared { path: PathBuf },
    #[error(
        "{}: defines no malloc: name an allocator's library",
        printable::name(path)
    )]
    NoMalloc { path: PathBuf },
}

impl Fatal for ElfError {}

/// The C library of a program. Refuses one that cannot run here or that a preload cannot reach.
pub fn check_program(path: &Path) -> Result<Libc, ElfError> {
    let map = map(path)?;
    check_machine(&map, path)?;
    let path = path.to_owned();
    let Some(loader) = interpreter(&map) else {
        return Err(ElfError::Damaged { path });
    };
    let Some(loader) = loader else {
        return Err(ElfError::Static { path });
    };
    if !loader.exists() {
        return Err(ElfError::NoLoader { path, loader });
    }
    Ok(Libc::of(&loader))
}

/// Refuses a file that the loader could not preload, as LD_PRELOAD would only warn and go on; and a
/// library without a malloc, which would leave the program its own.
pub fn check_allocator_library(path: &Path) -> Result<(), ElfError> {
    let map = map(path)?;
    let owned = || path.to_owned();
    let damaged = |_| ElfError::Damaged { path: owned() };
    if !map.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf { path: owned() });
    }
    check_machine(&map, path)?;
    let header = Header::parse(&*map).map_err(damaged)?;
    if header.e_type(LittleEndian) != elf::ET_DYN {
        return Err(ElfError::NotShared { path: owned() });
    }
    let file = ElfFile64::<LittleEndian>::parse(&*map).map_err(damaged)?;
    let defines_malloc = file
        .dynamic_symbols()
        .any(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(b"malloc"));
    if !defines_malloc {
        return Err(ElfError::NoMalloc { path: owned() });
    }
    Ok(())
}

/// The loader that a program names, if it is readable and names one.
pub fn program_loader(path: &Path) -> Option<PathBuf> {
    interpreter(&map(path).ok()?)?
}

fn map(path: &Path) -> Result<memmap2::Mmap, ElfError> {
    let cannot = |source| ElfError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = open_regular(path).map_err(cannot)?;
    // SAFETY: the map is read only; a program replaced under our hands is replaced, as the
    // kernel refuses to write to one that runs.
    unsafe { memmap2::Mmap::map(&file) }.map_err(cannot)
}

fn check_machine(data: &[u8], path: &Path) -> Result<(), ElfError> {
    let path = path.to_owned();
    let Some(head) = data.get(..20) else {
        return Err(ElfError::Damaged { path });
    };
    let (class, encoding) = (FileClass(head[4]), DataEncoding(head[5]));
    let machine = match encoding {
        elf::ELFDATA2MSB => Machine(u16::from_be_bytes([head[18], head[19]])),
        _ => Machine(u16::from_le_bytes([head[18], head[19]])),
    };
    if machine == OWN_MACHINE && class == elf::ELFCLASS64 && encoding == elf::ELFDATA2LSB {
        return Ok(());
    }
    let machine = machine_name(machine, class);
    Err(ElfError::OtherMachine { path, machine })
}

fn machine_name(machine: Machine, class: FileClass) -> String {
    let name = match machine {
        elf::EM_X86_64 if class == elf::ELFCLASS32 => "x32",
        elf::EM_X86_64 => "x86-64",
        elf::EM_386 => "i386",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "arm",
        elf::EM_RISCV => "riscv",
        elf::EM_PPC64 => "ppc64",
        elf::EM_S390 => "s390",
        elf::EM_MIPS => "mips",
        elf::EM_LOONGARCH => "loongarch",
        _ => return format!("ELF machine {}", machine.0),
    };
    name.to_owned()
}

/// `None`: damaged. `Some(None)`: no loader, so statically linked.
fn interpreter(data: &[u8]) -> Option<Option<PathBuf>> {
    let header = Header::parse(data).ok()?;
    let segments = header.program_headers(LittleEndian, data).ok()?;
    for segment in segments {
        if let Some(path) = segment.interpreter(LittleEndian, data).ok()? {
            return Some(Some(OsStr::from_bytes(path).into()));
        }
    }
    Some(None)
}
