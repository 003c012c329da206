//! The addresses of modules: for unwinding here, for symbols in the trace.
//!
//! A published snapshot never changes; a change makes the next one. An address that a stack walk finds for
//! the first time is checked against the loader's lock-free look-up. So a new module is noticed without
//! interposing `dlopen`, whose caller the loader must see. After `dlclose` everything is checked, because
//! the next module may have the same addresses.
//!
//! Thread safety: reading is one atomic load; changes take a spin lock, under which no lock of the loader is
//! taken. Old snapshots are never freed, because another thread may be using one.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use framehop::{
    ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder as _, UnwinderNative,
};
use larder_trace::layout::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkKind, Contents};
use larder_trace::modules::{Load, encode_load, encode_unload};
use larder_trace::symbols::{PYTHON, PYTHON_ADDRESSES};

use crate::exports::Exports;
use crate::python::{Interpreter, Python};
use crate::registers::Tables;
use crate::{clock, file, real, redirect, sys};

pub type Unwinder = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

struct Known {
    id: u32,
    loaded: u32,
    loaded_at: u64,
    start: u64,
    end: u64,
    bias: u64,
    path: Vec<u8>,
    build_id: Vec<u8>,
    /// The loader's record, or `NO_RECORD`; 0 for modules from the program's start, which are never unloaded.
    link_map: usize,
    tables: Option<Tables>,
}

pub struct Snapshot {
    pub generation: u32,
    /// The last generation in which a module was unloaded.
    pub last_unload: u32,
    pub unwinder: Unwinder,
    modules: Vec<Arc<Known>>,
    next_id: u32,
    /// Where the loader's own code is.
    loader: Range<u64>,
    /// Where the malloc below has its code, if it is not libc's.
    allocator: Range<u64>,
    interpreter: Option<Interpreter>,
    /// Since the interpreter was first seen to run.
    pub python: Option<&'static Python>,
}

/// Of a module that may be unloaded, if the loader does not say where its record is.
const NO_RECORD: usize = 1;

static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
static LOCKED: AtomicBool = AtomicBool::new(false);

/// The loader's result for an address.
#[derive(Clone, Copy)]
struct Object {
    start: u64,
    end: u64,
    link_map: *const LinkMap,
    eh_frame_hdr: u64,
}

/// The start of the loader's public record, like in `link.h`.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const libc::c_char,
}

/// `struct dl_find_object` of `dlfcn.h`, with its reserve.
#[repr(C)]
struct FindObjectResult {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 16],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut FindObjectResult) -> i32;

static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

pub fn current() -> Option<&'static Snapshot> {
    // SAFETY: published snapshots are never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// In a child of fork: resets the lock, which another thread may have held.
pub fn after_fork() {
    LOCKED.store(false, Ordering::Release);
}

/// The first snapshot: everything that is loaded now.
pub fn start() {
    // SAFETY: the name is a C string; the loader's function has this type since it exists.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(find as usize, Ordering::Relaxed);
    let mut snapshot = Snapshot {
        // A process may be recorded again.
        generation: current().map_or(0, |last| last.generation) + 1,
        last_unload: 0,
        unwinder: Unwinder::new(),
        modules: Vec::new(),
        next_id: 0,
        loader: 0..0,
        allocator: 0..0,
        interpreter: None,
        python: None,
    };
    // SAFETY: the callback fits the snapshot, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut snapshot).cast()) };
    // SAFETY: the name is a C string: a symbol that all versions of glibc's loader, and nothing else, export.
    let inside = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_mcount".as_ptr()) };
    // SAFETY: as above; libc has code of other kinds, too.
    let libc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_start_main".as_ptr()) };
    // With musl they are one.
    let inside = if inside.is_null() { libc } else { inside };
    if let Some(known) = snapshot.known(inside as u64) {
        snapshot.loader = known.start..known.end;
    }
    // Not known yet if a system call begins the recording.
    real::look_up();
    let malloc = real::malloc().map_or(0, |malloc| malloc as usize);
    if let Some(known) = snapshot.known(malloc as u64)
        && !(known.start..known.end).contains(&(libc as u64))
    {
        snapshot.allocator = known.start..known.end;
    }
    CURRENT.store(Box::into_raw(Box::new(snapshot)), Ordering::Release);
    write_all_loads();
}

