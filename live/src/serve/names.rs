//! Names of functions by address, for a pprof that does not have the files: those of `.symtab`, or of
//! `.dynsym`, not demangled.

use std::io::Write;

use larder_analysis::symbols::ElfFile;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::process::{Module, Obstacle, Process};

/// `0xADDRESS\tNAME` for each address of `0x1+0x2…` that lies in a function. Reads each file with an
/// address in it once; memory grows with its symbols.
pub fn write(process: &Process, addresses: &[u8]) -> Result<Vec<u8>, Obstacle> {
    let mut text = Vec::new();
    let mut addresses: Vec<u64> = addresses
        .split(|byte| *byte == b'+')
        .filter_map(address)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    for module in process.modules()? {
        let from = addresses.partition_point(|address| *address < module.start);
        let to = addresses.partition_point(|address| *address < module.end);
        if let Some(inside) = addresses.get(from..to).filter(|inside| !inside.is_empty()) {
            write_inside(&module, inside, &mut text);
        }
    }
    Ok(text)
}

fn address(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    let fits = (1..=16).contains(&digits.len()) && !digits.starts_with('+');
    u64::from_str_radix(digits, 16).ok().filter(|_| fits)
}

fn write_inside(module: &Module, addresses: &[u64], text: &mut Vec<u8>) {
    let Some(file) = ElfFile::open(&module.file) else {
        return;
    };
    let Some(parsed) = file.parse() else { return };
    let mut functions: Vec<(u64, u64, &[u8])> = parsed
        .symbols()
        .chain(parsed.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name_bytes().ok()?)))
        .collect();
    functions.sort_unstable();
    for address in addresses {
        let in_file = address.wrapping_sub(module.bias);
        let after = functions.partition_point(|(start, ..)| *start <= in_file);
        let before = after.checked_sub(1).and_then(|at| functions.get(at));
        let Some((start, size, name)) = before else {
            continue;
        };
        let is_line = name.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        if in_file - start < *size && is_line {
            // Writing to a vector cannot fail.
            let _ = write!(text, "{address:#x}\t");
            text.extend_from_slice(name);
            text.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_hexadecimal() {
        for (text, want) in [
            ("0x1", Some(1)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x11111111111111111", None),
            ("0x", None),
            ("0x+1", None),
            ("x", None),
            ("12", None),
            ("", None),
        ] {
            assert_eq!(address(text.as_bytes()), want, "{text}");
        }
    }
}
