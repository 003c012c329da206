//! The module map: which file's code was at which addresses, and when.
//!
//! Invariants: module numbers are not reused; `generation` counts the changes of the map; a module is
//! present in generation g if and only if `loaded <= g < unloaded`.

use crate::varint::{Input, Out};

/// The number of a load of a module in one file, in the order of loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub id: ModuleId,
    /// The loader's name; for the program itself its full path, if known.
    pub path: Vec<u8>,
    /// From the GNU note; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Address in memory = address in the file's symbol table + bias.
    pub bias: u64,
    /// The module's addresses, from its first loaded byte to behind its last.
    pub start: u64,
    pub end: u64,
    pub loaded: u32,
    /// `None`: loaded until the end.
    pub unloaded: Option<u32>,
    /// In ticks of the trace.
    pub loaded_at: u64,
    pub unloaded_at: Option<u64>,
}

impl Module {
    /// A file at its own addresses, which is always loaded.
    pub fn of_file(path: Vec<u8>, build_id: Vec<u8>) -> Self {
        Self {
            id: ModuleId(0),
            path,
            build_id,
            bias: 0,
            start: 0,
            end: u64::MAX,
            loaded: 0,
            unloaded: None,
            loaded_at: 0,
            unloaded_at: None,
        }
    }

    pub fn covers(&self, address: u64, generation: u32) -> bool {
        (self.start..self.end).contains(&address)
            && self.loaded <= generation
            && self.unloaded.is_none_or(|gone| generation < gone)
    }
}

const LOAD: u8 = 1;
const UNLOAD: u8 = 2;

/// A loaded module, in the recorder's form.
pub struct Load<'a> {
    pub id: u32,
    pub generation: u32,
    pub time: u64,
    pub bias: u64,
    pub start: u64,
    pub end: u64,
    pub build_id: &'a [u8],
    pub path: &'a [u8],
}

/// One record of a module chunk; `None` if it does not fit.
pub fn encode_load(out: &mut [u8], load: &Load<'_>) -> Option<usize> {
    let mut sink = Out::new(out);
    sink.byte(LOAD);
    sink.varint(u64::from(load.id));
    sink.varint(u64::from(load.generation));
    for value in [load.time, load.bias, load.start, load.end] {
        sink.varint(value);
    }
    sink.blob(load.build_id);
    sink.blob(load.path);
    sink.finish()
}

/// One record of a module chunk; `None` if it does not fit.
pub fn encode_unload(out: &mut [u8], id: u32, generation: u32, time: u64) -> Option<usize> {
    let mut sink = Out::new(out);
    sink.byte(UNLOAD);
    sink.varint(u64::from(id));
    sink.varint(u64::from(generation));
    sink.varint(time);
    sink.finish()
}

/// Applies a module chunk to the map; `None` at the first malformed record, with those before kept.
pub fn apply(payload: &[u8], modules: &mut Vec<Module>) -> Option<()> {
    let mut input = Input::new(payload);
    while !input.is_empty() {
        match input.byte()? {
            LOAD => modules.push(decode_load(&mut input)?),
            UNLOAD => {
                let id = ModuleId(input.varint_u32()?);
                let generation = input.varint_u32()?;
                let time = input.varint()?;
                let module = modules.iter_mut().rev().find(|module| module.id == id)?;
                module.unloaded = Some(generation);
                module.unloaded_at = Some(time);
            }
            _ => return None,
        }
    }
    Some(())
}

fn decode_load(input: &mut Input<'_>) -> Option<Module> {
    let id = ModuleId(input.varint_u32()?);
    let loaded = input.varint_u32()?;
    let loaded_at = input.varint()?;
    let bias = input.varint()?;
    let start = input.varint()?;
    let end = input.varint()?;
    let build_id = input.blob()?.to_vec();
    let path = input.blob()?.to_vec();
    Some(Module {
        id,
        path,
        build_id,
        bias,
        start,
        end,
        loaded,
        unloaded: None,
        loaded_at,
        unloaded_at: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(generation: u32) -> Load<'static> {
        Load {
            id: generation,
            generation,
            time: 77,
            bias: 0x7f00_0000_0000,
            start: 0x7f00_0000_0000,
            end: 0x7f00_0000_2000,
            build_id: &[1, 2, 3],
            path: b"/lib/a b\xff.so",
        }
    }

    #[test]
    fn the_map_knows_what_was_where_in_each_generation() {
        let mut bytes = [0; 256];
        let mut len = encode_load(&mut bytes, &load(1)).expect("fits");
        len += encode_unload(&mut bytes[len..], 1, 2, 80).expect("fits");
        len += encode_load(&mut bytes[len..], &load(3)).expect("fits");
        let mut modules = Vec::new();
        assert_eq!(apply(&bytes[..len], &mut modules), Some(()));
        let at = |generation| {
            modules
                .iter()
                .find(|m| m.covers(0x7f00_0000_1000, generation))
                .map(|m| m.id.0)
        };
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(9)],
            [None, Some(1), None, Some(3), Some(3)]
        );
        assert_eq!(modules[0].path, b"/lib/a b\xff.so");
    }

    #[test]
    fn a_cut_chunk_keeps_the_modules_before_the_cut() {
        let mut bytes = [0; 256];
        let mut len = encode_load(&mut bytes, &load(1)).expect("fits");
        len += encode_load(&mut bytes[len..], &load(2)).expect("fits");
        let mut modules = Vec::new();
        assert_eq!(apply(&bytes[..len - 1], &mut modules), None);
        assert_eq!(modules.len(), 1);
    }
}