/// Writes the whole map, for a new file.
pub fn write_all_loads() {
    let Some(snapshot) = current() else { return };
    let mut chunk = MapChunk::new();
    for known in &snapshot.modules {
        chunk.load(known);
    }
    chunk.write();
}

/// Adds a module, which the loader does not unload meanwhile.
unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    snapshot: *mut c_void,
) -> i32 {
    // SAFETY: the loader's struct and the snapshot given to `dl_iterate_phdr`.
    let (info, snapshot) = unsafe { (&*info, &mut *snapshot.cast::<Snapshot>()) };
    let first = snapshot.modules.is_empty();
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader says how many there are.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    // SAFETY: a C string, or null.
    let name = unsafe { name_of(info.dlpi_name, first) };
    let image = Image {
        bias: info.dlpi_addr,
        headers,
    };
    let range = image.range();
    let mut known = known_of(&image, range, name, 0);
    if !first && real::is_loaded_later() {
        known.may_be_unloaded();
    }
    snapshot.add(known);
    0
}

/// The loader's name for a module; the program itself has none there.
///
/// # Safety
/// The pointer must be null or a C string.
unsafe fn name_of(name: *const libc::c_char, first: bool) -> Vec<u8> {
    let given = if name.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(name) }.to_bytes()
    };
    // musl has it as it was started.
    if first && !given.starts_with(b"/") {
        executable()
    } else {
        given.to_vec()
    }
}

/// The program's own file.
pub fn executable() -> Vec<u8> {
    let mut path = vec![0; 4096];
    let len = sys::readlink(c"/proc/self/exe", &mut path).unwrap_or(0);
    path.truncate(len);
    path
}

struct Image<'a> {
    bias: u64,
    headers: &'a [libc::Elf64_Phdr],
}

impl Image<'_> {
    fn range(&self) -> (u64, u64) {
        let mut start = u64::MAX;
        let mut end = 0;
        for header in self.headers.iter().filter(|h| h.p_type == libc::PT_LOAD) {
            start = start.min(self.bias.wrapping_add(header.p_vaddr) & !4095);
            let last = self
                .bias
                .wrapping_add(header.p_vaddr)
                .wrapping_add(header.p_memsz);
            end = end.max(last.next_multiple_of(4096));
        }
        (start.min(end), end)
    }

    fn build_id(&self) -> Vec<u8> {
        const GNU_BUILD_ID: u32 = 3;
        for header in self.headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
            let start = self.bias.wrapping_add(header.p_vaddr) as *const u8;
            // SAFETY: the loader mapped the segment.
            let mut notes = unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) };
            while let Some((head, rest)) = notes.split_at_checked(12) {
                let word = |at: usize| {
                    u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
                };
                let name_bytes = (word(0) as usize).next_multiple_of(4);
                let desc_bytes = word(4) as usize;
                let Some((name, rest)) = rest.split_at_checked(name_bytes) else {
                    break;
                };
                let Some(desc) = rest.get(..desc_bytes) else {
                    break;
                };
                if word(8) == GNU_BUILD_ID && name == b"GNU\0" {
                    return desc.to_vec();
                }
                notes = rest.get(desc_bytes.next_multiple_of(4)..).unwrap_or(&[]);
            }
        }
        Vec::new()
    }

    /// Address and length of `.eh_frame_hdr`.
    fn unwind_header(&self) -> Option<(u64, u64)> {
        let header = self
            .headers
            .iter()
            .find(|h| h.p_type == libc::PT_GNU_EH_FRAME)?;
        Some((self.bias.wrapping_add(header.p_vaddr), header.p_memsz))
    }

    fn segment_end(&self, address: u64) -> Option<u64> {
        self.headers
            .iter()
            .filter(|h| h.p_type == libc::PT_LOAD)
            .map(|h| (self.bias.wrapping_add(h.p_vaddr), h.p_memsz))
            .find(|(start, bytes)| (*start..start.saturating_add(*bytes)).contains(&address))
            .map(|(start, bytes)| start + bytes)
    }

    /// What the unwinder needs, if the module has it.
    fn sections(&self) -> ExplicitModuleSectionInfo<&'static [u8]> {
        let mut info = ExplicitModuleSectionInfo::default();
        let Some((header, header_bytes)) = self.unwind_header() else {
            return info;
        };
        let Some(header_end) = self.segment_end(header) else {
            return info;
        };
        if header_bytes < 8 || header + header_bytes > header_end {
            return info;
        }
        // SAFETY: within a segment that the loader mapped.
        let head =
            unsafe { std::slice::from_raw_parts(header as *const u8, header_bytes as usize) };
        const RELATIVE_SIGNED_32: u8 = 0x1b;
        if head[0] != 1 || head[1] != RELATIVE_SIGNED_32 {
            return info;
        }
        let offset = i32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
        let frames = header
            .wrapping_add(4)
            .wrapping_add(i64::from(offset) as u64);
        let Some(end) = self.segment_end(frames) else {
            return info;
        };
        // SAFETY: from the section's start to its segment's end, which the loader mapped.
        let bytes =
            unsafe { std::slice::from_raw_parts(frames as *const u8, (end - frames) as usize) };
        let svma = |address: u64| address.wrapping_sub(self.bias);
        info.eh_frame_svma = Some(svma(frames)..svma(end));
        info.eh_frame = Some(bytes);
        info.eh_frame_hdr_svma = Some(svma(header)..svma(header + header_bytes));
        info.eh_frame_hdr = Some(head);
        info
    }
}

