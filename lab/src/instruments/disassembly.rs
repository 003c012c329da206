//! Which instructions of a file are atomic read-modify-writes, which of these take one of Larder's locks,
//! and where its slow paths begin. For x86-64, by objdump and debug information.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use larder_analysis::symbols::{DebugRoots, ElfFile, ModuleSymbols};
use larder_base::printable;
use object::{Object, ObjectSymbol};

use crate::error::{LabError, Result};

pub const COMMAND: &str = "objdump";
pub const PACKAGE: &str = "binutils";

/// The functions of the slow paths, by prefixes of their mangled names.
const SLOW_PATHS: [(&str, &str); 4] = [
    ("malloc_slow", "_ZN6larder11malloc_slowE"),
    ("malloc_large", "_ZN6larder12malloc_largeE"),
    ("free_slow", "_ZN6larder9free_slowE"),
    ("free_empty", "_ZN6larder10free_emptyE"),
];
/// It is inlined nearly everywhere: debug information identifies its instructions.
const LOCK_FUNCTION: &str = "larder::Lock::acquire";

/// Addresses in one file.
#[derive(Debug, Default, PartialEq)]
pub struct Sites {
    pub atomics: BTreeSet<u64>,
    /// Of these, the ones that take a lock of Larder's.
    pub locks: BTreeSet<u64>,
    /// Entries of the slow paths; empty for other allocators, and without symbols.
    pub slow_paths: BTreeMap<&'static str, u64>,
}

impl Sites {
    /// Empty if it is no file, such as the kernel's vDSO.
    pub fn of(file: &Path) -> Result<Sites> {
        if !file.is_file() {
            return Ok(Sites::default());
        }
        let failed = |cause: String| {
            LabError::NotUnderstood(format!(
                "{COMMAND} -d {}: {}: is this an object file of this machine?",
                printable::name(file),
                printable::escape(&cause)
            ))
        };
        let mut command = Command::new(COMMAND);
        command
            .args(["-d", "--no-show-raw-insn", "--"])
            .arg(file)
            .env("LC_ALL", "C");
        let output = command
            .output()
            .map_err(|error| failed(larder_base::target::reason(&error)))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(said.lines().last().unwrap_or("failed").to_owned()));
        }
        let atomics = atomics(&String::from_utf8_lossy(&output.stdout));
        let slow_paths = slow_paths(file);
        let locks = match slow_paths.is_empty() {
            true => BTreeSet::new(),
            false => locks(file, &atomics),
        };
        Ok(Sites {
            atomics,
            locks,
            slow_paths,
        })
    }
}

fn atomics(listing: &str) -> BTreeSet<u64> {
    let lines = listing.lines().filter_map(|line| line.split_once(":\t"));
    lines
        .filter(|(_, instruction)| is_atomic(instruction))
        .filter_map(|(address, _)| u64::from_str_radix(address.trim(), 16).ok())
        .collect()
}

/// By the symbols of the file, or, of one that is stripped, of its debug file.
fn slow_paths(file: &Path) -> BTreeMap<&'static str, u64> {
    let mut found = BTreeMap::new();
    let own = ElfFile::open(file);
    let build_id = own.as_ref().map(ElfFile::build_id).unwrap_or_default();
    let debug = DebugRoots::from_environment().find(file, own.as_ref(), &build_id);
    for parsed in [&own, &debug]
        .into_iter()
        .flatten()
        .filter_map(ElfFile::parse)
    {
        for symbol in parsed.symbols() {
            let name = symbol.name().unwrap_or_default();
            // Parts that the compiler split off have a dot in their name.
            let path = SLOW_PATHS
                .iter()
                .find(|(_, mangled)| name.starts_with(mangled) && !name.contains('.'));
            if let Some((path, _)) = path {
                found.insert(*path, symbol.address());
            }
        }
    }
    found
}

/// Whether it has a lock prefix, or is an exchange with memory, which locks without one.
fn is_atomic(instruction: &str) -> bool {
    // objdump appends the symbol that an address belongs to.
    let instruction = instruction.split('#').next().unwrap_or_default();
    let mut words = instruction.split_whitespace();
    let in_memory = |operands: &str| operands.contains('(') || operands.contains("s:");
    words.any(|word| word == "lock")
        || instruction
            .split_whitespace()
            .skip_while(|word| !word.starts_with("xchg"))
            .skip(1)
            .any(in_memory)
}

fn locks(file: &Path, atomics: &BTreeSet<u64>) -> BTreeSet<u64> {
    let build_id = ElfFile::open(file)
        .map(|file| file.build_id())
        .unwrap_or_default();
    let symbols = ModuleSymbols::load(file, &build_id, &DebugRoots::from_environment());
    let takes_lock = |address: &u64| {
        symbols.frames(*address).iter().any(|frame| {
            let name = frame.function.as_ref().map(|function| &*function.name);
            name.is_some_and(|name| name.split('(').next() == Some(LOCK_FUNCTION))
        })
    };
    atomics.iter().copied().filter(takes_lock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_instructions_are_recognised() {
        for atomic in [
            "lock cmpxchg %edx,0x20fd11(%rip)        # 212760 <x>",
            "xchg   %eax,0x0(%r13)",
            "xchg   %ebx,%fs:0x10",
            "lock decl %fs:0x18",
            "bnd lock xadd %rax,(%rbx)",
            "data16 xchg %rax,(%rbx)",
        ] {
            assert!(is_atomic(atomic), "{atomic}");
        }
        for plain in [
            "xchg   %ax,%ax",
            "xchg   %rax,%rbx",
            "mov    (%rax),%rbx",
            "call   1234 <lock_it>",
            "cmpxchg %rcx,(%rdx)",
            "lea 0x8(%rip),%rax # 12 <lock (x)>",
        ] {
            assert!(!is_atomic(plain), "{plain}");
        }
    }

    #[test]
    fn a_listing_gives_addresses() {
        let listing = "\n/l.so:     file format elf64-x86-64\n\n\
            0000000000002d6d <_ZN6larder11malloc_slowEi>:\n    2d6d:\tpush   %rbx\n    2d70:\tlock incq 0x70(%rax)\n\
            00000000000022e3 <_ZN6larder9free_slowEPvPNS_4SlabE.cold>:\n    22e3:\txchg   %eax,(%rbx)\n";
        assert_eq!(atomics(listing), BTreeSet::from([0x22e3, 0x2d70]));
    }

    #[test]
    fn what_is_no_file_has_no_sites() {
        assert_eq!(
            Sites::of(Path::new("/nowhere/???")).unwrap(),
            Sites::default()
        );
    }
}
