//! The symbols that a loaded module exports, read from its tables in memory: the loader's own look-up takes a lock.
//!
//! Thread safety: only reads, while the module is loaded. Only modules with a GNU hash table have exports here.

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

const SYMBOLS: i64 = 6;
const NAMES: i64 = 5;
const GNU_HASHES: i64 = 0x6fff_fef5;

impl Exports {
    /// # Safety
    /// The program headers are those of a module that the loader has mapped.
    pub unsafe fn of(bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Exports> {
        let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
        let entries = bias.wrapping_add(dynamic.p_vaddr) as *const [i64; 2];
        let count = dynamic.p_memsz as usize / 16;
        // SAFETY: a segment that the loader mapped.
        let entries = unsafe { std::slice::from_raw_parts(entries, count) };
        let find = |tag: i64| {
            let [_, value] = entries
                .iter()
                .take_while(|e| e[0] != 0)
                .find(|e| e[0] == tag)?;
            // The loader replaces offsets by addresses, except in segments that it cannot write to.
            let value = *value as u64;
            Some(if value < bias { value + bias } else { value })
        };
        Some(Exports {
            bias,
            symbols: find(SYMBOLS)?,
            names: find(NAMES)?,
            hashes: find(GNU_HASHES)?,
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