fn known_of(image: &Image<'_>, range: (u64, u64), path: Vec<u8>, link_map: usize) -> Known {
    Known {
        id: 0,
        loaded: 0,
        loaded_at: clock::now(),
        start: range.0,
        end: range.1,
        bias: image.bias,
        path,
        build_id: image.build_id(),
        link_map,
        tables: None,
    }
}

impl Known {
    /// A module that was there when the recording began, in a program that had loaded some itself.
    fn may_be_unloaded(&mut self) {
        if let Some(object) = find_object(self.start) {
            (self.start, self.end) = (object.start, object.end);
            self.link_map = (object.link_map as usize).max(NO_RECORD);
        }
    }
}

impl Snapshot {
    fn known(&self, address: u64) -> Option<&Arc<Known>> {
        self.modules
            .iter()
            .find(|known| (known.start..known.end).contains(&address))
    }

    /// The same with the next generation's number.
    fn next(&self) -> Snapshot {
        Snapshot {
            generation: self.generation + 1,
            last_unload: self.last_unload,
            unwinder: self.unwinder.clone(),
            modules: self.modules.clone(),
            next_id: self.next_id,
            loader: self.loader.clone(),
            allocator: self.allocator.clone(),
            interpreter: self.interpreter.clone(),
            python: self.python,
        }
    }

    /// Whether the calling thread, with these addresses on its stack, evaluates Python code whose frames are not known yet.
    pub fn begins_python(&self, stack: impl Iterator<Item = u64> + Clone) -> bool {
        let interpreter = self.interpreter.as_ref();
        self.python.is_none() && interpreter.is_some_and(|i| i.runs(stack))
    }

    /// CPython's functions that get and set how it maps arenas.
    pub fn arena_functions(&self) -> Option<[usize; 2]> {
        self.interpreter.as_ref()?.arena_functions()
    }

    /// Whether code at this address belongs to a module.
    pub fn covers(&self, address: u64) -> bool {
        self.known(address).is_some()
    }

    pub fn is_allocator(&self, address: u64) -> bool {
        self.allocator.contains(&address)
    }

    pub fn is_loader(&self, address: u64) -> bool {
        self.loader.contains(&address)
    }

    /// The tables of the module that has the code at an address.
    pub fn tables(&self, address: u64) -> Option<Tables> {
        self.known(address)?.tables
    }

    fn add(&mut self, mut known: Known) -> Arc<Known> {
        known.id = self.next_id;
        known.loaded = self.generation;
        self.next_id += 1;
        let headers = image_at(&known);
        let bias = known.bias;
        let sections = headers.map(|headers| Image { bias, headers }.sections());
        let sections = sections.unwrap_or_default();
        // SAFETY: the headers of a module that is loaded.
        let exports = headers.and_then(|headers| unsafe { Exports::of(bias, headers) });
        if self.interpreter.is_none() {
            let module = known.start..known.end;
            self.interpreter = exports.and_then(|exports| Interpreter::of(&exports, module));
        }
        known.tables = match (sections.eh_frame_hdr, sections.eh_frame) {
            (Some(header), Some(frames)) => Some(Tables { header, frames }),
            _ => None,
        };
        let range = known.start..known.end;
        self.unwinder
            .add_module(Module::new(String::new(), range, known.bias, sections));
        let known = Arc::new(known);
        self.modules.push(Arc::clone(&known));
        known
    }

