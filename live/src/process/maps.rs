//! The mappings of a process (/proc/PID/maps), and the modules that contain its code.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use larder_analysis::symbols::ElfFile;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::Obstacle;
use super::memory::Memory;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// 0: no file.
    pub inode: u64,
    /// The kernel's text, also `[heap]` and the like; empty for anonymous memory.
    pub path: Vec<u8>,
}

/// A file whose code is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The path in the process's own file system.
    pub path: Vec<u8>,
    /// The path by which this tool reads it.
    pub file: PathBuf,
    pub build_id: Vec<u8>,
    /// Address in memory = address in the file's symbol table + bias.
    pub bias: u64,
    pub start: u64,
    pub end: u64,
}

pub fn read(memory: &Memory) -> Result<Vec<Mapping>, Obstacle> {
    let text = memory.text("maps")?;
    if text.is_empty() {
        let stat = memory.text("stat")?;
        return Err(match is_kernel_thread(&stat) {
            true => Obstacle::NotLarder,
            false => Obstacle::Ended,
        });
    }
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Tests the flags in `stat`. They are behind the name, which may contain anything.
fn is_kernel_thread(stat: &[u8]) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let end = stat.iter().rposition(|byte| *byte == b')');
    let mut fields = stat
        .get(end.unwrap_or(0)..)
        .unwrap_or_default()
        .split(|byte| *byte == b' ');
    let flags = fields
        .nth(7)
        .and_then(|flags| std::str::from_utf8(flags).ok());
    let flags: Option<u32> = flags.and_then(|flags| flags.parse().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// `55d0c000-55d0d000 r-xp 00001000 fe:00 1234    /usr/bin/app`
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let access = field()?.as_bytes().first_chunk::<4>().copied()?;
    let offset = hex(field()?)?;
    field()?;
    let inode = field()?.parse().ok()?;
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        readable: access[0] == b'r',
        writable: access[1] == b'w',
        executable: access[2] == b'x',
        shared: access[3] == b's',
        offset,
        inode,
        path: fields
            .next()
            .unwrap_or_default()
            .trim_ascii_start()
            .to_vec(),
    })
}

/// The addresses of the mapping that a line of `maps` or `smaps` starts; `None` for other lines.
pub fn place(line: &[u8]) -> Option<(u64, u64)> {
    parse(line).map(|mapping| (mapping.start, mapping.end))
}

/// Groups of adjacent mappings of one file, each with the anonymous mapping behind it.
pub fn by_file(mappings: &[Mapping]) -> impl Iterator<Item = &[Mapping]> {
    let of_one = |a: &Mapping, b: &Mapping| {
        // Zeroed data behind the file's last page is anonymous.
        b.path == a.path && b.inode == a.inode && b.offset != 0
    };
    mappings
        .chunk_by(of_one)
        .filter(|group| group.first().is_some_and(|first| first.inode != 0))
}

/// Sorted by address.
pub fn modules(memory: &Memory, mappings: &[Mapping]) -> Vec<Module> {
    let executable = |group: &&[Mapping]| group.iter().any(|mapping| mapping.executable);
    by_file(mappings)
        .filter(executable)
        .filter_map(|group| module(memory, group))
        .collect()
}

fn module(memory: &Memory, group: &[Mapping]) -> Option<Module> {
    let (first, last) = (group.first()?, group.last()?);
    let (path, elf) = open_file(memory, first)?;
    Some(Module {
        path: first.path.clone(),
        build_id: elf.build_id(),
        bias: bias(&elf, group)?,
        file: path,
        start: first.start,
        end: last.end,
    })
}

/// The mapped file: through the process's root, or, if it was deleted, through /proc/PID/exe.
pub fn open_file(memory: &Memory, mapping: &Mapping) -> Option<(PathBuf, ElfFile)> {
    let of_root = mapping.path.strip_prefix(b"/")?;
    let inside = memory.proc_path("root").join(OsStr::from_bytes(of_root));
    let own = PathBuf::from(OsStr::from_bytes(&mapping.path));
    let program = memory.proc_path("exe");
    [own, inside, program].into_iter().find_map(|path| {
        use std::os::unix::fs::MetadataExt;
        let same = path
            .metadata()
            .is_ok_and(|file| file.ino() == mapping.inode);
        let file = if same { ElfFile::open(&path) } else { None };
        Some((path, file?))
    })
}

/// Address in memory - address in the file.
pub fn bias(file: &ElfFile, group: &[Mapping]) -> Option<u64> {
    const PAGE: u64 = 4096;
    let header = elf::FileHeader64::<Endianness>::parse(&*file.map).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &*file.map).ok()?;
    group.iter().find_map(|mapping| {
        segments.iter().find_map(|segment| {
            let (offset, address) = (segment.p_offset(endian), segment.p_vaddr(endian));
            let loaded = segment.p_type(endian) == elf::PT_LOAD;
            let begins = offset / PAGE * PAGE == mapping.offset;
            (loaded && begins).then(|| mapping.start.wrapping_sub(address / PAGE * PAGE))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_blanks_in_its_name() {
        let line = b"7f00-7f10 rw-p 00001000 fe:00 1234                       /tmp/a b (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.inode),
            (0x7f00, 0x7f10, 1234)
        );
        assert!(mapping.writable && !mapping.executable && !mapping.shared);
        assert_eq!(mapping.path, b"/tmp/a b (deleted)");
        assert_eq!(parse(b"7f00-7f10 rw-p 0 00:00 0").unwrap().path, b"");
    }

    #[test]
    fn what_is_no_mapping_is_left_out() {
        for line in [
            &b""[..],
            b"x",
            b"1-2",
            b"1-2 rw",
            b"zz-1 rw-p 0 0:0 0",
            b"1-2 rw-p 0 0:0 x",
        ] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flags() {
        assert!(is_kernel_thread(b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"));
        for other in [
            &b"7 (a) 2 0 0 0 0 2129984) Z 1 7 7 0 -1 4194304 0 0"[..],
            b"7 (a) Z 1",
            b"",
        ] {
            assert!(!is_kernel_thread(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn the_modules_of_this_process_are_where_its_code_is() {
        let memory = Memory::open(std::process::id()).unwrap();
        let found = modules(&memory, &read(&memory).unwrap());
        let here = the_modules_of_this_process_are_where_its_code_is as *const () as u64;
        let own = found
            .iter()
            .find(|module| (module.start..module.end).contains(&here))
            .unwrap();
        let file = ElfFile::open(&own.file).unwrap();
        let symbols = larder_analysis::symbols::ModuleSymbols::load(
            &own.file,
            &file.build_id(),
            &larder_analysis::symbols::DebugRoots::from_environment(),
        );
        let frames = symbols.frames(here - own.bias);
        let name = frames.last().unwrap().function.clone().unwrap();
        assert!(
            name.name.contains("the_modules_of_this_process"),
            "{name:?}"
        );
    }
}
