//! The function symbols of a module, for use without debug information: sorted by address, with the
//! names in the mapped file.
//!
//! Invariant: `symbols` is sorted by address, one symbol an address.

use addr2line::gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use object::{Architecture, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use super::locate::ElfFile;

#[derive(Clone, Copy)]
struct Symbol {
    address: u64,
    /// 0: unknown; the symbol reaches to the next one.
    size: u64,
    name_offset: usize,
    name_len: usize,
}

/// A symbol table and the file with its names.
pub struct SymbolTable {
    file: ElfFile,
    symbols: Vec<Symbol>,
}

impl SymbolTable {
    pub fn new(file: ElfFile) -> Self {
        let symbols = collect(&file);
        Self { file, symbols }
    }

    /// The function around an address of the file, and the offset of the address in it.
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let symbol = self.around(address)?;
        Some((self.name(symbol)?, address - symbol.address))
    }

    fn around(&self, address: u64) -> Option<&Symbol> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        (symbol.size == 0 || address - symbol.address < symbol.size).then_some(symbol)
    }

    fn name(&self, symbol: &Symbol) -> Option<&str> {
        let end = symbol.name_offset + symbol.name_len;
        let name = self.file.map.get(symbol.name_offset..end)?;
        std::str::from_utf8(name).ok()
    }

    /// The start and size of the function around an address, if it is whole: not a part that the
    /// compiler moved out of a function.
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        let symbol = self.around(address).filter(|symbol| symbol.size > 0)?;
        let whole = !self.name(symbol)?.contains(".cold");
        whole.then_some((symbol.address, symbol.size))
    }

    /// The same by the unwind tables, which stripped files have, too.
    pub fn unwound(&self, address: u64) -> Option<(u64, u64)> {
        let parsed = self.file.parse()?;
        let section = |name| {
            let section = parsed.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let ((header_at, header), (frames_at, frames)) =
            (section(".eh_frame_hdr")?, section(".eh_frame")?);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header_at)
            .set_eh_frame(frames_at);
        let header = EhFrameHdr::new(header, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let frames = EhFrame::new(frames, LittleEndian);
        let find = EhFrame::cie_from_offset;
        let found = header
            .table()?
            .fde_for_address(&frames, &bases, address, find)
            .ok()?;
        Some((found.initial_address(), found.len()))
    }

    /// The file's bytes at an address, if they are of the processor whose code `loops` reads.
    pub fn code(&self, start: u64, size: u64) -> Option<&[u8]> {
        let parsed = self.file.parse()?;
        if parsed.architecture() != Architecture::X86_64 {
            return None;
        }
        let mut sections = parsed.sections();
        let code = sections.find_map(|section| section.data_range(start, size).ok().flatten())?;
        self.mapped(code)
    }

    /// From an address on, to the end of its section, if that is read-only.
    pub fn data(&self, address: u64) -> Option<&[u8]> {
        let parsed = self.file.parse()?;
        let mut sections = parsed.sections().filter(|section| {
            matches!(
                section.kind(),
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString
            )
        });
        let data = sections.find_map(|section| {
            let offset = usize::try_from(address.checked_sub(section.address())?).ok()?;
            section
                .data()
                .ok()?
                .get(offset..)
                .filter(|data| !data.is_empty())
        })?;
        self.mapped(data)
    }

    /// The same bytes, for as long as the file is mapped.
    fn mapped(&self, bytes: &[u8]) -> Option<&[u8]> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.file.map.as_ptr() as usize)?;
        self.file.map.get(offset..offset.checked_add(bytes.len())?)
    }
}

fn collect(file: &ElfFile) -> Vec<Symbol> {
    let Some(parsed) = file.parse() else {
        return Vec::new();
    };
    let base = file.map.as_ptr() as usize;
    let mut found: Vec<(Symbol, bool)> = parsed
        .symbols()
        .chain(parsed.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
            let name_offset = (name.as_ptr() as usize).checked_sub(base)?;
            if name_offset.checked_add(name.len())? > file.map.len() {
                return None;
            }
            let public = !symbol.is_local() && !name.starts_with(b"_");
            let entry = Symbol {
                address: symbol.address(),
                size: symbol.size(),
                name_offset,
                name_len: name.len(),
            };
            Some((entry, public))
        })
        .collect();
    // Of several names for one address, a public one is preferred, then one with a size.
    found.sort_by_key(|(symbol, public)| (symbol.address, !public, symbol.size == 0));
    found.dedup_by_key(|(symbol, _)| symbol.address);
    found.into_iter().map(|(symbol, _)| symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn libc() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            line.contains("libc.so.6")
                .then(|| line.split_whitespace().last().unwrap())
        });
        path.unwrap().into()
    }

    #[test]
    fn only_the_code_of_x86_64_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::read(libc()).unwrap();
        let copy = folder.path().join("libc.so.6");
        for (machine, is_read) in [
            (object::elf::EM_X86_64, true),
            (object::elf::EM_AARCH64, false),
        ] {
            file[18..20].copy_from_slice(&machine.0.to_le_bytes());
            std::fs::write(&copy, &file).unwrap();
            let table = SymbolTable::new(ElfFile::open(&copy).unwrap());
            let function = table.symbols.iter().find(|symbol| symbol.size > 0);
            let function = function.expect("libc has functions");
            assert_eq!(
                table.code(function.address, function.size).is_some(),
                is_read
            );
        }
    }

    #[test]
    fn the_exported_functions_of_libc_are_found() {
        let table = SymbolTable::new(ElfFile::open(&libc()).unwrap());
        let malloc = table.symbols.iter().find(|symbol| {
            table
                .find(symbol.address)
                .is_some_and(|(name, _)| name.starts_with("malloc"))
        });
        let malloc = malloc.expect("malloc is exported");
        let (name, offset) = table.find(malloc.address + 3).unwrap();
        assert!(name.starts_with("malloc"), "{name}");
        assert_eq!(offset, 3);
    }
}