    /// The module of Python's lines has no code.
    fn add_lines(&mut self) {
        let known = Arc::new(Known {
            id: self.next_id,
            loaded: self.generation,
            loaded_at: clock::now(),
            start: PYTHON_ADDRESSES.start,
            end: PYTHON_ADDRESSES.end,
            bias: 0,
            path: PYTHON.to_vec(),
            build_id: Vec::new(),
            link_map: 0,
            tables: None,
        });
        self.next_id += 1;
        let mut chunk = MapChunk::new();
        chunk.load(&known);
        chunk.write();
        self.modules.push(known);
    }

    fn remove(&mut self, module: Range<u64>) {
        self.unwinder.remove_module(module.start);
        self.modules.retain(|known| known.start != module.start);
        let interpreter = self.interpreter.as_ref();
        if interpreter.is_some_and(|i| module.contains(&i.evaluates.start)) {
            (self.interpreter, self.python) = (None, None);
        }
    }
}

/// A loaded module's program headers, by the ELF header at its start.
fn image_at(known: &Known) -> Option<&'static [libc::Elf64_Phdr]> {
    if known.end - known.start < 4096 || !sys::readable(known.start) {
        return None;
    }
    // SAFETY: readable, page-aligned, and a page is longer than the header.
    let header = unsafe { &*(known.start as *const libc::Elf64_Ehdr) };
    let table = header.e_phoff.checked_add(u64::from(header.e_phnum) * 56)?;
    if header.e_ident[..4] != *b"\x7fELF" || header.e_phentsize != 56 || table > 4096 {
        return None;
    }
    let first = (known.start + header.e_phoff) as *const libc::Elf64_Phdr;
    // SAFETY: the table lies within the first page.
    Some(unsafe { std::slice::from_raw_parts(first, usize::from(header.e_phnum)) })
}

fn find_object(address: u64) -> Option<Object> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return find_by_iteration(address);
    }
    // SAFETY: the address came from dlsym for a function of this type.
    let find: FindObject = unsafe { std::mem::transmute::<usize, FindObject>(find) };
    // SAFETY: all-zero is a valid value.
    let mut result: FindObjectResult = unsafe { std::mem::zeroed() };
    // SAFETY: the result has room for the loader's struct and its reserve.
    if unsafe { find(address as *const c_void, &mut result) } != 0 {
        return None;
    }
    Some(Object {
        start: result.map_start as u64,
        end: result.map_end as u64,
        link_map: result.link_map,
        eh_frame_hdr: result.eh_frame as u64,
    })
}

