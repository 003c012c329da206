//! The dynamic section of a loaded module, and the symbols that it exports, read from its tables in memory: the
//! loader's own look-up takes a lock.
//!
//! Thread safety: only reads, while the module is loaded. Only modules with a GNU hash table have exports here.

/// What a module tells the loader.
pub struct Dynamic<'a> {
    bias: u64,
    entries: &'a [[i64; 2]],
}

impl<'a> Dynamic<'a> {
    /// # Safety
    /// The program headers are those of a module that the loader has mapped, for `'a`.
    pub unsafe fn of(bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Self> {
        let header = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
        let entries = bias.wrapping_add(header.p_vaddr) as *const [i64; 2];
        let count = header.p_memsz as usize / size_of::<[i64; 2]>();
        // SAFETY: a segment that the loader mapped.
        let entries = unsafe { std::slice::from_raw_parts(entries, count) };
        Some(Dynamic { bias, entries })
    }

    pub fn value(&self, tag: i64) -> Option<u64> {
        let mut entries = self.entries.iter().take_while(|[found, _]| *found != 0);
        let entry = entries.find(|[found, _]| *found == tag);
        entry.map(|[_, value]| *value as u64)
    }

    /// The loader has added the bias, except in a section that cannot be written.
    pub fn address(&self, tag: i64) -> Option<u64> {
        let value = self.value(tag)?;
        Some(match value < self.bias {
            true => value + self.bias,
            false => value,
        })
    }
}

/// A loaded module's dynamic symbols.
pub struct Exports {
    bias: u64,
    symbols: u64,
    names: u64,
    hashes: u64,
}

#[derive(Clone, Copy)]
pub struct Export {
    pub address: u64,
    pub bytes: u64,
}

pub const NAMES: i64 = 5;
pub const SYMBOLS: i64 = 6;
const GNU_HASHES: i64 = 0x6fff_fef5;

impl Exports {
    /// # Safety
    /// The program headers are those of a module that the loader has mapped.
    pub unsafe fn of(bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Exports> {
        // SAFETY: by contract.
        let dynamic = unsafe { Dynamic::of(bias, headers) }?;
        Some(Exports {
            bias,
            symbols: dynamic.address(SYMBOLS)?,
            names: dynamic.address(NAMES)?,
            hashes: dynamic.address(GNU_HASHES)?,
        })
    }

    pub fn find(&self, name: &[u8]) -> Option<Export> {
        let hash = name.iter().fold(5381u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: the loader reads the same words of these tables; an empty bucket is 0.
        unsafe {
            let [buckets, first, words, _] = (self.hashes as *const [u32; 4]).read();
            let buckets_at = self.hashes + 16 + 8 * u64::from(words);
            let chains_at = buckets_at + 4 * u64::from(buckets);
            let word = |at: u64, index: u32| ((at + 4 * u64::from(index)) as *const u32).read();
            let mut number = word(buckets_at, hash.checked_rem(buckets)?);
            while number >= first && number != 0 {
                let found = word(chains_at, number - first);
                if found | 1 == hash | 1
                    && let Some(export) = self.symbol(number, name)
                {
                    return Some(export);
                }
                if found & 1 != 0 {
                    break;
                }
                number += 1;
            }
            None
        }
    }

    /// The symbol of this number if it is defined and has this name.
    ///
    /// # Safety
    /// The table has a symbol of this number.
    unsafe fn symbol(&self, number: u32, name: &[u8]) -> Option<Export> {
        let place = self.symbols + u64::from(number) * size_of::<libc::Elf64_Sym>() as u64;
        // SAFETY: the caller's promise; names end with a NUL.
        let (symbol, found) = unsafe {
            let symbol = &*(place as *const libc::Elf64_Sym);
            let found = (self.names + u64::from(symbol.st_name)) as *const libc::c_char;
            (symbol, std::ffi::CStr::from_ptr(found))
        };
        (symbol.st_shndx != 0 && found.to_bytes() == name).then(|| Export {
            address: self.bias.wrapping_add(symbol.st_value),
            bytes: symbol.st_size,
        })
    }
}