/// For musl and a glibc before 2.35: the loader's list, under its lock.
fn find_by_iteration(address: u64) -> Option<Object> {
    struct Search {
        address: u64,
        found: Option<Object>,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> i32 {
        // SAFETY: the loader's struct and the search below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the loader says how many there are.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let (start, end) = Image {
            bias: info.dlpi_addr,
            headers,
        }
        .range();
        if !(start..end).contains(&search.address) {
            return 0;
        }
        // The name's address identifies the module in place of the loader's record.
        search.found = Some(Object {
            start,
            end,
            link_map: std::ptr::null(),
            eh_frame_hdr: 0,
        });
        1
    }
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: the callback fits the data.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

fn same(known: &Known, object: &Object) -> bool {
    if known.start != object.start || known.end != object.end {
        return false;
    }
    if object.link_map.is_null() {
        return true;
    }
    if known.link_map != object.link_map as usize {
        return false;
    }
    // SAFETY: the loader's record of a module that is loaded: its code is on this thread's stack.
    unsafe { CStr::from_ptr((*object.link_map).name) }.to_bytes() == known.path
}

/// Whether the snapshot is right about an address on the caller's stack; if not, publishes the next
/// snapshot.
pub fn check(snapshot: &Snapshot, address: u64) -> bool {
    let known = snapshot.known(address);
    if known.is_some_and(|known| known.link_map == 0) {
        return true;
    }
    let object = find_object(address);
    match (known, &object) {
        (None, None) => return true,
        (Some(known), Some(object)) if same(known, object) => return true,
        _ => {}
    }
    change(address, object);
    false
}

/// After `dlclose`: publishes a snapshot without the unloaded modules.
pub fn check_all() {
    while let Some(snapshot) = current() {
        let gone = snapshot.modules.iter().find(|known| {
            known.link_map != 0
                && !find_object(known.start).is_some_and(|object| same(known, &object))
        });
        match gone {
            Some(known) => change(known.start, find_object(known.start)),
            None => return,
        }
    }
}

fn change(address: u64, object: Option<Object>) {
    locked(|old| publish_change(old, address, object));
}

fn locked(act: impl FnOnce(&Snapshot)) {
    while LOCKED.swap(true, Ordering::Acquire) {
        sys::yield_processor();
    }
    if let Some(old) = current() {
        act(old);
    }
    LOCKED.store(false, Ordering::Release);
}

/// The calling thread evaluates Python code: publishes a snapshot with the module of Python's lines, or, if its frames
/// cannot be read, without the interpreter.
#[cold]
pub fn begin_python() {
    locked(|old| {
        let Some(interpreter) = old.interpreter.as_ref().filter(|_| old.python.is_none()) else {
            return; // Another thread was faster.
        };
        let mut next = old.next();
        let begun = interpreter.begin(next.next_id);
        if let Some(python) = begun {
            next.python = Some(Box::leak(Box::new(python)));
            next.add_lines();
        } else {
            next.interpreter = None;
        }
        CURRENT.store(Box::into_raw(Box::new(next)), Ordering::Release);
    });
}

fn publish_change(old: &Snapshot, address: u64, object: Option<Object>) {
    if let (Some(known), Some(object)) = (old.known(address), &object)
        && same(known, object)
    {
        return; // Another thread was faster.
    }
    let mut next = old.next();
    let mut chunk = MapChunk::new();
    let (start, end) = object.map_or((address, address + 1), |o| (o.start, o.end));
    for known in old
        .modules
        .iter()
        .filter(|k| k.start < end && start < k.end)
    {
        next.remove(known.start..known.end);
        next.last_unload = next.generation;
        chunk.unload(known.id, next.generation);
    }
    if let Some(object) = object {
        let added = next.add(known_of_object(&object));
        chunk.load(&added);
        if let Some(headers) = image_at(&added) {
            redirect::module_loaded(added.bias as usize, headers);
        }
    }
    chunk.write();
    CURRENT.store(Box::into_raw(Box::new(next)), Ordering::Release);
}

fn known_of_object(object: &Object) -> Known {
    let mut known = Known {
        id: 0,
        loaded: 0,
        loaded_at: clock::now(),
        start: object.start,
        end: object.end,
        bias: object.start,
        path: Vec::new(),
        build_id: Vec::new(),
        link_map: object.link_map as usize,
        tables: None,
    };
    if !object.link_map.is_null() {
        // SAFETY: the loader's record of a loaded module.
        let record = unsafe { &*object.link_map };
        known.bias = record.bias as u64;
        // SAFETY: a C string of the loader's.
        known.path = unsafe { name_of(record.name, false) };
    }
    if let Some(headers) = image_at(&known) {
        known.build_id = Image {
            bias: known.bias,
            headers,
        }
        .build_id();
    }
    let _ = object.eh_frame_hdr;
    known
}

/// The payload of a module chunk that is being built.
struct MapChunk {
    bytes: Vec<u8>,
}

impl MapChunk {
    fn new() -> Self {
        MapChunk {
            bytes: vec![0; CHUNK_HEADER_BYTES],
        }
    }

    fn put(&mut self, encode: impl Fn(&mut [u8]) -> Option<usize>) {
        let len = self.bytes.len();
        self.bytes.resize(len + 8192, 0);
        let written = encode(&mut self.bytes[len..]).unwrap_or(0);
        self.bytes.truncate(len + written);
    }

    fn load(&mut self, known: &Known) {
        self.put(|out| {
            let load = Load {
                id: known.id,
                generation: known.loaded,
                time: known.loaded_at,
                bias: known.bias,
                start: known.start,
                end: known.end,
                build_id: &known.build_id,
                path: &known.path,
            };
            encode_load(out, &load)
        });
    }

    fn unload(&mut self, id: u32, generation: u32) {
        self.put(|out| encode_unload(out, id, generation, clock::now()));
    }

    fn write(mut self) {
        let raw_bytes = (self.bytes.len() - CHUNK_HEADER_BYTES) as u32;
        let header = ChunkHeader {
            kind: ChunkKind::Modules,
            compressed: false,
            columns: false,
            stored_bytes: raw_bytes,
            raw_bytes,
            contents: Contents::default(),
        };
        file::append(&mut self.bytes, header);
    }
}
